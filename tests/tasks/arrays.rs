//! Tasks that use parts of arrays.

use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::{Duration, Instant};

use spmd::prelude::*;
use spmd::tasks::{DataMatrix, DataSlice};

use crate::support::World;

/// Waits until the other one is there, too: both run at the same time.
fn meet(mine: &AtomicBool, other: &AtomicBool) -> Result<()> {
    mine.store(true, Release);
    let start = Instant::now();
    while !other.load(Acquire) {
        if start.elapsed() > Duration::from_secs(60) {
            return Err("the other one does not come".into());
        }
        std::thread::yield_now();
    }
    Ok(())
}

/// What has nothing in common goes on at the same time, what has an element in common does not.
#[test]
fn parts_that_meet() -> Result<()> {
    // One rank with as many workers as two have: two tasks that meet take both.
    World::default().threads(2, |ctx| {
        if ctx.rank() != 0 {
            return Ok(());
        }
        let (mut numbers, mut more) = ([0; 100], [0; 100]);
        let (slice, matrix) = (DataSlice::new(&mut numbers), DataMatrix::new(&mut more, 10)?);
        let flags: [AtomicBool; 4] = Default::default();
        ctx.datadeps(|d| {
            let flags = &flags;
            d.spawn((d.write(slice.range(10..20)),), |_| meet(&flags[0], &flags[1]));
            d.spawn((d.write(slice.range(20..=29)),), |_| meet(&flags[1], &flags[0]));
            let after = d.spawn((d.read(slice.range(19..21)),), |_| {
                Ok(flags[0].load(Acquire) && flags[1].load(Acquire))
            });
            assert!(after.take()?);
            // The same rows, other columns.
            d.spawn((d.write(matrix.tile(2..8, 1..3)),), |_| meet(&flags[2], &flags[3]));
            d.spawn((d.write(matrix.tile(2..8, 3..4)),), |_| meet(&flags[3], &flags[2]));
            Ok(())
        })
    })
}

#[test]
fn parts_that_are_not_there() -> Result<()> {
    World::default().everywhere("arrays::parts_that_are_not_there", &[1], |ctx| {
        let (mut numbers, mut none) = ([0; 12], [0u8; 0]);
        assert!(DataMatrix::new(&mut numbers, 5).is_err());
        assert!(DataMatrix::new(&mut numbers, 0).is_err());
        let error = DataMatrix::new(&mut none, 0).map(drop).expect_err("no rows of nothing");
        assert!(error.to_string().contains("0 elements are no rows of 0"), "{error}");
        let matrix = DataMatrix::new(&mut numbers, 4)?;
        let empty = DataSlice::new(&mut none);
        ctx.datadeps(|d| {
            #[expect(clippy::reversed_empty_ranges, reason = "that is refused")]
            let wrong = [
                (matrix.tile(2..4, ..), "rows 2..4 where there are 3"),
                (matrix.tile(.., 4..=4), "columns 4..5 where there are 4"),
                (matrix.tile(2..1, ..), "rows 2..1 where there are 3"),
            ];
            for (tile, why) in wrong {
                let error = d.spawn((d.read(tile),), |_| Ok(())).take().expect_err("none there");
                assert!(error.to_string().contains(why), "{error}");
            }
            let error = d.spawn((d.write(empty.range(0..1)),), |_| Ok(())).take();
            assert!(error.expect_err("none there").to_string().contains("elements 0..1 where"));
            // Nothing is a part, too, and in nobody's way.
            let nothing = (d.write(empty.range(..)), d.write(matrix.tile(1..1, ..)));
            assert!(
                d.spawn(nothing, |range, rows| Ok(range.is_empty() && rows.is_empty())).take()?
            );
            Ok(())
        })
    })
}

#[test]
fn parts_of_one_task() -> Result<()> {
    World::default().everywhere("arrays::parts_of_one_task", &[1, 2], |ctx| {
        let mut numbers: Vec<usize> = (0..100).collect();
        let matrix = DataMatrix::new(&mut numbers, 10)?;
        ctx.datadeps(|d| {
            let meets = (d.write(matrix.tile(..5, ..5)), d.read(matrix.tile(4.., 4..)));
            let error = d.spawn(meets, |_, _| Ok(())).take().expect_err("they meet").to_string();
            assert!(error.contains("names data twice, and writes them"), "{error}");
            // All tiles of 2 × 2, in one task.
            let tiles = (0..25).map(|i| (2 * (i / 5), 2 * (i % 5)));
            let tiles = tiles.map(|(i, j)| matrix.tile(i..i + 2, j..j + 2));
            d.spawn((d.write_all(tiles),), |tiles| {
                for (number, tile) in tiles.into_iter().enumerate() {
                    tile.into_iter().flatten().for_each(|x| *x += 100 * number);
                }
                Ok(())
            });
            let read = (d.read(matrix.tile(.., ..)), d.read(matrix.tile(3..4, ..)));
            let same = d.spawn(read, |all, row| Ok(all[3] == row[0]));
            assert!(same.take()?);
            Ok(())
        })?;
        for (at, x) in numbers.into_iter().enumerate() {
            assert_eq!(x, at + 100 * (at / 20 * 5 + at % 10 / 2));
        }
        Ok(())
    })
}

/// An element has its last writer's fate, however parts are cut.
#[test]
fn failures_of_parts() -> Result<()> {
    World::default().everywhere("arrays::failures_of_parts", &[1, 2], |ctx| {
        let mut numbers = [0; 100];
        let slice = DataSlice::new(&mut numbers);
        ctx.datadeps(|d| {
            let fails = d.spawn((d.write(slice.range(10..90)),), |_| Err::<(), _>("torn".into()));
            d.spawn((d.overwrite(slice.range(40..50)),), |part| {
                part.fill(1);
                Ok(())
            });
            let good = [0..10, 40..50, 90..100];
            for part in good {
                d.spawn((d.read(slice.range(part)),), |_| Ok(())).take()?;
            }
            for part in [9..11, 39..41, 49..51, 0..100] {
                let error = d.spawn((d.read(slice.range(part)),), |_| Ok(())).take();
                assert!(error.expect_err("it was torn").to_string().contains("torn"));
            }
            assert!(fails.take().is_err());
            Ok(())
        })?;
        assert_eq!(numbers[40..50], [1; 10]);
        Ok(())
    })
}

/// Whoever is over takes no memory and no time of those that come next.
#[test]
fn a_hundred_thousand_tasks() -> Result<()> {
    World::default().everywhere("arrays::a_hundred_thousand_tasks", &[1], |ctx| {
        let mut numbers = vec![0u32; 1000];
        let slice = DataSlice::new(&mut numbers);
        ctx.datadeps(|d| {
            for i in 0..100_000 {
                let part = slice.range(i % 991..i % 991 + 10);
                let task = d.spawn((d.write(part),), |part| {
                    part.iter_mut().for_each(|x| *x += 1);
                    Ok(())
                });
                if i % 100 == 0 {
                    task.take()?;
                }
            }
            Ok(())
        })?;
        assert_eq!(numbers.iter().sum::<u32>(), 1_000_000);
        Ok(())
    })
}
