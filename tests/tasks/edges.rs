//! What programs do at the edges: tasks that outlive what spawned them, threads without a rank, parts of
//! a rank, destructors.

use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use spmd::prelude::*;
use spmd::tasks::{datadeps, join, spawn, spawn_after, task};

use crate::support::World;

fn nap(milliseconds: u64) -> Result<()> {
    std::thread::sleep(Duration::from_millis(milliseconds));
    Ok(())
}

#[test]
fn a_thread_without_a_rank_spawns_nothing() {
    assert!(spawn(|| Ok(1)).take().is_err());
    assert!(task().name("nobody's").spawn(|| Ok(1)).take().is_err());
    let ended = spmd(1, |ctx| {
        let (data, gate) = (Data::new(0), AtomicBool::new(false));
        let slow = ctx.spawn(|| nap(100));
        ctx.datadeps(|d| {
            let gate = &gate;
            d.spawn((d.write(&data),), move |_| {
                while !gate.load(Acquire) {
                    std::thread::yield_now();
                }
                Ok(())
            });
            std::thread::scope(|threads| {
                threads.spawn(|| {
                    // What it needs is not over: nobody could carry it out then either.
                    std::mem::forget(spawn_after((&slow,), |()| Ok(())));
                    assert!(spawn_after((&slow,), |()| Ok(())).take().is_err());
                    let inner = datadeps(|e| e.spawn((e.read(&data),), |x| Ok(*x)).take());
                    assert!(inner.is_err());
                });
            });
            gate.store(true, Release);
            Ok(())
        })?;
        slow.take()
    });
    ended.expect("the rank's own are carried out");
}

/// A task of one scope needs one of another, which may be over first.
#[test]
fn tasks_of_several_scopes() -> Result<()> {
    World::default().everywhere("edges::tasks_of_several_scopes", &[1, 2], |ctx| {
        for _ in 0..300 {
            let outer = ctx.spawn(|| Ok(5));
            let sum = ctx.scope(|s| {
                let inner = s.spawn(|| {
                    let needs = spawn_after((&outer,), |x| Ok(x + 1));
                    needs.take()
                });
                inner.take()
            })?;
            assert_eq!(sum, 6);
        }
        Ok(())
    })
}

#[test]
fn a_part_of_a_rank_is_one_wherever_it_is() -> Result<()> {
    World::default().everywhere("edges::a_part_of_a_rank_is_one_wherever_it_is", &[1, 2], |_ctx| {
        for _ in 0..100 {
            let three = || spawn(|| Ok(3)).take();
            let (a, b) = join(three, three);
            assert_eq!((a?, b?), (3, 3));
            let knows = || spmd::with_current(|_| Ok(())).is_ok();
            assert_eq!(join(knows, knows), (false, false));
        }
        Ok(())
    })
}

/// A value that does two things at a time when it goes.
struct Joins;

impl Drop for Joins {
    fn drop(&mut self) {
        assert_eq!(join(|| 1, || 2), (1, 2));
    }
}

#[test]
fn a_destructor_that_joins() -> Result<()> {
    World::default().everywhere("edges::a_destructor_that_joins", &[1, 2], |ctx| {
        let failed = ctx.spawn(|| -> Result<()> {
            let _joins = Joins;
            panic!("beside it");
        });
        assert!(failed.take().expect_err("it panics").to_string().contains("beside it"));
        Ok(())
    })
}

/// Where a handle is dropped, and when, does not matter to whom a failure is told.
#[test]
fn a_scope_tells_what_its_tasks_say() -> Result<()> {
    World::default().everywhere("edges::a_scope_tells_what_its_tasks_say", &[1], |ctx| {
        for wait in [0, 5] {
            let failed = ctx.scope(|s| {
                let fails = s.spawn(|| Err::<(), _>("in the scope".into()));
                nap(wait)?;
                drop(fails);
                Ok(())
            });
            let error = failed.expect_err("a task has failed").to_string();
            assert!(error.ends_with("failed: in the scope"), "{error}");
        }
        Ok(())
    })
}

/// Its own end waits for a task that needs it: all that is left is to give up.
#[test]
fn a_region_within_one_that_it_waits_for() {
    static DATA: Data<u32> = Data::new(0);
    let ended = Spmd::new(1).timeout(Duration::from_secs(5)).run(|ctx| {
        ctx.datadeps(|d| {
            d.spawn((d.write(&DATA),), |_| {
                datadeps(|e| {
                    e.spawn((e.read(&DATA),), |_| Ok(()));
                    Ok(())
                })
            });
            Ok(())
        })
    });
    assert!(ended.is_err());
}

/// A task that is handed to another rank, which has none of its own.
#[test]
fn a_task_of_another_rank() -> Result<()> {
    for mode in [Spmd::new(2).threads(), Spmd::new(2).virtual_ranks()] {
        let handed: Mutex<Option<Task<u32>>> = Mutex::new(None);
        mode.run(|ctx| {
            if ctx.rank() == 0 {
                *handed.lock().unwrap() = Some(ctx.spawn(|| nap(600).map(|()| 9)));
            }
            ctx.barrier()?;
            if ctx.rank() == 1 {
                let task = handed.lock().unwrap().take().expect("it was handed over");
                assert_eq!(task.take()?, 9);
            }
            ctx.barrier()
        })?;
    }
    Ok(())
}

#[test]
fn more_wait_than_a_worker_has_room_for() {
    let ended = spmd(1, |ctx| {
        let gate = Arc::new(ctx.task().priority(spmd::tasks::Priority::Low).spawn(|| Ok(())));
        let waits = (0..20_000).map(|_| {
            let gate = gate.clone();
            ctx.spawn(move || gate.fetch().copied())
        });
        let waits: Vec<_> = waits.collect();
        let refused = waits.into_iter().filter(|task| task.fetch().is_err()).count();
        assert!(gate.is_over());
        Ok(refused)
    });
    ended.expect("each task comes to an end");
}
