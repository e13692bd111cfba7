//! Tasks that run in certain places alone.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::thread::{current, sleep};
use std::time::Duration;

use spmd::prelude::*;
use spmd::tasks::{Scope, rank_here, remote, resource_ids, spawn, spawn_any, with_scope};

use crate::support::World;

fn error_of<T>(outcome: Result<T>) -> String {
    outcome.map(drop).expect_err("it cannot run there").to_string()
}

/// The name of the thread that is the worker.
fn worker() -> String {
    current().name().unwrap_or_default().to_owned()
}

#[test]
fn workers() -> Result<()> {
    let world = World { resources: "cpu=3", ..World::default() };
    world.everywhere("placement::workers", &[1, 2], |ctx| {
        // Each begins on its own, and so does what it spawns, with others in between.
        for number in 0..3 {
            let name = format!("spmd-task-{number}");
            let tasks = ctx.with_scope(Scope::worker(number), || {
                let inner = || spawn(|| Ok(worker())).take();
                let tasks: Vec<Task<String>> = (0..20)
                    .map(|i| if i % 2 == 0 { ctx.spawn(|| Ok(worker())) } else { ctx.spawn(inner) })
                    .collect();
                Ok(tasks)
            })?;
            let free = ctx.spawn(|| Ok(()));
            assert!(Task::wait_all(tasks)?.iter().all(|it| *it == name));
            free.take()?;
        }
        // Of two, both.
        let found = ctx.with_scope(Scope::worker(0) | Scope::worker(2), || {
            let sleeps = || {
                sleep(Duration::from_millis(1));
                Ok(worker())
            };
            Task::wait_all((0..40).map(|_| ctx.spawn(sleeps)).collect())
        })?;
        let found: BTreeSet<String> = found.into_iter().collect();
        assert_eq!(found, ["spmd-task-0", "spmd-task-2"].map(String::from).into());
        Ok(())
    })
}

/// Tasks of every kind are spawned in the scope.
#[test]
fn all_kinds() -> Result<()> {
    let world = World { resources: "cpu=3", ..World::default() };
    world.everywhere("placement::all_kinds", &[1, 2], |ctx| {
        let is_there = || match worker() == "spmd-task-1" {
            true => Ok(1),
            false => Err(Error::from(format!("on {}", worker()))),
        };
        ctx.with_scope(Scope::worker(1), || {
            let first = ctx.spawn(is_there);
            let second = ctx.spawn_after((&first,), move |one| Ok(one + is_there()?));
            let order = spmd::tasks::Sequence::new();
            let third = ctx.spawn_sequential(&order, is_there);
            let fourth = ctx.task().name("named").retry(1).spawn(is_there);
            assert_eq!(second.take()? + third.take()? + fourth.take()?, 4);
            let sum = AtomicUsize::new(0);
            ctx.scope(|s| {
                (0..5).for_each(|_| {
                    drop(s.spawn(|| is_there().map(|one| sum.fetch_add(one, Relaxed))))
                });
                Ok(())
            })?;
            assert_eq!(sum.load(Relaxed), 5);
            let data = Data::new(0);
            ctx.datadeps(|d| {
                for _ in 0..5 {
                    d.spawn((d.write(&data),), |data| is_there().map(|one| *data += one));
                    d.spawn((d.commute(&data),), |data| is_there().map(|one| *data += one));
                }
                Ok(())
            })?;
            assert_eq!(data.into_inner(), 10);
            Ok(())
        })
    })
}

fn slowly() -> Result<usize> {
    sleep(Duration::from_millis(2));
    Ok(rank_here())
}

fn of_inner() -> Result<Vec<usize>> {
    Task::wait_all((0..3).map(|_| spawn_any(slowly, ())).collect())
}

remote!(slowly, of_inner);

#[test]
fn ranks() -> Result<()> {
    World::default().everywhere("placement::ranks", &[2, 4], |ctx| {
        let (me, n) = (ctx.rank(), ctx.size());
        // One that is not its own, and those of it and the next.
        let other = (me + 1) % n;
        let ran = ctx.with_scope(Scope::rank(other), || {
            Task::wait_all((0..10).map(|_| ctx.spawn_any(slowly, ())).collect())
        })?;
        assert_eq!(ran, vec![other; 10]);
        let both = Scope::rank(other) | Scope::rank((me + 2) % n);
        let (ran, of_inner) = ctx.with_scope(both, || {
            let ran = Task::wait_all((0..10).map(|_| ctx.spawn_any(slowly, ())).collect())?;
            Ok((ran, ctx.spawn_on(other, of_inner, ()).take()?))
        })?;
        let may = |rank: &usize| *rank == other || *rank == (me + 2) % n;
        assert!(ran.iter().all(may) && of_inner.iter().all(may), "{ran:?}, {of_inner:?}");
        // What cannot be says why, and leaves all as it was.
        let error = ctx.with_scope(Scope::rank(other), || {
            let error = error_of(ctx.spawn_on(me, slowly, ()).take());
            assert!(error.contains(&format!("the scope is rank {other}")), "{error}");
            ctx.spawn(|| Ok(())).take()
        });
        let error = error_of(error);
        let words = format!("its scope is rank {other}, and it runs on rank {me}");
        assert!(error.contains(&words), "{error}");
        let error = error_of(ctx.with_scope(Scope::rank(n), || ctx.spawn_any(slowly, ()).take()));
        assert!(
            error.contains(&format!("spawn_any among {n} ranks at tests/tasks/placement.rs")),
            "{error}"
        );
        ctx.spawn(|| Ok(())).take()
    })
}

#[test]
fn gpus() -> Result<()> {
    let world = World { resources: "cpu=2;gpu=(0,1),(2,3)", ..World::default() };
    world.everywhere("placement::gpus", &[1, 2], |ctx| {
        let of = |count| ctx.task().gpu(count).spawn(|| Ok(resource_ids("gpu")));
        let found = ctx.with_scope(Scope::gpu(1) | Scope::gpu(3), || {
            let ones = (0..10).map(|_| of(1)).collect();
            assert_eq!(of(2).take()?, [1, 3]);
            let error = error_of(of(3).take());
            assert!(
                error.contains("it asks for 3 gpu of [1, 3], its scope, and this process has 2"),
                "{error}"
            );
            Task::wait_all(ones)
        })?;
        assert!(found.iter().all(|ids| *ids == [1] || *ids == [3]), "{found:?}");
        // A worker with each: the pair, also where both were asked for at once.
        let pair = Scope::worker(1) & Scope::gpu(2);
        let task = ctx.with_scope(pair, || {
            Ok(ctx.task().gpu(1).spawn(|| Ok((worker(), resource_ids("gpu")))))
        })?;
        assert_eq!(task.fetch()?, &("spmd-task-1".to_owned(), vec![2]));
        let told = task.explain();
        assert!(told.contains("it asked for 1 gpu of [2], worker 1, and got gpu [2]"), "{told}");
        // Code that asks for none needs none.
        ctx.with_scope(Scope::gpu(7), || ctx.spawn(|| Ok(())).take())
    })
}

/// Scopes of ranks and tasks that take turns on a worker are theirs, whatever the others do.
#[test]
fn scopes_of_many_that_take_turns() -> Result<()> {
    let world = World { resources: "cpu=2", ..World::default() };
    world.everywhere("placement::scopes_of_many_that_take_turns", &[1, 6], |ctx| {
        let check = |scope: usize| {
            let task = spawn(|| Ok(worker()));
            assert_eq!(task.take()?, format!("spmd-task-{scope}"));
            Ok(())
        };
        let tasks = (0..10).map(|task| {
            ctx.spawn(move || {
                for round in 0..5 {
                    with_scope(Scope::worker((task + round) % 2), || check((task + round) % 2))?;
                    // What it waits for in between is in no scope, and within one in both.
                    spawn(|| Ok(())).take()?;
                }
                Ok(())
            })
        });
        let tasks: Vec<Task<()>> = tasks.collect();
        for round in 0..5 {
            ctx.with_scope(Scope::worker((ctx.rank() + round) % 2), || {
                ctx.barrier()?;
                check((ctx.rank() + round) % 2)
            })?;
        }
        Task::wait_all(tasks).map(drop)
    })
}

#[test]
fn what_is_nowhere() -> Result<()> {
    let world = World { resources: "cpu=2", ..World::default() };
    world.everywhere("placement::what_is_nowhere", &[1], |ctx| {
        let never = || -> Result<()> { panic!("nothing runs nowhere") };
        let error = error_of(ctx.with_scope(Scope::worker(0) & Scope::worker(1), never));
        assert!(error.contains("the scope nowhere is empty"), "{error}");
        assert!(error.contains("with_scope at tests/tasks/placement.rs"), "{error}");
        let inner = || ctx.with_scope(Scope::worker(1), never);
        let error = error_of(ctx.with_scope(Scope::worker(0), inner));
        assert!(
            error.contains("the scope worker 1 within one that is worker 0 is empty"),
            "{error}"
        );
        // Left by an error and by a panic, it is left.
        let panics = std::panic::AssertUnwindSafe(|| ctx.with_scope(Scope::worker(0), never));
        assert!(std::panic::catch_unwind(panics).is_err());
        ctx.with_scope(Scope::worker(1), || ctx.spawn(|| Ok(())).take())?;
        let error = error_of(ctx.with_scope(Scope::worker(9), || ctx.spawn(|| Ok(())).take()));
        assert!(error.contains("its scope is worker [9], and this process has 2"), "{error}");
        let wide = || ctx.task().cpu(2).spawn(|| Ok(())).take();
        let error = error_of(ctx.with_scope(Scope::worker(0), wide));
        assert!(error.contains("it takes 2 cpu"), "{error}");
        Ok(())
    })
}
