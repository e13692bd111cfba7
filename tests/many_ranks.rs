//! Worlds of very many ranks: what each costs does not grow with their number.

#![cfg(target_os = "linux")]

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use spmd::prelude::*;

mod support;

use support::finish;

/// How long a test may take. Each takes some seconds on two cores; what looks at all ranks once for
/// each of them takes hours.
const BOUND: Duration = Duration::from_secs(120);

/// The largest that this process has been, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc is there");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("the kernel tells");
    let kilobytes = line.split_whitespace().nth(1).and_then(|number| number.parse::<u64>().ok());
    kilobytes.expect("a number") * 1024
}

/// Runs the test of this name again in a process of its own, whose peak nothing else raises;
/// whether this is that process.
fn in_a_process_of_its_own(test: &str) -> bool {
    const CHILD: &str = "TEST_CHILD";
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    let mut command = Command::new(std::env::current_exe().expect("a test knows its path"));
    let ran = finish(command.args([test, "--exact", "--nocapture"]).env(CHILD, "1"));
    print!("{}", ran.out);
    assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
    false
}

#[test]
fn a_hundred_thousand_virtual_ranks() {
    const RANKS: usize = 100_000;
    if !in_a_process_of_its_own("a_hundred_thousand_virtual_ranks") {
        return;
    }
    // As many in all, a thousand at a time.
    let few = (0..100).map(|_| all_calls(RANKS / 100)).sum::<Duration>();
    let took = all_calls(RANKS);
    println!("{RANKS} virtual ranks: {took:?}, {} MiB; 100 times 1000: {few:?}", peak() >> 20);
    assert!(took < BOUND, "{took:?}");
    assert!(peak() < 4 << 30, "{} MiB", peak() >> 20);
    // It is below 3; what grows with the number of ranks would make it 100.
    assert!(took < 6 * few, "{took:?} instead of {few:?}");
}

/// How long a block of so many takes, with a barrier, a reduction and a message each.
fn all_calls(ranks: usize) -> Duration {
    let start = Instant::now();
    let sums = Spmd::new(ranks).virtual_ranks().run(|ctx| {
        let (me, n) = (ctx.rank(), ctx.size());
        ctx.barrier()?;
        let sum = ctx.allreduce_value(me as u64, Sum)?;
        ctx.send(&[me], (me + 1) % n, 0)?;
        assert_eq!(ctx.recv_vec::<usize>((me + n - 1) % n, 0)?.0, [(me + n - 1) % n]);
        Ok(sum)
    });
    let n = ranks as u64;
    assert!(sums.unwrap().iter().all(|sum| *sum == n * (n - 1) / 2));
    start.elapsed()
}

/// All wait for each other, and one of them finds it.
#[test]
fn a_cycle_of_many() {
    for any in [false, true] {
        let start = Instant::now();
        let ended = Spmd::new(10_000).virtual_ranks().run(|ctx| {
            let next = (ctx.rank() + 1) % ctx.size();
            match any {
                true => ctx.recv_vec::<u8>(ANY, 0),
                false => ctx.recv_vec::<u8>(next, 0),
            }
        });
        let text = ended.expect_err("nobody sends").to_string();
        assert!(text.starts_with("deadlock"), "{text}");
        assert!(start.elapsed() < BOUND, "{:?}", start.elapsed());
    }
}

/// One that fails ends all.
#[test]
fn a_failure_among_many() {
    let start = Instant::now();
    let ended = Spmd::new(10_000).virtual_ranks().run(|ctx| match ctx.rank() {
        5_000 => Err("there is no data".into()),
        _ => ctx.barrier(),
    });
    assert!(ended.expect_err("a rank fails").to_string().contains("there is no data"));
    assert!(start.elapsed() < BOUND, "{:?}", start.elapsed());
}

/// While some wait for the rest, each of so many threads must not look at all others.
#[test]
fn a_split_of_many_threads() {
    const RANKS: usize = 1500;
    let start = Instant::now();
    let sizes = Spmd::new(RANKS).threads().run(|ctx| {
        let half = ctx.split(Some(ctx.rank() as u32 % 2), 0)?.expect("every rank gives a color");
        if ctx.rank() == 0 {
            std::thread::sleep(Duration::from_secs(1));
        }
        half.barrier()?;
        ctx.barrier()?;
        Ok(half.size())
    });
    assert_eq!(sizes.unwrap(), [RANKS / 2; RANKS]);
    assert!(start.elapsed() < BOUND, "{:?}", start.elapsed());
}

/// Each has communicators of all of them, of half of them and of few, but no list of its own, and
/// does not look at all to make one, nor to use the place of one that is gone.
#[test]
fn communicators_of_very_many() {
    const RANKS: usize = 20_000;
    if !in_a_process_of_its_own("communicators_of_very_many") {
        return;
    }
    let start = Instant::now();
    let made = Spmd::new(RANKS).virtual_ranks().run(|ctx| {
        let me = ctx.rank() as u32;
        let mut sums = Vec::new();
        for _ in 0..3 {
            sums.push(ctx.dup()?.allreduce_value(1usize, Sum)?);
            let half = ctx.split(Some(me % 2), -(me as i32))?.expect("every rank gives a color");
            sums.push(half.allreduce_value(1usize, Sum)?);
            let few = ctx.split((me >= 100).then_some(me / 100), 0)?;
            sums.push(few.map_or(Ok(0), |few| few.allreduce_value(1usize, Sum))?);
        }
        let row = ctx.cartesian(&[RANKS / 100, 100], &[true, false])?.expect("a place for each");
        assert_eq!(row.coords(), [ctx.rank() / 100, ctx.rank() % 100]);
        Ok(sums)
    });
    println!("{RANKS} communicators: {:?}, {} MiB", start.elapsed(), peak() >> 20);
    for (rank, sums) in made.unwrap().into_iter().enumerate() {
        let few = if rank < 100 { 0 } else { 100 };
        assert_eq!(sums, [RANKS, RANKS / 2, few].repeat(3), "rank {rank}");
    }
    // A list of all for each would be 1.6 GB.
    assert!(peak() < 3 << 29, "{} MiB", peak() >> 20);
    assert!(start.elapsed() < BOUND, "{:?}", start.elapsed());
}

/// Each is in a communicator of ten, and waits now and then for all: who searches for cycles must
/// not look at all for each of thousands of communicators.
#[test]
fn a_split_into_thousands() {
    if !in_a_process_of_its_own("a_split_into_thousands") {
        return;
    }
    let start = Instant::now();
    let sums = Spmd::new(40_000).virtual_ranks().run(|ctx| {
        let mut sum = 0;
        for turn in 0..4 {
            let color = (ctx.rank() / 10 + turn) as u32;
            let ten = ctx.split(Some(color), 0)?.expect("every rank gives a color");
            sum += ten.allreduce_value(1usize, Sum)?;
        }
        Ok(sum)
    });
    println!("{:?}, {} MiB", start.elapsed(), peak() >> 20);
    assert!(sums.unwrap().iter().all(|sum| *sum == 40));
    assert!(start.elapsed() < BOUND, "{:?}", start.elapsed());
}

/// One fails while others have shown it large buffers, on a communicator of the program's own; the
/// rest agree on something, and go on.
#[test]
fn survivors_among_very_many() {
    const RANKS: usize = 20_000;
    if !in_a_process_of_its_own("survivors_among_very_many") {
        return;
    }
    let start = Instant::now();
    let gone_on = AtomicUsize::new(0);
    let ended = Spmd::new(RANKS).virtual_ranks().run(|ctx| {
        let comm = ctx.dup()?;
        let mut data = vec![1u8; 20_000];
        if ctx.rank() == 0 {
            // When all have the communicator.
            (1..RANKS).try_for_each(|_| ctx.recv(&mut [0u8], ANY, 0).map(drop))?;
            return Err("there is no data".into());
        }
        ctx.send(&[1u8], 0, 0)?;
        comm.allreduce_in_place(&mut data, Sum).expect_err("a rank has failed");
        assert!(comm.agree(1).is_err());
        let rest = comm.shrink()?;
        assert_eq!((rest.agree(1)?, rest.allreduce_value(1usize, Sum)?), (1, RANKS - 1));
        gone_on.fetch_add(1, Relaxed);
        Ok(())
    });
    println!("{RANKS} of which one fails: {:?}, {} MiB", start.elapsed(), peak() >> 20);
    assert!(ended.expect_err("a rank fails").to_string().contains("there is no data"));
    assert_eq!(gone_on.into_inner(), RANKS - 1);
    // A proposal of each for each would be 60 GB.
    assert!(peak() < 2 << 30, "{} MiB", peak() >> 20);
    assert!(start.elapsed() < BOUND, "{:?}", start.elapsed());
}

/// Half of all fail; the others go on without them.
#[test]
fn half_of_very_many_fail() {
    const RANKS: usize = 20_000;
    if !in_a_process_of_its_own("half_of_very_many_fail") {
        return;
    }
    let start = Instant::now();
    let gone_on = AtomicUsize::new(0);
    let ended = Spmd::new(RANKS).virtual_ranks().run(|ctx| {
        let ten = ctx.split(Some((ctx.rank() / 10) as u32), 0)?.expect("every rank gives a color");
        ctx.barrier()?;
        if ctx.rank() % 2 == 0 {
            return Err("there is no data".into());
        }
        ctx.barrier().expect_err("ranks have failed");
        let rest = ctx.shrink()?;
        assert_eq!(rest.allreduce_value(1usize, Sum)?, RANKS / 2);
        assert_eq!(ten.shrink()?.allreduce_value(1usize, Sum)?, 5);
        gone_on.fetch_add(1, Relaxed);
        Ok(())
    });
    println!("{RANKS} of which half fail: {:?}, {} MiB", start.elapsed(), peak() >> 20);
    assert!(ended.expect_err("ranks fail").to_string().contains("there is no data"));
    assert_eq!(gone_on.into_inner(), RANKS / 2);
    assert!(start.elapsed() < BOUND, "{:?}", start.elapsed());
}

/// Of data that are too large for areas each rank would have a few bytes to fold of all others.
#[test]
fn large_reductions_of_very_many() {
    const RANKS: usize = 8_000;
    if !in_a_process_of_its_own("large_reductions_of_very_many") {
        return;
    }
    let start = Instant::now();
    let ended = Spmd::new(RANKS).virtual_ranks().run(|ctx| {
        let values: Vec<u32> = (0..1250).map(|index| index + ctx.rank() as u32).collect();
        let folded =
            |ranks: usize| (0..1250).map(move |i| (ranks * i + ranks * (ranks - 1) / 2) as u32);
        let mut all = vec![0; values.len()];
        ctx.allreduce(&values, &mut all, Sum)?;
        assert!(all.iter().copied().eq(folded(RANKS)));
        ctx.scan(&values, &mut all, Sum)?;
        assert!(all.iter().copied().eq(folded(ctx.rank() + 1)));
        ctx.reduce(&values, &mut all, Sum, 7)?;
        assert!(ctx.rank() != 7 || all.iter().copied().eq(folded(RANKS)));
        Ok(())
    });
    println!("{RANKS} that reduce: {:?}, {} MiB", start.elapsed(), peak() >> 20);
    ended.unwrap();
    assert!(start.elapsed() < BOUND, "{:?}", start.elapsed());
}
