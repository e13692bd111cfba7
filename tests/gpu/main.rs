//! Device buffers: what a device gives is what the host gives, to the last bit. Without a device the
//! tests say that they are skipped; `SPMD_REQUIRE_GPU=1` makes that a failure.

mod buffers;
#[path = "../support/card.rs"]
mod card;
mod cards;
mod mistakes;
#[path = "../support/on_device.rs"]
mod on_device;
mod order;
#[path = "../support/mod.rs"]
mod support;

use card::{gpu, on_one_card, stand_in};
use spmd::prelude::*;
use spmd_gpu::{Device, Local, OnDevice, Staged, probe};
use spmd_matrix::{cases_by_way_of_the_host, cases_on_device, full};

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
    if !gpu() || !stand_in() {
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
        block.clone().segment(1024).run(|ctx| cases_by_way_of_the_host(ctx, ctx.size() == 3))?;
        // In pieces of 1 KiB.
        block.segment(64).run(|ctx| cases_on_device(ctx, false))?;
    }
    for ranks in [1, 2, 3, 4, 8].into_iter().filter(|_| full()) {
        for block in [Spmd::new(ranks).threads(), Spmd::new(ranks).virtual_ranks()] {
            let block = block.plane(Staged::new()).segment(1024);
            block.run(|ctx| cases_by_way_of_the_host(ctx, true))?;
        }
    }
    Ok(())
}

/// As many ranks as a kernel takes, and some less: sums of which no two orders give the same bits.
#[test]
fn folds_of_many_ranks() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    // Of numbers `a`, `b` each is the function `a x + b`, and they follow each other: not in any other order.
    let after = Op::new(|left: u64, right: u64| {
        let [(a, b), (c, d)] = [left, right].map(|it| ((it >> 32) as u32, it as u32));
        u64::from(a.wrapping_mul(c)) << 32 | u64::from(b.wrapping_mul(c).wrapping_add(d))
    });
    let body = "unsigned a = left >> 32, b = left, c = right >> 32, d = right;
        return (u64)(a * c) << 32 | (b * c + d);";
    // SAFETY: it computes the same, and touches no memory.
    let after = unsafe { after.non_commutative().on_device(body) };
    for ranks in [64, 37] {
        Spmd::new(ranks).virtual_ranks().plane(Local::new()).run(|ctx| {
            let own = |at: usize| 1.0 / (1 + at + 7 * ctx.rank()) as f32;
            let own: Vec<f32> = (0..1001).map(own).collect();
            let mine = ctx.device()?.buffer_from(&own)?;
            let mut got = ctx.device()?.buffer_from(&own)?;
            let mut expected = own.clone();
            ctx.scan(&own, &mut expected, Sum)?;
            ctx.scan_in_place(&mut got, Sum)?;
            assert_eq!(bits(&got.to_vec()?), bits(&expected));
            ctx.exscan(&own, &mut expected, Sum)?;
            ctx.exscan(&mine, &mut got, Sum)?;
            assert_eq!(bits(&got.to_vec()?), bits(&expected));
            ctx.allreduce(&own, &mut expected, Sum)?;
            ctx.allreduce(&mine, &mut got, Sum)?;
            assert_eq!(bits(&got.to_vec()?), bits(&expected));
            let mut numbers: Vec<u64> =
                (1..1000).map(|at| (2 * at + 1) << 32 | (at + ctx.rank() as u64)).collect();
            let mut got = ctx.device()?.buffer_from(&numbers)?;
            ctx.scan_in_place(&mut numbers, after)?;
            ctx.scan_in_place(&mut got, after)?;
            assert_eq!(got.to_vec()?, numbers);
            Ok(())
        })?;
    }
    Ok(())
}

fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|it| it.to_bits()).collect()
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
            spmd_reduce(&mut digits, append)?;
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
        on_device::go_on(ctx)?;
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
    let numbers = if full() { vec![1, 2, 3, 4, 8] } else { vec![3] };
    for ranks in numbers {
        let (status, said) = on_one_card("process_rank", ranks, &[]);
        let right = |rank| said.contains(&format!("rank {rank} of {ranks} is right"));
        assert!(status == Some(0) && (0..ranks).all(right), "{status:?}: {said}");
    }
}
