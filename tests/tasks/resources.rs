//! Tasks that ask for workers, GPUs and other resources.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

use spmd::prelude::*;
use spmd::tasks::{Priority, join, resource_ids, spawn, task};

use crate::support::World;

const fn milliseconds(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// How many are inside at a time.
#[derive(Default)]
struct Inside {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Inside {
    fn run(&self, time: Duration) -> Result<()> {
        let now = self.now.fetch_add(1, SeqCst) + 1;
        self.most.fetch_max(now, SeqCst);
        sleep(time);
        self.now.fetch_sub(1, SeqCst);
        Ok(())
    }

    fn most(&self) -> usize {
        self.most.load(SeqCst)
    }
}

/// Chains of two stages, one on a worker and one on the only GPU: stages of different chains overlap.
#[test]
fn two_stages_overlap() -> Result<()> {
    const CHAINS: usize = 8;
    let world = World { resources: "cpu=4;gpu=1", ..World::default() };
    world.everywhere("resources::two_stages_overlap", &[1], |ctx| {
        let begin = Instant::now();
        let spans = Arc::new(Mutex::new(Vec::new()));
        let stage = |chain: usize, which: usize| {
            let spans = spans.clone();
            move || {
                let from = begin.elapsed();
                sleep(milliseconds(40));
                spans.lock().expect("no panic").push((which, chain, from, begin.elapsed()));
                Ok(())
            }
        };
        let chains = (0..CHAINS).map(|chain| {
            let (prepare, on_gpu) = (stage(chain, 0), stage(chain, 1));
            let prepared = ctx.spawn(prepare);
            ctx.task().cpu(0).gpu(1).spawn_after((&prepared,), move |()| {
                assert_eq!(resource_ids("gpu"), [0]);
                on_gpu()
            })
        });
        let chains: Vec<_> = chains.collect();
        // A rank that asks for one would be a fifth worker.
        ctx.spawn_after(&chains[..], |_| Ok(())).take()?;
        let spans = spans.lock().expect("no panic");
        assert_eq!(spans.len(), 2 * CHAINS);
        let overlap = |a: &(usize, usize, Duration, Duration)| {
            spans.iter().filter(|b| b.0 == a.0 && a.2 >= b.2 && a.2 < b.3).count()
        };
        for stage in spans.iter() {
            let most = [4, 1][stage.0];
            assert!(overlap(stage) <= most, "{stage:?} among {spans:?}");
            let first = spans.iter().find(|it| it.0 == 0 && it.1 == stage.1).expect("it has both");
            assert!(stage.0 == 0 || first.3 <= stage.2, "{stage:?} is before {first:?}");
        }
        // The GPU's stage of a chain runs beside the first stage of a later one.
        let beside = |gpu: &(usize, usize, Duration, Duration)| {
            gpu.0 == 1 && spans.iter().any(|it| it.0 == 0 && it.2 < gpu.3 && gpu.2 < it.3)
        };
        assert!(spans.iter().any(beside), "{spans:?}");
        Ok(())
    })
}

/// No unit is given to two tasks, and two of a task are of a group.
#[test]
fn units_are_for_one_task_at_a_time() -> Result<()> {
    static TAKEN: [AtomicBool; 4] = [const { AtomicBool::new(false) }; 4];
    let world = World { resources: "cpu=3;gpu=(0,1),(2,3)", ..World::default() };
    world.everywhere("resources::units_are_for_one_task_at_a_time", &[1, 3], |ctx| {
        let use_some = |count: usize| {
            move || {
                let ids = resource_ids("gpu");
                assert_eq!(ids.len(), count);
                assert!(count != 2 || ids[0] / 2 == ids[1] / 2, "{ids:?} are of two groups");
                assert_eq!(join(|| resource_ids("gpu"), || 3).0, ids);
                ids.iter().for_each(|id| assert!(!TAKEN[*id as usize].swap(true, SeqCst)));
                sleep(Duration::from_micros(100));
                ids.iter().for_each(|id| TAKEN[*id as usize].store(false, SeqCst));
                Ok(count)
            }
        };
        let tasks = (0..200).map(|i| {
            let count = [1, 2, 1, 4][i % 4];
            let driven = ctx.task().cpu(i % 3 % 2).gpu(count);
            driven.spawn(use_some(count))
        });
        let sum: usize = Task::wait_all(tasks.collect())?.iter().sum();
        assert_eq!(sum, 400);
        assert!(resource_ids("gpu").is_empty());
        Ok(())
    })
}

#[test]
fn amounts_are_shared() -> Result<()> {
    let world = World { resources: "cpu=4;license=1", ..World::default() };
    world.everywhere("resources::amounts_are_shared", &[1], |ctx| {
        let inside = Arc::new(Inside::default());
        let spawn_one = |_| {
            let inside = inside.clone();
            ctx.task().resource("license", 0.5).spawn(move || inside.run(milliseconds(2)))
        };
        Task::wait_all((0..20).map(spawn_one).collect())?;
        assert!(inside.most() <= 2, "{}", inside.most());
        Ok(())
    })
}

/// A task that takes no worker leaves all of them to others; at most 64 are under way.
#[test]
fn tasks_that_take_no_worker() -> Result<()> {
    let world = World { resources: "cpu=1", ..World::default() };
    world.everywhere("resources::tasks_that_take_no_worker", &[1], |ctx| {
        let inside = Arc::new(Inside::default());
        let gate = Arc::new(AtomicBool::new(false));
        let waits = |_| {
            let (inside, gate) = (inside.clone(), gate.clone());
            ctx.task().cpu(0).spawn(move || {
                while !gate.load(Acquire) {
                    inside.run(milliseconds(1))?;
                }
                Ok(())
            })
        };
        let waiting: Vec<_> = (0..100).map(waits).collect();
        let deadline = Instant::now() + Duration::from_secs(60);
        while inside.most() < 32 && Instant::now() < deadline {
            assert_eq!(ctx.spawn(|| spawn(|| Ok(2)).take()).take()?, 2);
        }
        gate.store(true, Release);
        Task::wait_all(waiting)?;
        assert!((32..=64).contains(&inside.most()), "{}", inside.most());
        // Those that wait in the library leave their thread to others.
        let chain = (0..200).fold(ctx.task().cpu(0).spawn(|| Ok(0)), |before, _| {
            ctx.task().cpu(0).spawn(move || Ok(before.take()? + 1))
        });
        assert_eq!(chain.take()?, 200);
        Ok(())
    })
}

/// While a task has all workers, they begin nothing else.
#[test]
fn tasks_that_take_several_workers() -> Result<()> {
    let world = World { resources: "cpu=3", ..World::default() };
    world.everywhere("resources::tasks_that_take_several_workers", &[1, 2], |ctx| {
        let wide = Arc::new(AtomicUsize::new(0));
        let spawn_one = |i: usize| {
            let wide = wide.clone();
            let workers = [1, 3, 1, 2, 1][i % 5];
            ctx.task().cpu(workers).spawn(move || {
                let before = wide.fetch_add(workers, SeqCst);
                sleep(Duration::from_micros(200));
                wide.fetch_sub(workers, SeqCst);
                Ok(before + workers)
            })
        };
        let tasks: Vec<_> = (0..100).map(spawn_one).collect();
        let all = ctx
            .spawn_after(&tasks[..], |taken| Ok(taken.iter().map(|it| **it).collect::<Vec<_>>()))
            .take()?;
        assert!(all.iter().all(|taken| *taken <= 3), "{all:?}");
        // One that waits for others is no obstacle to them.
        let outer = ctx.task().cpu(3).spawn(|| {
            let inner: Vec<_> =
                (0..10).map(|i| task().cpu(1 + i % 3).spawn(move || Ok(i))).collect();
            Ok(Task::wait_all(inner)?.into_iter().sum::<usize>())
        });
        assert_eq!(outer.take()?, 45);
        Ok(())
    })
}

/// What there never is fails at once, and says why.
#[test]
fn what_nobody_has() -> Result<()> {
    let world = World { resources: "cpu=2;gpu=2;license=1.5", ..World::default() };
    world.everywhere("resources::what_nobody_has", &[1], |ctx| {
        let gate = Arc::new(AtomicBool::new(false));
        let opened = gate.clone();
        let slow = ctx.spawn(move || {
            while !opened.load(Acquire) {
                std::thread::yield_now();
            }
            Ok(())
        });
        let refused = [
            (
                ctx.task().gpu(3).spawn_after((&slow,), |()| Ok(())),
                "it asks for 3 gpu, and this process has 2",
            ),
            (ctx.task().cpu(3).spawn(|| Ok(())), "it asks for 3 cpu, and this process has 2"),
            (ctx.task().resource("license", 2.0).spawn(|| Ok(())), "this process has 1.5"),
            (ctx.task().resource("fpga", 1.0).spawn(|| Ok(())), "--resources"),
            (ctx.task().resource("gpu", 0.5).spawn(|| Ok(())), "whole units"),
        ];
        for (task, why) in refused {
            let error = task.take().expect_err(why).to_string();
            assert!(error.contains(why), "{error}");
        }
        let nobody_asks = ctx.scope(|s| {
            s.task().gpu(3).spawn(|| Ok(()));
            Ok(())
        });
        assert!(nobody_asks.is_err());
        gate.store(true, Release);
        slow.take()
    })
}

/// A large request is not passed by small ones that come later; one for something else passes.
#[test]
fn who_comes_first_is_served_first() -> Result<()> {
    let world = World { resources: "cpu=4;gpu=2;license=1", ..World::default() };
    world.everywhere("resources::who_comes_first_is_served_first", &[1], |ctx| {
        let order = Arc::new(Mutex::new(Vec::new()));
        let gate = Arc::new(AtomicBool::new(false));
        let opened = gate.clone();
        let holds = ctx.task().cpu(0).gpu(1).spawn(move || {
            while !opened.load(Acquire) {
                sleep(milliseconds(1));
            }
            Ok(())
        });
        let put = |what: &'static str| {
            let order = order.clone();
            move || {
                order.lock().expect("no panic").push(what);
                Ok(())
            }
        };
        let both = ctx.task().gpu(2).spawn(put("both"));
        let one = ctx.task().gpu(1).spawn(put("one"));
        let urgent = ctx.task().priority(Priority::High).gpu(2).spawn(put("urgent"));
        let other = ctx.task().resource("license", 1.0).spawn(put("other"));
        other.take()?;
        let cancelled = ctx.task().gpu(2).spawn(put("cancelled"));
        cancelled.cancel();
        assert!(cancelled.is_over() && matches!(cancelled.take(), Err(Error::Cancelled { .. })));
        gate.store(true, Release);
        holds.take()?;
        Task::wait_all(vec![both, one, urgent])?;
        assert_eq!(*order.lock().expect("no panic"), ["other", "urgent", "both", "one"]);
        Ok(())
    })
}

/// A task has the unit that the one had whose value it uses.
#[test]
fn near_its_input() -> Result<()> {
    let world = World { resources: "cpu=2;gpu=4", ..World::default() };
    world.everywhere("resources::near_its_input", &[1], |ctx| {
        let ids = || Ok(resource_ids("gpu"));
        let first: Vec<_> = (0..4).map(|_| ctx.task().gpu(1).spawn(ids)).collect();
        let first = Task::wait_all(first)?;
        assert!(first.iter().all(|ids| ids.len() == 1));
        let three = ctx.task().gpu(3).spawn(ids);
        let after = ctx
            .task()
            .gpu(1)
            .spawn_after((&three,), |before| Ok((before.clone(), resource_ids("gpu"))));
        let (before, after) = after.take()?;
        assert!(before.contains(&after[0]), "{after:?} is none of {before:?}");
        Ok(())
    })
}

/// A rank that fails while its tasks wait for resources ends.
#[test]
fn a_rank_fails_meanwhile() {
    for _ in 0..50 {
        let ended = Spmd::new(2).resources("cpu=2;gpu=1").run(|ctx| {
            let inside = Arc::new(Inside::default());
            for i in 0..20 {
                let inside = inside.clone();
                let driven = ctx.task().cpu(i % 3).gpu(1);
                std::mem::drop(driven.spawn(move || inside.run(Duration::from_micros(50))));
            }
            if ctx.rank() == 1 { Err("enough".into()) } else { ctx.barrier() }
        });
        assert!(ended.expect_err("rank 1 fails").to_string().contains("enough"));
    }
}

#[test]
fn a_task_that_is_tried_again_keeps_what_it_has() -> Result<()> {
    Spmd::new(1).resources("gpu=(5,7)").run(|ctx| {
        let mut seen = Vec::new();
        let tried = ctx.task().gpu(1).retry(3).spawn(move || {
            seen.push(resource_ids("gpu"));
            if seen.len() < 3 { Err("not yet".into()) } else { Ok(seen.clone()) }
        });
        let seen: BTreeSet<_> = tried.take()?.into_iter().collect();
        assert_eq!(seen.len(), 1);
        let panics = ctx.task().gpu(2).spawn(|| -> Result<()> { panic!("with both") });
        assert!(panics.take().is_err());
        // What a panic had is free again.
        assert_eq!(ctx.task().gpu(2).spawn(|| Ok(resource_ids("gpu"))).take()?, [5, 7]);
        Ok(())
    })?;
    Ok(())
}

#[test]
fn what_makes_no_sense() {
    let ended = Spmd::new(1).resources("gpu=(0,0)").run(|_| Ok(()));
    let error = ended.expect_err("0 is there twice").to_string();
    assert!(error.contains("resources: gpu=(0,0) is not a list of groups"), "{error}");
}
