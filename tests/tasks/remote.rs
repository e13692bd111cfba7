//! Tasks that ranks spawn on other ranks.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::thread::sleep;
use std::time::Duration;

use spmd::prelude::*;
use spmd::tasks::{is_cancelled, remote, spawn, spawn_on};

use crate::support::World;

fn add(a: u64, b: u64) -> Result<u64> {
    Ok(a + b)
}

fn nothing() -> Result<()> {
    Ok(())
}

fn lengths(texts: Vec<String>, more: (Option<f64>, Vec<u8>)) -> Result<Vec<usize>> {
    Ok(texts.iter().map(String::len).chain([more.1.len()]).collect())
}

fn reversed(mut bytes: Vec<u8>) -> Result<Vec<u8>> {
    bytes.reverse();
    Ok(bytes)
}

fn refuses(what: String) -> Result<()> {
    Err(what.into())
}

fn panics(what: String) -> Result<()> {
    panic!("{what}")
}

fn process() -> Result<u32> {
    Ok(std::process::id())
}

fn slow_process() -> Result<u32> {
    sleep(Duration::from_millis(5));
    process()
}

/// Sums a range by tasks of its own, here and on the next rank.
fn tree(rank: usize, size: usize, from: u64, to: u64) -> Result<u64> {
    if to - from < 8 {
        return Ok((from..to).sum());
    }
    let (middle, next) = (u64::midpoint(from, to), (rank + 1) % size);
    let right = spawn_on(next, tree, (next, size, middle, to));
    let left = spawn(move || tree(rank, size, from, middle));
    Ok(left.take()? + right.take()?)
}

static LATE: AtomicUsize = AtomicUsize::new(0);

/// Leaves a task behind, for which whoever waits for this waits as well.
fn leaves_a_task() -> Result<()> {
    drop(spawn(|| {
        sleep(Duration::from_millis(20));
        LATE.fetch_add(1, SeqCst);
        Ok(())
    }));
    Ok(())
}

fn late() -> Result<usize> {
    Ok(LATE.load(SeqCst))
}

remote!(
    add,
    nothing,
    lengths,
    reversed,
    refuses,
    panics,
    process,
    slow_process,
    tree,
    leaves_a_task,
    late,
    goes_on,
    has_begun
);

fn unknown() -> Result<()> {
    Ok(())
}

#[test]
fn run_on_every_rank() -> Result<()> {
    World::default().everywhere("remote::run_on_every_rank", &[1, 2, 3, 5], |ctx| {
        let tasks = (0..ctx.size()).map(|rank| ctx.spawn_on(rank, add, (rank as u64, 100)));
        for (rank, sum) in Task::wait_all(tasks.collect())?.into_iter().enumerate() {
            assert_eq!(sum, rank as u64 + 100);
        }
        let last = ctx.size() - 1;
        ctx.spawn_on(last, nothing, ()).take()?;
        let texts = vec!["a".to_owned(), "longer".to_owned()];
        let lengths = ctx.spawn_on(last, lengths, (texts, (None, vec![0; 7]))).take()?;
        assert_eq!(lengths, [1, 6, 7]);
        // In the graph they are tasks as others.
        let (one, two) = (ctx.spawn_on(0, add, (1, 2)), ctx.spawn_on(last, add, (3, 4)));
        assert_eq!(ctx.spawn_after((&one, &two), |one, two| Ok(one * two)).take()?, 21);
        let pids = (0..ctx.size()).map(|rank| ctx.spawn_on(rank, process, ()));
        let mut pids = Task::wait_all(pids.collect())?;
        assert_eq!(pids[ctx.rank()], std::process::id());
        pids.sort_unstable();
        pids.dedup();
        let processes = if ctx.mode() == spmd::Mode::Processes { ctx.size() } else { 1 };
        assert_eq!(pids.len(), processes);
        Ok(())
    })
}

/// A rank runs tasks for others while it computes, or has come to its end.
#[test]
fn whatever_the_other_does() -> Result<()> {
    World::default().everywhere("remote::whatever_the_other_does", &[2, 3], |ctx| {
        if ctx.rank() == 0 {
            let sums: u64 = (1..ctx.size())
                .flat_map(|rank| (0..50).map(move |i| (rank, i)))
                .map(|(rank, i)| ctx.spawn_on(rank, add, (i, 1)))
                .map(Task::take)
                .sum::<Result<u64>>()?;
            assert_eq!(sums, (ctx.size() as u64 - 1) * (49 * 25 + 50));
            // All at a time, and none fetched.
            (0..200).for_each(|i| drop(ctx.spawn_on(1, add, (i, i))));
        }
        Ok(())
    })
}

#[test]
fn large_values() -> Result<()> {
    World::default().everywhere("remote::large_values", &[2, 3], |ctx| {
        for len in [0, 1, 4096, 100_000, 1_000_000] {
            let bytes: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let tasks = (0..ctx.size()).map(|rank| ctx.spawn_on(rank, reversed, (bytes.clone(),)));
            for back in Task::wait_all(tasks.collect())? {
                assert!(back.iter().rev().eq(&bytes), "{len} bytes");
            }
        }
        Ok(())
    })
}

/// Tasks that spawn tasks on other ranks, which do so as well.
#[test]
fn trees_over_ranks() -> Result<()> {
    World::default().everywhere("remote::trees_over_ranks", &[1, 2, 4], |ctx| {
        let (me, size) = (ctx.rank(), ctx.size());
        let sum = ctx.spawn_on((me + 1) % size, tree, ((me + 1) % size, size, 0, 500)).take()?;
        assert_eq!(sum, 499 * 250);
        // The end of a task on another rank is that of what it has spawned there.
        let last = size - 1;
        if me == 0 {
            let before = ctx.spawn_on(last, late, ()).take()?;
            ctx.spawn_on(last, leaves_a_task, ()).take()?;
            assert_eq!(ctx.spawn_on(last, late, ()).take()?, before + 1);
        }
        Ok(())
    })
}

#[test]
fn what_goes_wrong() -> Result<()> {
    World::default().everywhere("remote::what_goes_wrong", &[1, 2], |ctx| {
        let last = ctx.size() - 1;
        let fails = |task: Task<()>, parts: &[&str]| {
            let error = task.take().expect_err("it fails").to_string();
            parts.iter().for_each(|part| assert!(error.contains(part), "{part}: {error}"));
        };
        fails(
            ctx.spawn_on(last, refuses, ("no more".into(),)),
            &["no more", "refuses", "tests/tasks/remote.rs"],
        );
        fails(ctx.spawn_on(last, panics, ("at all".into(),)), &["panicked", "at all"]);
        fails(ctx.spawn_on(ctx.size(), nothing, ()), &["there is no rank"]);
        fails(ctx.spawn_on(last, unknown, ()), &["unknown", "remote!"]);
        // The ranks go on.
        assert_eq!(ctx.spawn_on(last, add, (1, 1)).take()?, 2);
        Ok(())
    })
}

/// What nobody asks for is an error of the rank.
#[test]
fn failures_that_nobody_asks_for() {
    for block in [Spmd::new(2).threads(), Spmd::new(2).virtual_ranks()] {
        let ended = block.run(|ctx| {
            drop(ctx.spawn_on(1, refuses, ("silently".into(),)));
            Ok(())
        });
        assert!(ended.expect_err("it fails").to_string().contains("silently"));
    }
}

/// A process rank may run several blocks, one after the other.
#[test]
fn in_every_block() -> Result<()> {
    let body = |ctx: &Ctx| {
        let other = (ctx.rank() + 1) % ctx.size();
        assert_eq!(ctx.spawn_on(other, add, (1, 2)).take()?, 3);
        assert_eq!(ctx.spawn_any(add, (3, 4)).take()?, 7);
        Ok(())
    };
    if crate::support::is_process_rank() {
        return (0..5).try_for_each(|_| spmd::run(body).map(drop));
    }
    (0..5).try_for_each(|_| spmd(3, body).map(drop))?;
    let ran =
        crate::support::finish(&mut crate::support::spmdrun_self("remote::in_every_block", 3));
    assert_eq!(ran.out.matches("1 passed").count(), 3, "{}\n{}", ran.out, ran.err);
    Ok(())
}

/// Tasks that any rank may run: all are, and both ranks take some.
#[test]
fn on_any_rank() -> Result<()> {
    World::default().everywhere("remote::on_any_rank", &[1, 2, 3], |ctx| {
        let tasks: Vec<_> = (0..300).map(|i| ctx.spawn_any(add, (i, 1))).collect();
        let sum: u64 = tasks.iter().map(Task::fetch).sum::<Result<u64>>()?;
        assert_eq!(sum, 299 * 150 + 300);
        let why = tasks[299].explain();
        assert!(why.contains("tests/tasks/remote.rs") && why.contains("rank"), "{why}");
        assert!(ctx.spawn_any(refuses, ("no more".into(),)).take().is_err());
        assert!(ctx.spawn_any(unknown, ()).take().is_err());
        if ctx.rank() == 0 {
            let slow = (0..20).map(|_| ctx.spawn_any(slow_process, ())).collect();
            let mut pids = Task::wait_all(slow)?;
            pids.sort_unstable();
            pids.dedup();
            let processes = if ctx.mode() == spmd::Mode::Processes { ctx.size() } else { 1 };
            assert_eq!(pids.len(), processes);
        }
        Ok(())
    })
}

static HAS_BEGUN: AtomicBool = AtomicBool::new(false);

/// Runs until it is cancelled.
fn goes_on() -> Result<u32> {
    HAS_BEGUN.store(true, Release);
    while !is_cancelled() {
        sleep(Duration::from_millis(1));
    }
    HAS_BEGUN.store(false, Release);
    Ok(7)
}

fn has_begun() -> Result<bool> {
    Ok(HAS_BEGUN.load(Acquire))
}

/// What has begun learns that it is cancelled, and gives its value; what has not never does.
#[test]
fn cancelled_where_they_run() -> Result<()> {
    let world = World { resources: "cpu=3", ..World::default() };
    world.everywhere("remote::cancelled_where_they_run", &[1, 2], |ctx| {
        if ctx.rank() != 0 {
            return Ok(());
        }
        let last = ctx.size() - 1;
        let first = ctx.spawn_on(last, goes_on, ());
        while !ctx.spawn_on(last, has_begun, ()).take()? {}
        // More than there are workers.
        let more: Vec<_> = (0..10).map(|_| ctx.spawn_on(last, goes_on, ())).collect();
        more.iter().rev().for_each(Task::cancel);
        let ends: Vec<_> = more.into_iter().map(Task::take).collect();
        assert!(ends.iter().all(|end| matches!(end, Ok(7) | Err(Error::Cancelled(_)))), "{ends:?}");
        assert!(matches!(ends[9], Err(Error::Cancelled(_))), "{ends:?}");
        assert!(!first.is_over());
        first.cancel();
        assert_eq!(first.take()?, 7);
        // Asked, on the way, or through.
        for _ in 0..100 {
            let task = ctx.spawn_any(add, (1, 2));
            task.cancel();
            assert!(matches!(task.take(), Ok(3) | Err(Error::Cancelled(_))));
        }
        Ok(())
    })
}

static SEEN: AtomicU64 = AtomicU64::new(0);

#[test]
fn thousands() -> Result<()> {
    World::default().everywhere("remote::thousands", &[2], |ctx| {
        let other = 1 - ctx.rank();
        let tasks = (0..3000).map(|i| ctx.spawn_on(other, add, (i, i))).collect();
        SEEN.fetch_add(Task::wait_all(tasks)?.iter().sum::<u64>(), SeqCst);
        Ok(())
    })
}
