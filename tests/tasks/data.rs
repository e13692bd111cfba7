//! Tasks that follow each other by the data that they use.

use std::sync::atomic::{AtomicUsize, Ordering::*};

use spmd::prelude::*;
use spmd::tasks::{datadeps, spawn};

use crate::support::World;

/// Those that read run at the same time; who writes is alone.
#[test]
fn readers_share_and_writers_do_not() -> Result<()> {
    World::default().everywhere("data::readers_share_and_writers_do_not", &[1], |ctx| {
        let (data, inside) = (Data::new(0usize), AtomicUsize::new(0));
        ctx.datadeps(|d| {
            for round in 0..200 {
                let inside = &inside;
                if round % 5 == 0 {
                    d.spawn((d.write(&data),), move |value| {
                        assert_eq!(inside.swap(1000, SeqCst), 0);
                        *value += 1;
                        std::thread::yield_now();
                        assert_eq!(inside.swap(0, SeqCst), 1000);
                        Ok(())
                    });
                } else {
                    d.spawn((d.read(&data), d.read(&data)), move |value, same| {
                        assert!(inside.fetch_add(1, SeqCst) < 1000);
                        assert_eq!((*value, *same), (round / 5 + 1, round / 5 + 1));
                        std::thread::yield_now();
                        inside.fetch_sub(1, SeqCst);
                        Ok(())
                    });
                }
            }
            Ok(())
        })?;
        assert_eq!(data.into_inner(), 40);
        Ok(())
    })
}

#[test]
fn failures_follow_the_data() -> Result<()> {
    World::default().everywhere("data::failures_follow_the_data", &[1, 2], |ctx| {
        let (mut a, mut b) = (Data::new(1), Data::new(1));
        ctx.datadeps(|d| {
            let fails = d.spawn((d.write(&a),), |_| Err::<(), _>("no pivot".into()));
            let reads = d.spawn((d.read(&a), d.write(&b)), |a, b| {
                *b = *a;
                Ok(())
            });
            let later = d.spawn((d.read(&b),), |b| Ok(*b));
            // What was there does not matter to this one.
            let heals = d.spawn((d.overwrite(&a),), |a| {
                *a = 7;
                Ok(())
            });
            let fine = d.spawn((d.read(&a),), |a| Ok(*a));
            assert!(fails.take().expect_err("it fails").to_string().contains("no pivot"));
            for error in [reads.take().err(), later.take().map(drop).err()] {
                let error = error.expect("it follows one that fails").to_string();
                assert!(error.contains(" did not run: ") && error.contains("no pivot"), "{error}");
            }
            heals.take()?;
            assert_eq!(fine.take()?, 7);
            Ok(())
        })?;
        assert_eq!((*a.get_mut(), *b.get_mut()), (7, 1));
        // One that nobody asks for.
        let error = ctx.datadeps(|d| {
            d.spawn((d.write(&a),), |_| Err::<(), _>("unseen".into()));
            Ok(())
        });
        assert!(error.expect_err("a task has failed").to_string().contains("unseen"));
        Ok(())
    })
}

#[test]
fn data_named_twice_are_refused() -> Result<()> {
    World::default().everywhere("data::data_named_twice_are_refused", &[1], |ctx| {
        let (a, b) = (Data::new(1), Data::new(2));
        ctx.datadeps(|d| {
            let twice = d.spawn((d.read(&a), d.write(&b), d.write(&a)), |_, _, _| Ok(()));
            let error = twice.take().expect_err("it is an alias").to_string();
            assert!(error.contains("names data twice, and writes them"), "{error}");
            Ok(())
        })
    })
}

/// Several regions at a time on the same data, each of which takes them in another order.
#[test]
fn regions_at_the_same_time() -> Result<()> {
    static DATA: [Data<u64>; 3] = [const { Data::new(0) }; 3];
    let spin = |from: usize| {
        move || {
            datadeps(|d| {
                for i in 0..500 {
                    let [x, y, z] = [0, 1, 2].map(|k| (from * (k + 1) + i) % 3);
                    if x == y || y == z || x == z {
                        d.spawn((d.write(&DATA[x]),), |x| {
                            *x += 3;
                            Ok(())
                        });
                        continue;
                    }
                    let uses = (d.write(&DATA[x]), d.write(&DATA[y]), d.write(&DATA[z]));
                    d.spawn(uses, |x, y, z| {
                        *x += 1;
                        *y += 1;
                        *z += 1;
                        Ok(())
                    });
                }
                Ok(())
            })
        }
    };
    spmd(1, |ctx| {
        let tasks = [0, 1, 2].map(|from| ctx.spawn(spin(from)));
        tasks.into_iter().try_for_each(Task::take)?;
        let total = ctx.datadeps(|d| {
            let uses = (d.read(&DATA[0]), d.read(&DATA[1]), d.read(&DATA[2]));
            d.spawn(uses, |x, y, z| Ok(x + y + z)).take()
        })?;
        assert_eq!(total, 3 * 3 * 500);
        let _ = spawn(|| Ok(()));
        Ok(())
    })
    .map(drop)
}
