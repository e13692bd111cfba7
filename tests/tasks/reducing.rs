//! Tasks that add to data what they have made by themselves.

use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::time::Duration;

use spmd::prelude::*;

use crate::support::{World, processes};

/// Sums of numbers of very different size, of which the bits show the order.
fn sums(ctx: &Ctx) -> Result<()> {
    for seed in 0..20 {
        let mut random = fastrand::Rng::with_seed(seed);
        let numbers: Vec<f64> =
            (0..300).map(|_| (random.f64() - 0.5) * 10f64.powi(random.i32(-9..9))).collect();
        let sum = Data::new(0.1);
        let at_half = ctx.datadeps(|d| {
            let add = |x: f64, spins: usize| {
                let part = d.reduce(&sum, || 0.0, |sum, part| *sum += part);
                d.spawn((part,), move |part| {
                    for _ in 0..spins {
                        std::thread::yield_now();
                    }
                    *part += x;
                    Ok(())
                });
            };
            let mut half = None;
            for (i, x) in numbers.iter().enumerate() {
                if i == 150 {
                    half = Some(d.spawn((d.read(&sum),), |sum| Ok(*sum)));
                }
                add(*x, random.usize(0..4));
            }
            half.expect("there are as many").take()
        })?;
        let fold = |numbers: &[f64]| numbers.iter().fold(0.1, |sum, x| sum + (0.0 + x));
        assert_eq!(at_half.to_bits(), fold(&numbers[..150]).to_bits());
        assert_eq!(sum.into_inner().to_bits(), fold(&numbers).to_bits());
    }
    Ok(())
}

#[test]
fn the_same_bits() -> Result<()> {
    World::default().everywhere("reducing::the_same_bits", &[1, 2, 4], sums)?;
    processes("reducing::the_same_bits", 1, &[("SPMD_CORES", "1")], sums)
}

/// A part that counts those that are there.
struct Counted<'a> {
    alive: &'a AtomicUsize,
    sum: usize,
}

impl<'a> Counted<'a> {
    fn new(alive: &'a AtomicUsize, most: &AtomicUsize) -> Counted<'a> {
        most.fetch_max(alive.fetch_add(1, SeqCst) + 1, SeqCst);
        Counted { alive, sum: 0 }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, SeqCst);
    }
}

/// While the first task waits, nothing is added: 255 others come to an end.
#[test]
fn a_bound_on_parts() -> Result<()> {
    World::default().everywhere("reducing::a_bound_on_parts", &[2], |ctx| {
        let (alive, most, done) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        let [alive, most, done] = [&alive, &most, &done];
        let total = Data::new(Counted::new(alive, most));
        let comm = ctx.dup()?;
        if ctx.rank() == 1 {
            ctx.barrier()?;
            return comm.send(&[1u8], 0, 0);
        }
        ctx.datadeps(|d| {
            let part = || {
                let identity = move || Counted::new(alive, most);
                d.reduce(&total, identity, |total, part| total.sum += part.sum)
            };
            d.spawn((part(),), move |part| {
                part.sum = 1;
                comm.recv(&mut [0u8], 1, 0).map(drop)
            });
            for _ in 1..1000 {
                d.spawn((part(),), move |part| {
                    part.sum = 1;
                    done.fetch_add(1, SeqCst);
                    Ok(())
                });
            }
            while done.load(SeqCst) < 255 {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!((done.load(SeqCst), alive.load(SeqCst)), (255, 1 + 256));
            ctx.barrier()
        })?;
        assert_eq!((total.into_inner().sum, most.load(SeqCst)), (1000, 1 + 256));
        assert_eq!(alive.load(SeqCst), 0);
        Ok(())
    })
}

/// They make their parts while the data are in use, and whatever has become of these.
#[test]
fn parts_wait_for_nobody() -> Result<()> {
    World::default().everywhere("reducing::parts_wait_for_nobody", &[1, 2], |ctx| {
        let (data, other) = (Data::new(1), Data::new(0));
        ctx.datadeps(|d| {
            let writes = d.spawn((d.write(&data),), |_| Err::<(), _>("lost".into()));
            let part = d.reduce(&data, || 0, |sum, part| *sum += part);
            let makes = d.spawn((part, d.write(&other)), |part, other| {
                *part = 2;
                *other += 1;
                Ok(())
            });
            makes.take()?;
            let reads = d.spawn((d.read(&data),), |value| Ok(*value));
            assert!(reads.take().expect_err("it was lost").to_string().contains("lost"));
            assert!(writes.take().is_err());
            Ok(())
        })?;
        assert_eq!((data.into_inner(), other.into_inner()), (1, 1));
        Ok(())
    })
}

/// What is spawned before the one that fails is added, nothing after it.
#[test]
fn failures_in_between() -> Result<()> {
    World::default().everywhere("reducing::failures_in_between", &[1, 2], |ctx| {
        let mut data = Data::new(0);
        let error = ctx.datadeps(|d| {
            for i in 0..50 {
                let part = d.reduce(&data, || 0, |sum, part| *sum += part);
                d.spawn((part,), move |part| {
                    *part = 1;
                    if i == 30 { Err("no thirtieth".into()) } else { Ok(()) }
                });
            }
            let reads = d.spawn((d.read(&data),), |value| Ok(*value));
            assert!(reads.take().expect_err("one is missing").to_string().contains("thirtieth"));
            Ok(())
        });
        assert!(error.expect_err("a task has failed").to_string().contains("no thirtieth"));
        assert_eq!(*data.get_mut(), 30);
        let error = ctx.datadeps(|d| {
            d.spawn((d.overwrite(&data),), |value| {
                *value = 0;
                Ok(())
            });
            for i in 0..50 {
                let part = d.reduce(
                    &data,
                    move || i,
                    |sum, part| {
                        assert!(part != 7, "not seven");
                        *sum += 1;
                    },
                );
                d.spawn((part,), |_| Ok(()));
            }
            Ok(())
        });
        assert!(error.expect_err("what adds panics").to_string().contains("not seven"));
        assert_eq!(data.into_inner(), 7);
        Ok(())
    })
}

/// Beside other uses of other data, and into two at a time.
#[test]
fn two_at_a_time() -> Result<()> {
    World::default().everywhere("reducing::two_at_a_time", &[1, 2], |ctx| {
        let numbers: Vec<Data<u64>> = (0..100).map(Data::new).collect();
        let (sum, list) = (Data::new(0), Data::new(Vec::new()));
        ctx.datadeps(|d| {
            for number in &numbers {
                d.spawn((d.write(number),), |x| {
                    *x += 1;
                    Ok(())
                });
                let add = d.reduce(&sum, || 0, |sum, part: u64| *sum += part);
                let push = d.reduce(&list, Vec::new, |list, part| list.extend(part));
                d.spawn((d.read(number), add, push), |x, sum, list| {
                    *sum = *x;
                    list.push(*x);
                    Ok(())
                });
            }
            Ok(())
        })?;
        assert_eq!(list.into_inner(), Vec::from_iter(1..=100));
        assert_eq!(sum.into_inner(), 5050);
        Ok(())
    })
}
