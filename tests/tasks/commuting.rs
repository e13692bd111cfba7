//! Tasks that use the same data one at a time, in any order.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::time::{Duration, Instant};

use spmd::prelude::*;

use crate::support::{World, processes};

/// Says that a task is in its data, alone.
struct Inside<'a>(&'a AtomicUsize);

impl<'a> Inside<'a> {
    fn new(count: &'a AtomicUsize) -> Inside<'a> {
        assert_eq!(count.fetch_add(1, SeqCst), 0, "two at a time");
        Inside(count)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// Each takes two data of seven, in any order, as philosophers take forks.
fn philosophers(ctx: &Ctx) -> Result<()> {
    const FORKS: usize = 7;
    let mut random = fastrand::Rng::with_seed(11);
    let counts: [AtomicUsize; FORKS] = Default::default();
    let mut forks: [Data<u64>; FORKS] = Default::default();
    let mut expected = [0; FORKS];
    ctx.datadeps(|d| {
        for _ in 0..2000 {
            let (a, b) = (random.usize(0..FORKS), random.usize(0..FORKS));
            if a == b {
                continue;
            }
            expected[a] += 1;
            expected[b] += 1;
            let counts = &counts;
            d.spawn((d.commute(&forks[a]), d.commute(&forks[b])), move |x, y| {
                let _inside = (Inside::new(&counts[a]), Inside::new(&counts[b]));
                *x += 1;
                *y += 1;
                Ok(())
            });
        }
        Ok(())
    })?;
    assert_eq!(forks.each_mut().map(|fork| *fork.get_mut()), expected);
    Ok(())
}

#[test]
fn philosophers_eat() -> Result<()> {
    let test = "commuting::philosophers_eat";
    World::default().everywhere(test, &[1, 2], philosophers)?;
    processes(test, 1, &[("SPMD_CORES", "1")], philosophers)
}

/// Between what was spawned before and after, whoever comes first.
fn rounds(ctx: &Ctx) -> Result<()> {
    let (data, inside) = (Data::new(0usize), AtomicUsize::new(0));
    ctx.datadeps(|d| {
        let inside = &inside;
        for round in 0..40 {
            let here = round * 31;
            for _ in 0..3 {
                d.spawn((d.read(&data),), move |value| {
                    assert_eq!((*value, inside.load(SeqCst)), (here, 0));
                    Ok(())
                });
            }
            for _ in 0..30 {
                d.spawn((d.commute(&data),), move |value| {
                    let _inside = Inside::new(inside);
                    assert!((here..here + 30).contains(value));
                    *value += 1;
                    std::thread::yield_now();
                    Ok(())
                });
            }
            if round % 2 == 0 {
                d.spawn((d.read(&data),), move |value| {
                    assert_eq!(*value, here + 30);
                    Ok(())
                });
            }
            d.spawn((d.write(&data),), move |value| {
                assert_eq!(*value, here + 30);
                *value += 1;
                Ok(())
            });
        }
        Ok(())
    })?;
    assert_eq!(data.into_inner(), 40 * 31);
    Ok(())
}

#[test]
fn between_reads_and_writes() -> Result<()> {
    let test = "commuting::between_reads_and_writes";
    World::default().everywhere(test, &[1, 2], rounds)?;
    processes(test, 1, &[("SPMD_CORES", "1")], rounds)
}

/// One has the data and waits for a message, others wait for the data: the worker does something else.
fn while_one_waits(ctx: &Ctx) -> Result<()> {
    let comm = ctx.dup()?;
    if ctx.rank() == 1 {
        ctx.barrier()?;
        return comm.send(&[1u8], 0, 0);
    }
    let (data, has_begun) = (Data::new(0), AtomicBool::new(false));
    ctx.datadeps(|d| {
        let has_begun = &has_begun;
        d.spawn((d.commute(&data),), move |value| {
            has_begun.store(true, Release);
            *value += 1;
            comm.recv(&mut [0u8], 1, 0).map(drop)
        });
        while !has_begun.load(Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let others: Vec<_> = (0..100)
            .map(|_| {
                d.spawn((d.commute(&data),), |value| {
                    *value += 1;
                    Ok(())
                })
            })
            .collect();
        // With every worker in a wait for the data nobody would carry this out.
        let (unrelated, ran) = (ctx.spawn(|| Ok(())), Instant::now());
        while !unrelated.is_over() && ran.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(unrelated.is_over() && others.iter().all(|task| !task.is_over()));
        ctx.barrier()
    })?;
    assert_eq!(data.into_inner(), 101);
    Ok(())
}

#[test]
fn no_worker_waits() -> Result<()> {
    let test = "commuting::no_worker_waits";
    World::default().everywhere(test, &[2], while_one_waits)?;
    processes(test, 2, &[("SPMD_CORES", "1")], while_one_waits)
}

#[test]
fn failures_end_the_round() -> Result<()> {
    World::default().everywhere("commuting::failures_end_the_round", &[1, 2], |ctx| {
        let (data, ran) = (Data::new(0), AtomicUsize::new(0));
        ctx.datadeps(|d| {
            let ran = &ran;
            let fails = d.spawn((d.commute(&data),), |_| Err::<(), _>("spilt".into()));
            assert!(fails.fetch().is_err());
            // More than are kept in mind when they are over.
            let later: Vec<_> = (0..100)
                .map(|_| {
                    d.spawn((d.commute(&data),), move |_| {
                        ran.fetch_add(1, Relaxed);
                        Ok(())
                    })
                })
                .collect();
            let reads = d.spawn((d.read(&data),), |value| Ok(*value));
            for error in later.into_iter().map(|task| task.take().err()).chain([reads.take().err()])
            {
                let error = error.expect("the data are no good").to_string();
                assert!(error.contains(" did not run: ") && error.contains("spilt"), "{error}");
            }
            d.spawn((d.overwrite(&data),), |value| {
                *value = 5;
                Ok(())
            });
            let fine = d.spawn((d.commute(&data),), |value| {
                *value += 1;
                Ok(*value)
            });
            assert_eq!(fine.take()?, 6);
            Ok(())
        })?;
        assert_eq!((data.into_inner(), ran.into_inner()), (6, 0));
        Ok(())
    })
}

/// A scope that is given up ends those that wait for data; who has them goes on, and who comes after
/// those that were ended still waits for it.
#[test]
fn a_turn_that_is_given_up() -> Result<()> {
    World::default().everywhere("commuting::a_turn_that_is_given_up", &[1], |ctx| {
        given_up(ctx, true)?;
        given_up(ctx, false)
    })
}

fn given_up(ctx: &Ctx, commutes: bool) -> Result<()> {
    static DATA: Data<usize> = Data::new(0);
    let (inside, begun, leave) =
        (AtomicUsize::new(0), AtomicBool::new(false), AtomicBool::new(false));
    ctx.datadeps(|d| {
        let (inside, begun, leave) = (&inside, &begun, &leave);
        let uses = if commutes { d.commute(&DATA) } else { d.write(&DATA) };
        d.spawn((uses,), move |_| {
            let _inside = Inside::new(inside);
            begun.store(true, Release);
            while !leave.load(Acquire) {
                std::thread::yield_now();
            }
            Ok(())
        });
        while !begun.load(Acquire) {
            std::thread::yield_now();
        }
        let failed = spmd(1, |inner| {
            inner.spawn(|| {
                spmd::tasks::datadeps(|e| {
                    for _ in 0..10 {
                        e.spawn((e.commute(&DATA),), |_| Ok(()));
                    }
                    e.spawn((e.write(&DATA),), |_| Ok(()));
                    Ok(())
                })
            });
            std::thread::sleep(Duration::from_millis(50));
            Err::<(), _>("no more".into())
        });
        let next = d.spawn((d.overwrite(&DATA),), move |value| {
            let _inside = Inside::new(inside);
            *value = 1;
            Ok(())
        });
        std::thread::sleep(Duration::from_millis(50));
        let too_early = next.is_over();
        leave.store(true, Release);
        assert!(failed.is_err() && !too_early);
        next.take()
    })
}
