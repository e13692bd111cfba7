//! Tasks that use any number of data.

use spmd::prelude::*;

use crate::support::World;

/// A sum of all by a tree of tasks, each of which reads as many as there are.
#[test]
fn a_tree() -> Result<()> {
    World::default().everywhere("many::a_tree", &[1, 2], |ctx| {
        for (width, leaves) in [(2, 64), (7, 100), (100, 100), (3, 1)] {
            let mut level: Vec<Data<usize>> = (0..leaves).map(Data::new).collect();
            let mut levels = Vec::new();
            while level.len() > 1 {
                let next = (0..level.len().div_ceil(width)).map(|_| Data::new(0)).collect();
                levels.push(std::mem::replace(&mut level, next));
            }
            levels.push(level);
            ctx.datadeps(|d| {
                for pair in levels.windows(2) {
                    for (parts, sum) in pair[0].chunks(width).zip(&pair[1]) {
                        d.spawn((d.read_all(parts), d.overwrite(sum)), |parts, sum| {
                            *sum = parts.into_iter().sum();
                            Ok(())
                        });
                    }
                }
                Ok(())
            })?;
            let root = levels.pop().and_then(|mut root| root.pop()).expect("there is one");
            assert_eq!(root.into_inner(), leaves * (leaves - 1) / 2);
        }
        Ok(())
    })
}

#[test]
fn none_one_and_many() -> Result<()> {
    World::default().everywhere("many::none_one_and_many", &[1], |ctx| {
        let data: Vec<Data<usize>> = (0..1000).map(Data::new).collect();
        ctx.datadeps(|d| {
            for count in [0, 1, 1000] {
                d.spawn((d.write_all(&data[..count]),), move |all| {
                    assert_eq!(all.len(), count);
                    all.into_iter().for_each(|x| *x += 1);
                    Ok(())
                });
                let both = (d.read_all(&data[..count]), d.read_all(data[..count].iter().rev()));
                d.spawn(both, move |all, back| {
                    assert!(all.iter().eq(back.iter().rev()) && all.len() == count);
                    Ok(())
                });
            }
            d.spawn((d.overwrite_all(data.iter().step_by(2)),), |even| {
                even.into_iter().for_each(|x| *x = 0);
                Ok(())
            });
            Ok(())
        })?;
        for (i, x) in data.into_iter().enumerate() {
            let all = i + 1 + usize::from(i == 0);
            assert_eq!(x.into_inner(), if i % 2 == 0 { 0 } else { all });
        }
        Ok(())
    })
}

#[test]
fn one_that_is_written_is_named_once() -> Result<()> {
    World::default().everywhere("many::one_that_is_written_is_named_once", &[1], |ctx| {
        let data: Vec<Data<u8>> = (0..10).map(Data::new).collect();
        ctx.datadeps(|d| {
            let again = data.iter().chain([&data[7]]);
            let twice = [
                d.spawn((d.write_all(again.clone()),), |_| Ok(())),
                d.spawn((d.read_all(&data), d.write(&data[3])), |_, _| Ok(())),
                d.spawn((d.commute(&data[0]), d.commute(&data[0])), |_, _| Ok(())),
                d.spawn((d.read(&data[0]), d.reduce(&data[0], || 0, |_, _| ())), |_, _| Ok(())),
            ];
            for task in twice {
                let error = task.take().expect_err("it is an alias").to_string();
                assert!(error.contains("names data twice, and writes them"), "{error}");
            }
            assert_eq!(d.spawn((d.read_all(again),), |all| Ok(all.len())).take()?, 11);
            Ok(())
        })
    })
}

#[test]
fn one_of_many_has_failed() -> Result<()> {
    World::default().everywhere("many::one_of_many_has_failed", &[1, 2], |ctx| {
        let data: Vec<Data<u8>> = (0..10).map(Data::new).collect();
        ctx.datadeps(|d| {
            let fails = d.spawn((d.write(&data[7]),), |_| Err::<(), _>("rotten".into()));
            let tasks = [
                d.spawn((d.read_all(&data),), |_| Ok(())),
                d.spawn((d.write_all(&data[5..]),), |_| Ok(())),
                // It was to be written by the one before.
                d.spawn((d.read(&data[5]),), |_| Ok(())),
            ];
            for task in tasks {
                let error = task.take().expect_err("one is no good").to_string();
                assert!(error.contains(" did not run: ") && error.contains("rotten"), "{error}");
            }
            d.spawn((d.overwrite_all(&data),), |_| Ok(())).take()?;
            d.spawn((d.read_all(&data),), |_| Ok(())).take()?;
            assert!(fails.take().is_err());
            Ok(())
        })
    })
}
