//! Device buffers: what a device gives is what the host gives, to the last bit. Without a device the
//! tests say that they are skipped; `SPMD_REQUIRE_GPU=1` makes that a failure.

#[path = "support/card.rs"]
mod card;
mod support;

use card::{gpu, on_one_card};
use spmd::prelude::*;
use spmd_gpu::{Device, DeviceBuffer, GpuError, Local, OnDevice, Staged, probe};
use spmd_matrix::cases_on_device;

fn everywhere(ranks: usize) -> [Spmd; 2] {
    let blocks = [Spmd::new(ranks).threads(), Spmd::new(ranks).virtual_ranks()];
    blocks.map(|block| block.plane(Local::new()).segment(1024))
}

#[test]
fn what_is_missing_is_said() {
    let here = probe();
    println!("{here}");
    if let Err(missing) = here.ready() {
        let text = missing.to_string();
        assert!(text.contains("install") || text.contains("CUDA_VISIBLE_DEVICES"), "{text}");
        assert!(Device::open(0).is_err() || here.nvrtc.is_err());
    }
}

/// Kernels are compiled for each type, operation and number of ranks, which takes most of the time:
/// numbers of ranks of their own, which run beside each other.
macro_rules! conformance {
    ($($name:ident: $ranks:literal ranks;)*) => {$(
        #[test]
        fn $name() -> Result<()> {
            if !gpu() {
                return Ok(());
            }
            // On the stand-in, a kernel takes a C++ compiler's time.
            let all_types = $ranks == 3 || !Device::open(0)?.name()?.contains("stand-in");
            let [threads, virtual_ranks] = everywhere($ranks);
            threads.run(|ctx| cases_on_device(ctx, all_types))?;
            virtual_ranks.run(|ctx| cases_on_device(ctx, all_types))?;
            Ok(())
        }
    )*};
}

conformance! {
    alone: 1 ranks;
    two: 2 ranks;
    three: 3 ranks;
    four: 4 ranks;
    seven: 7 ranks;
    eight: 8 ranks;
}

/// Four ranks on three cards of one process.
#[test]
fn on_cards_that_reach_each_other() {
    if !gpu() || !Device::open(0).and_then(|it| it.name()).is_ok_and(|it| it.contains("stand-in")) {
        return;
    }
    let own = std::env::current_exe().expect("a test knows its own path");
    let mut job = std::process::Command::new(own);
    job.args(["four", "--exact"]).env("SPMD_STANDIN_CARDS", "3");
    let ran = support::finish(&mut job);
    assert!(ran.code == Some(0) && ran.out.contains("1 passed"), "{ran:?}");
}

/// What the host does is what the device is told.
#[test]
fn by_way_of_the_host() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    for block in [Spmd::new(3).threads(), Spmd::new(5).virtual_ranks()] {
        let block = block.plane(Staged::new());
        block.clone().segment(1024).run(|ctx| cases_on_device(ctx, ctx.size() == 3))?;
        // In pieces of 1 KiB.
        block.segment(64).run(|ctx| cases_on_device(ctx, false))?;
    }
    Ok(())
}

/// Neighbours in a grid, also at its ends.
#[test]
fn neighbors_take_device_buffers() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    for block in everywhere(3) {
        block.plane(Staged::new()).run(|ctx| {
            let line = ctx.cartesian(&[3], &[false])?.expect("it has a place for all");
            let (device, me) = (ctx.device()?, line.rank() as i32);
            let mine = device.buffer_from(&[10 * me, 10 * me + 1])?;
            let mut around = device.buffer_from(&[-1; 4])?;
            line.neighbor_allgather(&mine, &mut around)?;
            let expected = [[-1, -1, 10, 11], [0, 1, 20, 21], [10, 11, -1, -1]];
            assert_eq!(around.to_vec()?, expected[ctx.rank()]);
            let mut from = device.buffer_from(&[-1; 2])?;
            line.neighbor_alltoall(&mine, &mut from)?;
            // Each has its second number for the one after it.
            assert_eq!(from.to_vec()?, [[-1, 10], [1, 20], [11, -1]][ctx.rank()]);
            Ok(())
        })?;
    }
    Ok(())
}

/// The first plane leaves what it cannot do to the second.
#[test]
fn a_plane_by_way_of_the_host_does_what_another_leaves() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    for block in everywhere(3) {
        block.plane(Staged::new()).run(|ctx| {
            let (device, me) = (ctx.device()?, ctx.rank() as i32);
            let mut digits = device.buffer_from(&[me + 1, me + 4])?;
            let append = Op::new(|a: i32, b: i32| 10 * a + b).non_commutative();
            ctx.scan_in_place(&mut digits, append)?;
            let expected = [[1, 4], [12, 45], [123, 456]][ctx.rank()];
            assert_eq!(digits.to_vec()?, expected);
            ctx.allreduce_in_place(&mut digits, Max)?;
            assert_eq!(digits.to_vec()?, [123, 456]);
            Ok(())
        })?;
    }
    Ok(())
}

/// An operation of the program's own, on devices as on the host, in order.
#[test]
fn operations_with_a_body_for_devices() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    for block in everywhere(3) {
        block.run(|ctx| {
            let (device, me) = (ctx.device()?, ctx.rank() as i64);
            let append = Op::new(|a: i64, b: i64| 10 * a + b).non_commutative();
            // SAFETY: it computes the same, and touches no memory.
            let append = unsafe { append.on_device("return 10 * left + right;") };
            let mut digits = device.buffer_from(&vec![me + 1; 1001])?;
            ctx.allreduce_in_place(&mut digits, append)?;
            assert_eq!(digits.to_vec()?, [123; 1001]);
            let mut digits = device.buffer_from(&[me + 1, me + 4])?;
            ctx.scan_in_place(&mut digits, append)?;
            assert_eq!(digits.to_vec()?, [[1, 4], [12, 45], [123, 456]][ctx.rank()]);
            Ok(())
        })?;
        let wrong = everywhere(2)[0].clone().run(|ctx| {
            let sum = Op::new(|a: f32, b: f32| a + b);
            // SAFETY: it does not compile.
            let sum = unsafe { sum.on_device("return left +;") };
            ctx.allreduce_in_place(&mut ctx.device()?.zeros::<f32>(3)?, sum)
        });
        let error = wrong.expect_err("it does not compile").to_string();
        assert!(error.contains("does not compile for sm_"), "{error}");
    }
    Ok(())
}

#[test]
#[ignore = "run by process_ranks, as one of them"]
fn process_rank() -> Result<()> {
    // The first one opens the others' memory.
    spmd::run_on_planes(&[Local::new()], |ctx| {
        let (device, me, n) = (ctx.device()?, ctx.rank(), ctx.size());
        for turn in 0..20 {
            let count = 1000 + 1000 * turn;
            let mine = device.buffer_from(&vec![(me + turn) as u64; count])?;
            let mut sum = device.zeros::<u64>(count)?;
            ctx.allreduce(&mine, &mut sum, Sum)?;
            drop(mine);
            assert_eq!(sum.to_vec()?, vec![(n * (n - 1) / 2 + n * turn) as u64; count]);
            let mut all = device.zeros::<u64>(n * count)?;
            ctx.allgather(&sum.slice(0..count), &mut all)?;
            assert_eq!(all.to_vec()?, vec![(n * (n - 1) / 2 + n * turn) as u64; n * count]);
        }
        let small = ctx.allreduce_in_place(&mut device.zeros::<u64>(3)?, Sum);
        let told = small.is_err_and(|it| it.to_string().contains("of ranks that are processes"));
        assert!(told || n == 1);
        Ok(())
    })?;
    spmd::run_on_planes(&[Local::new(), Staged::new()], |ctx| {
        cases_on_device(ctx, false)?;
        println!("rank {} of {} is right", ctx.rank(), ctx.size());
        Ok(())
    })
    .map(drop)
}

#[test]
fn process_ranks() {
    if !gpu() {
        return;
    }
    let numbers = if spmd_matrix::full() { vec![1, 2, 3, 4, 8] } else { vec![3] };
    for ranks in numbers {
        let (status, said) = on_one_card("process_rank", ranks, &[]);
        let right = |rank| said.contains(&format!("rank {rank} of {ranks} is right"));
        assert!(status == Some(0) && (0..ranks).all(right), "{status:?}: {said}");
    }
}

#[test]
#[ignore = "run by ranks_with_gpus_of_their_own, as one of them"]
fn rank_with_a_gpu() -> Result<()> {
    spmd::run_on_planes(&[Staged::new()], |ctx| {
        let (device, shown) = (ctx.device()?, std::env::var("CUDA_VISIBLE_DEVICES"));
        let mut sum = device.buffer_from(&[ctx.rank(); 1000])?;
        ctx.allreduce_in_place(&mut sum, Sum)?;
        assert_eq!(sum.to_vec()?, [ctx.size() * (ctx.size() - 1) / 2; 1000]);
        let shown = shown.map_err(|error| error.to_string())?;
        println!("rank {} has {} of {}: {shown}", ctx.rank(), device.name()?, Device::count()?);
        Ok(())
    })
    .map(drop)
}

/// On a machine of several cards, which the stand-in is.
#[test]
fn ranks_with_gpus_of_their_own() {
    if !gpu() || !Device::open(0).and_then(|it| it.name()).is_ok_and(|it| it.contains("stand-in")) {
        return;
    }
    let run = |options: &[&str]| {
        let mut job = support::spmdrun(options);
        job.arg(std::env::current_exe().expect("a test knows its own path"));
        job.args(["rank_with_a_gpu", "--exact", "--include-ignored", "--nocapture", "--quiet"]);
        support::finish(job.env("SPMD_STANDIN_CARDS", "3"))
    };
    let card = |rank: usize, card: usize| {
        let uuid = format!("GPU-00000000-0000-0000-0000-0000000000{card:02x}");
        format!("rank {rank} has stand-in card {card} (no GPU) of 1: {uuid}")
    };
    // As many ranks as there are cards; those that were named; some a card.
    let cases: [(&[&str], &[usize]); 3] = [
        (&["--as", "gpus"], &[0, 1, 2]),
        (&["--as", "gpus", "--gpus", "0,2"], &[0, 2]),
        (&["--as", "gpus", "--ranks-per-gpu", "2", "-n", "5"], &[0, 0, 1, 1, 2]),
    ];
    for (options, cards) in cases {
        let ran = run(options);
        let all = cards.iter().enumerate().all(|(rank, at)| ran.out.contains(&card(rank, *at)));
        assert!(ran.code == Some(0) && all, "{options:?}: {ran:?}");
        assert_eq!(ran.out.matches(" has stand-in").count(), cards.len(), "{options:?}: {ran:?}");
    }
    let few = run(&["--as", "gpus", "-n", "4"]);
    assert_eq!(few.code, Some(2), "{few:?}");
    assert!(few.err.contains("4 ranks need 4 GPUs, and there are 3"), "{few:?}");
    assert!(few.err.contains("--ranks-per-gpu 2"), "{few:?}");
    let none = run(&["--as", "gpus", "--gpus", "3"]);
    assert!(none.code == Some(2) && none.err.contains("0 to 2"), "{none:?}");
    let doctor = support::finish(support::spmdrun(&["--doctor"]).env("SPMD_STANDIN_CARDS", "2"));
    for text in ["CUDA driver", "NVRTC", "NCCL", "0: stand-in card 0", "1: stand-in card 1"] {
        assert!(doctor.out.contains(text), "{text}: {doctor:?}");
    }
    let none = support::finish(support::spmdrun(&["--doctor"]).env("SPMD_STANDIN_CARDS", "0"));
    assert!(none.out.contains("there is no device 0: the driver shows 0"), "{none:?}");
}

#[test]
fn buffers_are_copied_and_checked() -> Result<(), GpuError> {
    if !gpu() {
        return Ok(());
    }
    let device = Device::open(0)?;
    let data: Vec<u16> = (0..5000).collect();
    let mut buffer = device.buffer_from(&data)?;
    assert_eq!((buffer.to_vec()?, buffer.len(), buffer.is_empty()), (data.clone(), 5000, false));
    buffer.copy_from(&data.iter().rev().copied().collect::<Vec<_>>())?;
    let mut back = vec![0; 5000];
    buffer.copy_to(&mut back)?;
    assert!(back.into_iter().rev().eq(data));
    assert_eq!(device.zeros::<f64>(3)?.to_vec()?, [0.0; 3]);
    assert_eq!(device.buffer_from::<i8>(&[])?.to_vec()?, []);
    let short = buffer.copy_to(&mut [0; 3]).unwrap_err();
    assert_eq!(short, GpuError::Length { given: 3, expected: 5000 });
    assert_eq!(buffer.copy_from(&[0; 5001]), Err(GpuError::Length { given: 5001, expected: 5000 }));
    let (_, all) = device.memory()?;
    match device.zeros::<u8>(2 * all) {
        Err(GpuError::OutOfDeviceMemory { asked, free }) => assert!(asked == 2 * all && free < all),
        other => panic!("{other:?}"),
    }
    Ok(())
}

/// A buffer that is dropped right after a call is used to the end.
#[test]
fn what_is_dropped_after_a_call_has_been_used() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    for block in everywhere(4) {
        let sums = block.run(|ctx| {
            let device = ctx.device()?;
            // A card that is none is slow, and has little.
            let count = (device.memory()?.1 >> 17).min(1 << 20);
            let mut sums = Vec::new();
            for turn in 0..50 {
                let mine = device.buffer_from(&vec![(ctx.rank() + turn) as u64; count])?;
                let mut sum = device.zeros::<u64>(count)?;
                ctx.allreduce(&mine, &mut sum, Sum)?;
                drop(mine);
                let other = device.buffer_from(&vec![u64::MAX; count])?;
                let got = sum.to_vec()?;
                sums.push((got[0], got[count - 1]));
                drop(other);
            }
            Ok(sums)
        })?;
        let expected: Vec<_> = (0..50).map(|turn| (6 + 4 * turn, 6 + 4 * turn)).collect();
        assert!(sums.into_iter().all(|it| it == expected));
    }
    Ok(())
}

/// A buffer that another rank goes on with, on its own stream.
#[test]
fn a_buffer_goes_from_rank_to_rank() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let shelf = std::sync::Mutex::new(None::<DeviceBuffer<u32>>);
    Spmd::new(3).threads().plane(Local::new()).run(|ctx| {
        for turn in 0..30 {
            if turn % ctx.size() == ctx.rank() {
                let device = ctx.device()?;
                let mut buffer = match shelf.lock().unwrap().take() {
                    Some(buffer) => buffer,
                    None => device.zeros(100_000)?,
                };
                assert_eq!(buffer.to_vec()?, vec![turn as u32; 100_000]);
                buffer.copy_from(&vec![turn as u32 + 1; 100_000])?;
                *shelf.lock().unwrap() = Some(buffer);
            }
            ctx.barrier()?;
        }
        Ok(())
    })?;
    Ok(())
}

/// Ranks read one buffer at a time, each on its own stream; then it is written and dropped.
#[test]
fn ranks_share_a_buffer_that_they_read() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    for block in everywhere(3) {
        for turn in 0..20u64 {
            let mut shared = Device::open(0)?.buffer_from(&vec![turn; 5000])?;
            for _ in 0..3 {
                let expected = 3 * shared.to_vec()?[0];
                let sums = block.clone().run(|ctx| {
                    let mut sum = ctx.device()?.zeros(5000)?;
                    ctx.allreduce(&shared, &mut sum, Sum)?;
                    Ok(sum)
                })?;
                shared.copy_from(&[99; 5000])?;
                for sum in &sums {
                    assert_eq!(sum.to_vec()?, [expected; 5000]);
                }
            }
        }
    }
    Ok(())
}

/// Each rank copies from one buffer, some of them late; then it is written, and waits for all.
#[test]
fn who_writes_a_buffer_waits_for_all_that_read_it() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    for block in everywhere(3) {
        for turn in 0..20u64 {
            let mut shared = Device::open(0)?.buffer_from(&vec![turn; 5000])?;
            let copies = block.clone().run(|ctx| {
                let mut copy = ctx.device()?.zeros(5000)?;
                let late = (ctx.rank() + turn as usize) % 3;
                (0..1 + 8 * late).try_for_each(|_| copy.copy_from_buffer(&shared))?;
                Ok(copy)
            })?;
            shared.copy_from(&[99; 5000])?;
            for copy in &copies {
                assert_eq!(copy.to_vec()?, [turn; 5000]);
            }
        }
    }
    Ok(())
}

/// Parts of buffers are buffers, and one may be read while another one is written.
#[test]
fn parts_of_buffers_are_buffers() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    for block in everywhere(3) {
        block.run(|ctx| {
            let device = ctx.device()?;
            let mut buffer = device.buffer_from(&(0..10u16).collect::<Vec<_>>())?;
            let (first, rest) = buffer.split_at_mut(4);
            assert_eq!((first.len(), rest.len(), first.is_empty()), (4, 6, false));
            ctx.allreduce(&first.slice(1..4), &mut rest.split_at_mut(3).1, Sum)?;
            assert_eq!(buffer.to_vec()?, [0, 1, 2, 3, 4, 5, 6, 3, 6, 9]);
            ctx.broadcast(&mut buffer.slice_mut(2..5), 1)?;
            for range in [8..11, 11..11] {
                let part = || buffer.slice(range.clone()).len();
                assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(part)).is_err());
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Messages between buffers of the device, the host's, and longer ones.
#[test]
fn messages_take_device_buffers() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let blocks = [Spmd::new(3).threads(), Spmd::new(3).virtual_ranks()];
    for block in blocks {
        block.segment(1024).run(|ctx| {
            let (device, me) = (ctx.device()?, ctx.rank() as u32);
            let (left, right) = ((ctx.rank() + 2) % 3, (ctx.rank() + 1) % 3);
            for count in [0, 1, 100, 3000, 100_000] {
                let mine = device.buffer_from(&vec![me; count])?;
                let mut room = device.buffer_from(&vec![9; count + 2])?;
                let status = ctx.sendrecv(&mine, right, 1, &mut room, left, 1)?;
                assert_eq!((status.len(), status.source()), (count, left));
                let came = room.to_vec()?;
                assert_eq!(
                    (&came[..count], &came[count..]),
                    (&vec![left as u32; count][..], &[9, 9][..])
                );
                // Each sends before it receives, unless that is large.
                match ctx.rank() {
                    0 => ctx.send(&mine, 1, 2)?,
                    1 => {
                        ctx.recv(&mut room, 0, 2)?;
                        assert_eq!(room.to_vec()?[..count], vec![0; count]);
                        ctx.ssend(&room, 2, 3)?;
                    }
                    _ => {
                        let message = ctx.mprobe(1, 3)?;
                        assert_eq!(
                            message.recv(&mut device.zeros::<u32>(count + 2)?)?.len(),
                            count + 2
                        );
                    }
                }
                // From a device to the host, and back.
                ctx.send(&vec![me + 7; 5], ctx.rank(), 4)?;
                let mut five = device.zeros::<u32>(5)?;
                ctx.recv(&mut five, ctx.rank(), 4)?;
                ctx.send(&five, ctx.rank(), 4)?;
                assert_eq!(ctx.recv_vec::<u32>(ctx.rank(), 4)?.0, [me + 7; 5]);
            }
            let mut short = device.zeros::<u32>(3)?;
            ctx.send(&device.zeros::<u32>(4)?, ctx.rank(), 5)?;
            let error = ctx.recv(&mut short, ctx.rank(), 5).expect_err("it is too long");
            assert!(error.to_string().contains("gpu.rs"), "{error}");
            ctx.send(&device.buffer_from(&[true])?, ctx.rank(), 6)?;
            assert!(ctx.recv(&mut short, ctx.rank(), 6).is_err());
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
fn mistakes_on_device_buffers_are_reported() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let refused = |block: Spmd, f: fn(&Ctx) -> Result<()>, texts: &[&str]| {
        let error = block.run(f).expect_err("they do not fit together").to_string();
        assert!(texts.iter().all(|text| error.contains(text)), "{error}");
    };
    for block in everywhere(3) {
        let other_count = |ctx: &Ctx| {
            let mut buffer = ctx.device()?.zeros::<f32>(10 + ctx.rank() / 2)?;
            ctx.allreduce_in_place(&mut buffer, Sum)
        };
        refused(block.clone(), other_count, &["do not match", "tests/gpu.rs"]);
        let other_root = |ctx: &Ctx| {
            let mut buffer = ctx.device()?.zeros::<f32>(10)?;
            ctx.broadcast(&mut buffer, ctx.rank() / 2)
        };
        refused(block.clone(), other_root, &["do not match", "tests/gpu.rs"]);
        let other_place = |ctx: &Ctx| match ctx.rank() {
            1 => ctx.allreduce_in_place(&mut [1.0f32; 10], Sum),
            _ => ctx.allreduce_in_place(&mut ctx.device()?.zeros::<f32>(10)?, Sum),
        };
        refused(block.clone(), other_place, &["do not match", "tests/gpu.rs"]);
        let both_places =
            |ctx: &Ctx| ctx.allreduce(&[1.0f32; 10], &mut ctx.device()?.zeros::<f32>(10)?, Sum);
        let told = "the send buffer is on the host, the receive buffer on device 0";
        refused(block.clone(), both_places, &[told, "tests/gpu.rs"]);
        let own_operation = |ctx: &Ctx| {
            let mut buffer = ctx.device()?.zeros::<f32>(10)?;
            ctx.allreduce_in_place(&mut buffer, Op::new(|a: f32, b: f32| a - b))
        };
        refused(block.clone(), own_operation, &["the device that its memory is on"]);
        let blocks = |ctx: &Ctx| {
            let device = ctx.device()?;
            let mut all = device.zeros::<u8>(9)?;
            ctx.gatherv(&device.zeros::<u8>(3 - ctx.rank() / 2)?, &mut all, &[3, 3, 3], 0)
        };
        refused(block, blocks, &["different counts: rank 2", "tests/gpu.rs"]);
    }
    Ok(())
}

/// A rank that leaves in the middle stops the others, and what they share stays usable.
#[test]
fn a_rank_that_fails_stops_the_others() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    for block in everywhere(4) {
        let ended = block.clone().run(|ctx| {
            let device = ctx.device()?;
            for turn in 0..100 {
                if (turn, ctx.rank()) == (50, 2) {
                    return Err("enough".into());
                }
                let mine = device.buffer_from(&vec![1u32; 1 << 16])?;
                let mut sum = device.zeros::<u32>(1 << 16)?;
                ctx.allreduce(&mine, &mut sum, Sum)?;
            }
            Ok(())
        });
        assert_eq!(ended.unwrap_err().to_string(), "enough");
        block.run(|ctx| {
            let mut one = ctx.device()?.buffer_from(&[1u32])?;
            ctx.allreduce_in_place(&mut one, Sum)?;
            assert_eq!(one.to_vec()?, [4]);
            Ok(())
        })?;
    }
    Ok(())
}

/// What a progress thread carries out comes after what its rank has put into its stream, and before
/// what that puts there later.
#[test]
fn a_progress_thread_keeps_the_order() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    for plane in [Local::new(), Staged::new()] {
        let block = Spmd::new(3).threads().progress(spmd::Progress::Thread).plane(plane);
        block.run(|ctx| {
            let (device, me) = (ctx.device()?, ctx.rank() as i64);
            let mut call = ctx.allreduce_init(device.zeros(5000)?, device.zeros(5000)?, Sum)?;
            for turn in 0..20 {
                let fresh = device.buffer_from(&[me + turn; 5000])?;
                let mut mine = device.zeros(5000)?;
                (0..9).try_for_each(|_| mine.copy_from_buffer(&fresh))?;
                let (_, mut sums) = ctx.allreduce_start(mine, device.zeros(5000)?, Sum)?.wait()?;
                ctx.allreduce_in_place(&mut sums, Max)?;
                assert_eq!(sums.to_vec()?, [3 + 3 * turn; 5000]);
                (0..9).try_for_each(|_| {
                    call.send_mut()?.copy_from_buffer(&fresh).map_err(Error::from)
                })?;
                call.start()?;
                call.wait()?;
                let mut copy = device.zeros(5000)?;
                copy.copy_from_buffer(call.recv()?)?;
                assert_eq!(copy.to_vec()?, [3 + 3 * turn; 5000]);
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Started and persistent calls are the calls of host buffers.
#[test]
fn calls_that_go_on_take_device_buffers() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    for block in everywhere(3) {
        block.run(|ctx| {
            let (device, me) = (ctx.device()?, ctx.rank() as i64);
            let mut calls = Vec::new();
            for turn in 0..8 {
                let mine = device.buffer_from(&vec![me + turn; 1000])?;
                calls.push(ctx.allreduce_start(mine, device.zeros(1000)?, Sum)?);
            }
            for (turn, call) in calls.into_iter().enumerate() {
                let (mine, sums) = call.wait()?;
                assert_eq!(mine.to_vec()?, vec![me + turn as i64; 1000]);
                assert_eq!(sums.to_vec()?, vec![3 + 3 * turn as i64; 1000]);
            }
            let mut call = ctx.allreduce_init(device.zeros(10)?, device.zeros(10)?, Max)?;
            for turn in 0..5 {
                call.send_mut()?.copy_from(&[me * turn; 10])?;
                call.start()?;
                call.wait()?;
                assert_eq!(call.recv()?.to_vec()?, [2 * turn; 10]);
            }
            let (own, mut all) = (device.buffer_from(&[me; 4])?, device.zeros(12)?);
            ctx.requests(|requests| {
                requests.allgather(&own, &mut all)?;
                Ok(())
            })?;
            assert_eq!(all.to_vec()?, [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]);
            assert_eq!(ctx.broadcast_start(own, 1)?.wait()?.to_vec()?, [1; 4]);
            Ok(())
        })?;
    }
    Ok(())
}
