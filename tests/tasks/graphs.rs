//! Tasks that need each other: values, order, shapes.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use spmd::prelude::*;
use spmd::tasks::{Priority, channel, join, spawn};

use crate::support::World;

#[test]
fn values_come_out() -> Result<()> {
    World::default().everywhere("graphs::values_come_out", &[1, 2, 5], |ctx| {
        let me = ctx.rank();
        let text = ctx.spawn(move || Ok(format!("rank {me}")));
        let number = ctx.spawn(|| Ok(20));
        assert_eq!(text.fetch()?, &format!("rank {me}"));
        assert_eq!(text.fetch()?, &format!("rank {me}"));
        assert!(text.is_over());
        assert_eq!(number.take()?, 20);
        assert_eq!(text.take()?, format!("rank {me}"));
        // What is `Send` alone, too.
        let cell = ctx.spawn(|| Ok(std::cell::Cell::new(3)));
        assert_eq!(cell.take()?.get(), 3);
        drop(ctx.spawn(|| Ok(())));
        Ok(())
    })
}

#[test]
fn tasks_need_others() -> Result<()> {
    World::default().everywhere("graphs::tasks_need_others", &[1, 3], |ctx| {
        let a = ctx.spawn(|| Ok(1));
        let b = ctx.spawn_after((&a,), |a| Ok(a + 1));
        let c = ctx.spawn_after((&a, &b), |a, b| Ok(format!("{a}{b}")));
        let d = ctx.spawn_after((&a, &b, &c), |a, b, c| Ok((*a, *b, c.clone())));
        assert_eq!(d.take()?, (1, 2, "12".to_owned()));
        let many: Vec<Task<usize>> = (0..100).map(|i| ctx.spawn(move || Ok(i))).collect();
        let sum = ctx.spawn_after(&many, |all| Ok(all.iter().copied().sum::<usize>()));
        let none: [Task<usize>; 0] = [];
        let zero = ctx.spawn_after(&none[..], |all| Ok(all.len()));
        assert_eq!((sum.take()?, zero.take()?), (4950, 0));
        assert_eq!(c.take()?, "12");
        assert_eq!(Task::wait_all(many)?, (0..100).collect::<Vec<_>>());
        Ok(())
    })
}

/// Of what a task makes ready, a worker does first what was spawned first: that which others wait for, say.
#[test]
fn what_was_spawned_first_is_first() -> Result<()> {
    let world = World { resources: "cpu=1", ..World::default() };
    world.everywhere("graphs::what_was_spawned_first_is_first", &[1], |ctx| {
        let all_are_there = Arc::new(AtomicBool::new(false));
        let (wait, order) = (all_are_there.clone(), Arc::new(Mutex::new(Vec::new())));
        let first = ctx.spawn(move || {
            while !wait.load(SeqCst) {
                std::thread::yield_now();
            }
            Ok(())
        });
        let after = (0..20).map(|i| {
            let order = order.clone();
            ctx.spawn_after((&first,), move |()| {
                order.lock().expect("no panic").push(i);
                Ok(())
            })
        });
        let after: Vec<_> = after.collect();
        let last = ctx.spawn_after(&after[..], |_| Ok(()));
        all_are_there.store(true, SeqCst);
        // It has begun on the worker by then, and this only waits.
        last.take()?;
        assert_eq!(*order.lock().expect("no panic"), (0..20).collect::<Vec<_>>());
        Ok(())
    })
}

#[test]
fn several_are_waited_for() -> Result<()> {
    World::default().everywhere("graphs::several_are_waited_for", &[1, 2], |ctx| {
        let tasks = |n: usize| (0..n).map(|i| ctx.spawn(move || Ok(i))).collect::<Vec<_>>();
        assert_eq!(Task::wait_all(tasks(50))?, (0..50).collect::<Vec<_>>());
        let (mut left, mut seen) = (tasks(50), Vec::new());
        while !left.is_empty() {
            seen.push(Task::wait_any(&mut left)?.1);
        }
        let mut later = Vec::new();
        for done in Task::as_completed(tasks(500)) {
            let (place, value) = done?;
            assert_eq!(place, value);
            later.push(value);
        }
        seen.sort_unstable();
        later.sort_unstable();
        assert_eq!(seen, (0..50).collect::<Vec<_>>());
        assert_eq!(later, (0..500).collect::<Vec<_>>());
        assert!(Task::wait_any(&mut Vec::<Task<()>>::new()).is_err());
        Ok(())
    })
}

/// Who waits for all is told of a failure although others never end, and waits for what comes before that one.
#[test]
fn one_of_all_fails() -> Result<()> {
    World::default().everywhere("graphs::one_of_all_fails", &[1, 2], |ctx| {
        for failing in [0, 7, 19] {
            let (open, opened) = channel::<()>(1);
            let tasks = (0..20).map(|i| {
                let opened = opened.clone();
                ctx.spawn(move || match i {
                    i if i < failing => {
                        std::thread::sleep(Duration::from_millis(3));
                        Ok(())
                    }
                    i if i == failing => Err(format!("number {i}").into()),
                    _ => opened.recv().map(drop),
                })
            });
            let tasks: Vec<_> = tasks.collect();
            let error = Task::wait_all(tasks).expect_err("one fails").to_string();
            assert!(error.contains(&format!("number {failing}")), "{error}");
            drop(open);
        }
        Ok(())
    })
}

/// A worker that never lacks jobs of its own does those of others, too.
#[test]
fn nobody_starves() -> Result<()> {
    let world = World { resources: "cpu=1", ..World::default() };
    world.everywhere("graphs::nobody_starves", &[1], |ctx| {
        let over = Arc::new(AtomicBool::new(false));
        fn again(over: Arc<AtomicBool>) -> Result<()> {
            if !over.load(SeqCst) {
                drop(spawn(move || again(over)));
            }
            Ok(())
        }
        let has_begun = over.clone();
        ctx.spawn(move || again(has_begun)).take()?;
        let (first, end) = (ctx.spawn(|| Ok(())), over.clone());
        // Whoever waits carries nothing of it out.
        let last = ctx.spawn_after((&first,), move |()| {
            end.store(true, SeqCst);
            Ok(())
        });
        while !last.is_over() {
            std::thread::sleep(Duration::from_millis(1));
        }
        last.take()
    })
}

/// Any graph gives what it gives in order.
#[test]
fn random_graphs() -> Result<()> {
    World::default().everywhere("graphs::random_graphs", &[1, 2], |ctx| {
        for seed in 0..20 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut tasks: Vec<Task<u64>> = Vec::new();
            let mut expected: Vec<u64> = Vec::new();
            for i in 0..300u64 {
                let picks = if tasks.is_empty() { 0 } else { random.usize(0..3) };
                let picked: Vec<usize> = (0..picks).map(|_| random.usize(0..tasks.len())).collect();
                let mix = |of: &[u64]| of.iter().fold(i, |a, b| a.wrapping_mul(31) ^ b);
                let inputs: Vec<u64> = picked.iter().map(|at| expected[*at]).collect();
                expected.push(mix(&inputs));
                tasks.push(match picked[..] {
                    [] => ctx.spawn(move || Ok(i)),
                    [a] => ctx.spawn_after((&tasks[a],), move |a| Ok(i.wrapping_mul(31) ^ a)),
                    [a, b, ..] => ctx.spawn_after((&tasks[a], &tasks[b]), move |a, b| {
                        Ok((i.wrapping_mul(31) ^ a).wrapping_mul(31) ^ b)
                    }),
                });
            }
            assert_eq!(Task::wait_all(tasks)?, expected);
        }
        Ok(())
    })
}

#[test]
fn deep_and_wide() -> Result<()> {
    World::default().everywhere("graphs::deep_and_wide", &[1], |ctx| {
        let mut chain = ctx.spawn(|| Ok(0));
        for _ in 0..100_000 {
            chain = ctx.spawn_after((&chain,), |n| Ok(n + 1));
        }
        assert_eq!(chain.take()?, 100_000);
        let one = ctx.spawn(|| Ok(1));
        let fan: Vec<Task<usize>> =
            (0..100_000).map(|_| ctx.spawn_after((&one,), |n| Ok(*n))).collect();
        let sum = ctx.spawn_after(&fan, |all| Ok(all.iter().copied().sum::<usize>()));
        assert_eq!(sum.take()?, 100_000);
        Ok(())
    })
}

/// Each task fetches one that it has spawned, far deeper than a stack of calls could be.
#[test]
fn nested_fetches() -> Result<()> {
    fn nested(depth: usize) -> Result<usize> {
        if depth == 0 {
            return Ok(0);
        }
        Ok(spawn(move || nested(depth - 1)).take()? + 1)
    }
    World::default().everywhere("graphs::nested_fetches", &[1, 2], |ctx| {
        assert_eq!(ctx.spawn(|| nested(5_000)).take()?, 5_000);
        Ok(())
    })
}

#[test]
fn both_are_done() -> Result<()> {
    fn fibonacci(n: u64) -> u64 {
        if n < 2 {
            return n;
        }
        let (a, b) = join(|| fibonacci(n - 1), || fibonacci(n - 2));
        a + b
    }
    assert_eq!(join(|| 1, || "two"), (1, "two"));
    World::default().everywhere("graphs::both_are_done", &[1, 3], |ctx| {
        assert_eq!(fibonacci(15), 610);
        assert_eq!(ctx.spawn(|| Ok(fibonacci(18))).take()?, 2584);
        Ok(())
    })
}

#[test]
fn a_million_wait_in_the_queue() -> Result<()> {
    World::default().everywhere("graphs::a_million_wait_in_the_queue", &[1], |ctx| {
        let sum = Arc::new(AtomicUsize::new(0));
        for _ in 0..1_000_000 {
            let sum = sum.clone();
            drop(ctx.spawn(move || Ok(_ = sum.fetch_add(1, Relaxed))));
        }
        let last = ctx.task().priority(Priority::Low).spawn(|| Ok(()));
        last.take()?;
        while sum.load(Relaxed) < 1_000_000 {
            std::thread::yield_now();
        }
        Ok(())
    })
}

#[test]
fn many_virtual_ranks() -> Result<()> {
    let sums = Spmd::new(1024).virtual_ranks().run(|ctx| {
        let tasks = (0..100).map(|i| ctx.spawn(move || Ok(i))).collect();
        Ok(Task::wait_all(tasks)?.iter().sum::<usize>())
    })?;
    assert_eq!(sums, [4950; 1024]);
    Ok(())
}

/// A task that waits for its turn, with its handle.
#[test]
#[cfg(all(target_os = "linux", not(sanitizer)))]
fn a_queued_task_is_small() -> Result<()> {
    fn resident() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("it has that");
        1024 * line.split_whitespace().nth(1).expect("a number").parse::<usize>().expect("a number")
    }
    const MANY: usize = 400_000;
    spmd(1, |ctx| {
        let open = Arc::new(AtomicUsize::new(0));
        let opened = open.clone();
        let gate = ctx.spawn(move || {
            while opened.load(Acquire) == 0 {
                std::thread::yield_now();
            }
            Ok(1)
        });
        let before = resident();
        let tasks: Vec<Task<usize>> =
            (0..MANY).map(|i| ctx.spawn_after((&gate,), move |one| Ok(one + i))).collect();
        let each = resident().saturating_sub(before) / MANY;
        open.store(1, Release);
        println!("{each} bytes a task");
        assert!(each < 300, "{each} bytes a task");
        assert_eq!(Task::wait_all(tasks)?[MANY - 1], MANY);
        Ok(())
    })
    .map(drop)
}
