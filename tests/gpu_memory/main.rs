//! Memory that the host and a device use, calls that go through the host's in pieces, and memory that
//! processes have open.

#[path = "../support/card.rs"]
mod card;
mod faults;
mod processes;
mod streams;
#[path = "../support/mod.rs"]
mod support;

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use card::{gpu, stand_in};
use spmd::prelude::*;
use spmd_gpu::cudarc::driver::{LaunchConfig, PushKernelArg};
use spmd_gpu::{Device, DeviceBuffer, GpuError, Local, OnDevice, Staged, planes};

const NAMED: [&str; 4] = ["--exact", "--ignored", "--nocapture", "--quiet"];

/// Runs a test of this file in an environment with these changes, on stand-in cards.
fn alone(test: &str, changes: &[(&str, &str)]) -> support::Ran {
    let mut command = Command::new(std::env::current_exe().expect("a test knows its own path"));
    support::finish(command.arg(test).args(NAMED).envs(changes.iter().copied()))
}

/// The same as ranks that `spmdrun` starts with these options.
fn started(options: &[&str], test: &str, cards: &str) -> support::Ran {
    let mut job = support::spmdrun(options);
    job.arg(std::env::current_exe().expect("a test knows its own path")).arg(test).args(NAMED);
    support::finish(job.env("SPMD_STANDIN_CARDS", cards).env("SPMD_SEGMENT", "1024"))
}

/// Whether there is a device with memory that the host uses as well. Says so where there is none.
fn unified() -> bool {
    let made = || DeviceBuffer::<u8>::unified(&Device::open(0)?, 1);
    match gpu().then(made) {
        Some(Ok(_)) => true,
        Some(Err(missing)) => {
            println!("SKIPPED: {missing}");
            assert!(matches!(missing, GpuError::NoUnifiedMemory { .. }), "{missing}");
            false
        }
        None => false,
    }
}

#[test]
fn kernels_and_the_host_take_turns() -> Result<(), GpuError> {
    if !unified() {
        return Ok(());
    }
    let device = Device::open(0)?;
    let source = r#"
        extern "C" __global__ void add_one(unsigned *all, unsigned n) {
            unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
            if (at < n) all[at] += 1;
        }"#;
    let module = device.compile(source)?;
    let add_one = module.load_function("add_one").expect("it was compiled");
    let mut numbers = DeviceBuffer::<u32>::unified(&device, 3000)?;
    assert_eq!(numbers.host()?, [0; 3000]);
    for turn in 0..20 {
        numbers.host_mut()?.iter_mut().for_each(|it| *it += turn);
        let expected = numbers.host()?[0] + 3;
        // SAFETY: the kernel writes the numbers of the buffer, in its stream.
        let (place, n) = (unsafe { numbers.as_device_ptr() }, 3000u32);
        for _ in 0..3 {
            let mut launch = device.stream().launch_builder(&add_one);
            // SAFETY: as above.
            unsafe { launch.arg(&place).arg(&n).launch(LaunchConfig::for_num_elems(n)) }
                .expect("it starts");
        }
        assert_eq!(numbers.host()?, [expected; 3000]);
        numbers.copy_from(&[expected + turn; 3000])?;
        assert_eq!(numbers.host()?, numbers.to_vec()?);
    }
    Ok(())
}

/// What buffers are in calls, the host has before and after, without a copy.
fn uses(ctx: &Ctx) -> Result<()> {
    let (device, me, n) = (ctx.device()?, ctx.rank(), ctx.size());
    for turn in 0..6 {
        // A segment is 1 KiB.
        for count in [0, 5, 3000] {
            let mut mine = DeviceBuffer::<u64>::unified(&device, count)?;
            mine.host_mut()?.fill((me + turn) as u64);
            let mut sum = DeviceBuffer::unified(&device, count)?;
            ctx.allreduce(&mine, &mut sum, Sum)?;
            assert_eq!(sum.host()?, vec![(n * (n - 1) / 2 + n * turn) as u64; count]);
            let mut all = device.zeros(n * count)?;
            ctx.allgather(&mine, &mut all)?;
            // It is in use.
            drop(mine);
            let block = |rank| vec![(rank + turn) as u64; count];
            assert_eq!(all.to_vec()?, (0..n).flat_map(block).collect::<Vec<_>>());
            sum.host_mut()?.fill(me as u64);
            ctx.broadcast(&mut sum, turn % n)?;
            assert_eq!(sum.host()?, vec![(turn % n) as u64; count]);
        }
        let mut flags = DeviceBuffer::<bool>::unified(&device, 100)?;
        flags.host_mut()?[me] = true;
        ctx.allreduce_in_place(&mut flags, LogicalOr)?;
        assert!(flags.host()?.iter().enumerate().all(|(at, flag)| *flag == (at < n)));
    }
    Ok(())
}

#[test]
fn calls_take_unified_buffers() -> Result<()> {
    if !unified() {
        return Ok(());
    }
    for block in [Spmd::new(3).threads(), Spmd::new(3).virtual_ranks()] {
        for plane in [Local::new(), Staged::new()] {
            block.clone().segment(1024).plane(plane).run(uses)?;
        }
    }
    Ok(())
}

#[test]
#[ignore = "run by the others"]
fn rank_with_unified_buffers() -> Result<()> {
    spmd::run_on_planes(&planes(), uses)?;
    println!("all is well");
    Ok(())
}

/// Processes that share a card, which cannot open this memory, and ranks with a card each.
#[test]
fn processes_take_unified_buffers() {
    if !stand_in() {
        return;
    }
    for (how, cards) in [("processes", "1"), ("gpus", "3")] {
        let ran = started(&["-n", "3", "--as", how], "rank_with_unified_buffers", cards);
        assert!(ran.code == Some(0) && ran.out.matches("all is well").count() == 3, "{ran:?}");
    }
}

#[test]
#[ignore = "run by the others"]
fn tells_of_unified_memory() -> Result<()> {
    let device = Device::open(0)?;
    if let Err(missing) = DeviceBuffer::<f32>::unified(&device, 10) {
        println!("{missing:?}: {missing}");
        return Ok(());
    }
    kernels_and_the_host_take_turns()?;
    calls_take_unified_buffers()?;
    println!("all is well");
    Ok(())
}

#[test]
fn what_a_device_shares_with_the_host_is_told() {
    if !stand_in() {
        return;
    }
    let ran = alone("tells_of_unified_memory", &[("SPMD_STANDIN_UNIFIED", "none")]);
    for text in ["NoUnifiedMemory { ordinal: 0 }", "use `device.zeros`, and copy"] {
        assert!(ran.code == Some(0) && ran.out.contains(text), "{ran:?}");
    }
    let ran = alone("tells_of_unified_memory", &[("SPMD_STANDIN_UNIFIED", "integrated")]);
    assert!(ran.code == Some(0) && ran.out.contains("all is well"), "{ran:?}");
}

#[test]
fn what_is_the_devices_alone_is_not_the_hosts() -> Result<(), GpuError> {
    if !gpu() {
        return Ok(());
    }
    let mut own = Device::open(0)?.zeros::<u8>(3)?;
    assert_eq!(own.host(), Err(GpuError::NotUnified));
    assert_eq!(own.host_mut(), Err(GpuError::NotUnified));
    Ok(())
}

/// Ranks copy from a buffer while the host reads it; it is dropped when the copies are not done yet.
/// No byte of it is zero.
#[derive(Clone, Copy, Debug, PartialEq, Element)]
#[repr(u8)]
enum Die {
    One = 1,
    Six = 6,
}

#[test]
fn of_what_zero_is_no_value_there_are_no_zeros() -> Result<(), GpuError> {
    if !gpu() {
        return Ok(());
    }
    let device = Device::open(0)?;
    assert!(matches!(device.zeros::<Die>(3), Err(GpuError::ZeroIsNoValue { .. })));
    assert!(device.zeros::<bool>(3)?.to_vec()? == [false; 3]);
    let dice = device.buffer_from(&[Die::One, Die::Six])?;
    assert_eq!(dice.to_vec()?, [Die::One, Die::Six]);
    let unified = DeviceBuffer::<Die>::unified(&device, 3);
    assert!(unified.is_err_and(|error| error.to_string().contains("zero is no value of ")));
    Ok(())
}

#[test]
fn a_unified_buffer_is_read_by_all_and_dropped() -> Result<()> {
    if !unified() {
        return Ok(());
    }
    for turn in 0..10u32 {
        let mut shared = DeviceBuffer::unified(&Device::open(0)?, 50_000)?;
        shared.host_mut()?.fill(turn);
        let copies = Spmd::new(3).threads().plane(Local::new()).run(|ctx| {
            let mut copy = ctx.device()?.zeros(50_000)?;
            for _ in 0..20 {
                copy.copy_from_buffer(&shared)?;
                assert_eq!(shared.host()?[turn as usize], turn);
                copy.copy_from_buffer(&shared)?;
            }
            Ok(copy)
        })?;
        drop(shared);
        for copy in copies {
            assert_eq!(copy.to_vec()?, vec![turn; 50_000]);
        }
    }
    Ok(())
}

/// Far more than is pinned at a time.
fn large(ctx: &Ctx) -> Result<()> {
    let (device, me, n) = (ctx.device()?, ctx.rank(), ctx.size());
    let count = (12 << 20) / size_of::<u64>() + 1;
    let mine = device.buffer_from(&vec![me as u64 + 1; count])?;
    let mut all = device.zeros(n * count)?;
    ctx.allgather(&mine, &mut all)?;
    for (rank, block) in all.to_vec()?.chunks(count).enumerate() {
        assert!(block.iter().all(|it| *it == rank as u64 + 1));
    }
    let mut sum = device.zeros(count)?;
    ctx.allreduce(&mine, &mut sum, Sum)?;
    assert!(sum.to_vec()?.iter().all(|it| *it == (n * (n + 1) / 2) as u64));
    ctx.broadcast(&mut sum.slice_mut(1..count), 0)?;
    Ok(())
}

#[test]
#[ignore = "run by the others"]
fn large_of_threads() -> Result<()> {
    Spmd::new(2).threads().plane(Staged::new()).run(large)?;
    println!("all is well");
    Ok(())
}

#[test]
#[ignore = "run by the others"]
fn rank_with_large_buffers() -> Result<()> {
    spmd::run_on_planes(&[Staged::new()], large)?;
    println!("all is well");
    Ok(())
}

/// Pieces have one length in all processes that MPI joins.
#[test]
fn large_calls_go_over_mpi() {
    if !stand_in() {
        return;
    }
    for mpi in support::Mpi::all().iter().filter(|mpi| mpi.name == "mpich") {
        let mut world = mpi.launch(2, 2, "threads");
        world.arg(std::env::current_exe().expect("a test knows its own path"));
        let ran = support::finish(world.arg("rank_with_large_buffers").args(NAMED));
        assert!(ran.code == Some(0) && ran.out.contains("all is well"), "{ran:?}");
    }
}

#[test]
fn large_calls_take_little_pinned_memory() {
    if stand_in() {
        let ran = alone("large_of_threads", &[("SPMD_STANDIN_PINNED", &(32 << 20).to_string())]);
        assert!(ran.code == Some(0) && ran.out.contains("all is well"), "{ran:?}");
    }
}

/// Two ranks, in pieces of 1 KiB.
fn in_pieces() -> Spmd {
    Spmd::new(2).threads().segment(64).timeout(Duration::from_secs(60)).plane(Staged::new())
}

/// What is told of a call in pieces is the call.
#[test]
fn mistakes_tell_of_the_whole_call() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let ended = in_pieces().run(|ctx| {
        let mut numbers = ctx.device()?.zeros::<i32>(100_000 + ctx.rank())?;
        ctx.allreduce_in_place(&mut numbers, Sum)
    });
    let error = ended.expect_err("they differ").to_string();
    for text in ["allreduce_in_place of 100000 i32", "100001 i32", "tests/gpu_memory/main.rs"] {
        assert!(error.contains(text), "{error}");
    }
    Ok(())
}

/// A rank ends while the ranks exchange a piece in the middle.
#[test]
fn a_rank_that_panics_between_pieces_stops_the_others() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let ended = in_pieces().run(|ctx| {
        let mut numbers: Vec<i32> = (0..10_000).collect();
        numbers.iter_mut().for_each(|it| *it *= 2);
        let mut numbers = ctx.device()?.buffer_from(&numbers)?;
        let sum = Op::new(|a: i32, b: i32| if a == 10_000 { panic!("enough") } else { a + b });
        ctx.allreduce_in_place(&mut numbers, sum)
    });
    let error = ended.expect_err("an operation panics").to_string();
    assert!(error.contains("enough"), "{error}");
    in_pieces().run(|ctx| {
        let mut one = ctx.device()?.buffer_from(&[1u32; 5000])?;
        ctx.allreduce_in_place(&mut one, Sum)?;
        assert_eq!(one.to_vec()?, [2; 5000]);
        Ok(())
    })?;
    Ok(())
}

/// A copy fails on one rank, which then does what it is told to.
#[test]
#[ignore = "run by the others"]
fn a_copy_fails() -> Result<()> {
    let how = std::env::var("SPMD_TEST_THEN").expect("it is set");
    static FOLDS: AtomicUsize = AtomicUsize::new(0);
    let ended = in_pieces().run(|ctx| {
        let mut numbers = ctx.device()?.buffer_from(&[1i32; 1000])?;
        let sum = Op::new(|a: i32, b: i32| {
            FOLDS.fetch_add(1, Relaxed);
            a + b
        });
        let result = ctx.allreduce_in_place(&mut numbers, sum);
        match (how.as_str(), &result) {
            ("barrier", Err(Error::User(_))) => ctx.barrier(),
            ("again", Err(Error::User(_))) => {
                ctx.allreduce_in_place(&mut ctx.device()?.zeros::<i32>(1000)?, sum)
            }
            _ => result,
        }
    });
    println!("{} folds: {}", FOLDS.load(Relaxed), ended.expect_err("a copy has failed"));
    Ok(())
}

#[test]
fn a_device_that_fails_between_pieces_stops_the_others() {
    if !stand_in() {
        return;
    }
    let said = |fails: &str, then: &str| {
        let changes = [("SPMD_STANDIN_FAIL", fails), ("SPMD_TEST_THEN", then)];
        let ran = alone("a_copy_fails", &changes);
        assert_eq!(ran.code, Some(0), "{fails} {then}: {ran:?}");
        ran.out
    };
    for (fails, text) in [
        ("cuMemcpyDtoHAsync_v2:6:1", "cuMemcpyDtoHAsync: invalid argument"),
        ("cuMemcpyHtoDAsync_v2:5:1", "cuMemcpyHtoDAsync: invalid argument"),
        ("cuMemcpyDtoHAsync_v2:5:719", "the device is lost"),
        ("cuEventSynchronize:4:700", "the device is lost"),
        ("cuEventRecord:9:1", "cuEventRecord: invalid argument"),
    ] {
        let said = said(fails, "ends");
        assert!(said.contains(text), "{fails}: {said}");
    }
    // Who goes on is told that the others do not.
    for then in ["barrier", "again"] {
        let said = said("cuMemcpyDtoHAsync_v2:6:1", then);
        assert!(said.contains("do not match"), "{then}: {said}");
    }
    // The next piece is on its way before the ranks exchange one.
    let said = said("cuMemcpyDtoHAsync_v2:3:1", "ends");
    assert!(said.contains("0 folds: "), "{said}");
}
