//! Tasks that are handed out while ranks fail.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use spmd::prelude::*;

use crate::survive::{PLACES, survivors};

fn squares(tasks: &[u64]) -> Vec<u64> {
    tasks.iter().map(|task| task * task).collect()
}

/// The first rank but 0 that comes to a task fails in it.
#[test]
fn the_others_do_its_tasks() {
    let tasks: Vec<u64> = (0..40).collect();
    let ways: [fn() -> Result<u64>; 2] =
        [|| panic!("deliberate"), || std::panic::resume_unwind(Box::new("deliberate"))];
    for (way, place) in ways.iter().flat_map(|way| PLACES.map(|it| (way, it))) {
        for n in [2, 3, 8] {
            let failed = AtomicUsize::new(0);
            let (values, error) = survivors(place(Spmd::new(n)), |ctx| {
                let squares = ctx.map_dynamic(&tasks, |task| {
                    if *task == 17 && failed.fetch_add(1, Relaxed) == 0 {
                        way()?;
                    }
                    std::thread::sleep(Duration::from_micros(50));
                    Ok(task * task)
                })?;
                ctx.barrier().expect_err("a rank is missing");
                Ok((ctx.shrink()?.size(), squares))
            });
            assert_eq!(values.len(), n - 1, "{n} ranks: {error:?}");
            for (_, (left, got)) in values {
                assert_eq!((left, got), (n - 1, squares(&tasks)));
            }
            assert!(error.is_some(), "the block tells of the failure");
        }
    }
}

/// A task in which every rank fails ends with an error when three have, not with the last one.
#[test]
fn a_task_in_which_ranks_fail() {
    for place in PLACES {
        let (values, _) = survivors(place(Spmd::new(6)), |ctx| {
            let ended = ctx.map_dynamic(&[1, 2, 3, 4], |task| match task {
                2 => panic!("deliberate"),
                _ => Ok(*task),
            });
            Ok(ended.expect_err("nobody can do task 2").to_string())
        });
        assert_eq!(values.len(), 3, "{values:?}");
        for (_, text) in values {
            assert!(
                text.contains("task 1: ranks [") && text.contains(" have failed in it"),
                "{text}"
            );
        }
    }
}

#[test]
fn different_tasks() {
    for place in PLACES {
        let ended = place(Spmd::new(3)).run(|ctx| {
            let tasks = vec![1; 5 + ctx.rank() / 2];
            let ended = ctx.map_dynamic(&tasks, |task| Ok(*task));
            Ok(ended.expect_err("rank 2 has one more").to_string())
        });
        let texts = ended.expect("no rank fails");
        assert!(texts[0].contains("5 tasks here, 6 on rank 2"), "{texts:?}");
        assert!(texts[2].contains("6 tasks here, 5 on rank 0"), "{texts:?}");
    }
}

#[cfg(target_os = "linux")]
mod processes {
    use fastrand::Rng;

    use super::*;
    use crate::job::{DEED, Job, exit_with, now, say};
    use crate::support::is_process_rank;
    use crate::survival::die;

    /// Rank and microseconds, with `,` between several.
    fn doom() -> Option<u64> {
        let text = std::env::var(DEED).expect("set by the test");
        let rank = std::env::var("SPMD_RANK").ok()?;
        let mine = text.split(',').find_map(|doom| doom.strip_prefix(&format!("{rank} ")));
        mine.map(|micros| micros.parse().expect("a number"))
    }

    #[test]
    #[ignore = "the program of another test"]
    fn handing_out() {
        if !is_process_rank() {
            return;
        }
        let tasks: Vec<u64> = (0..200).collect();
        let ended = run(|ctx| {
            if let Some(micros) = doom() {
                std::thread::spawn(move || {
                    std::thread::sleep(Duration::from_micros(micros));
                    die();
                });
            }
            let got = ctx.map_dynamic(&tasks, |task| {
                std::thread::sleep(Duration::from_micros(200 + task % 5 * 100));
                Ok(task * task)
            })?;
            // Who is to die has not left before, ..
            if doom().is_some() {
                std::thread::sleep(Duration::from_secs(60));
            }
            // .. and the others go on without it, also if it dies when all tasks are done.
            let left = ctx.shrink()?.size();
            say(&format!("right {}, {left} left", got == squares(&tasks)));
            Ok(())
        });
        exit_with(ended.map(drop));
    }

    /// Two of five die at any time, rank 0 as well as others.
    #[test]
    fn two_of_five_are_killed() {
        let seed = std::env::var("SPMD_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or(now() as u64);
        println!("SPMD_TEST_SEED={seed}");
        let mut random = Rng::with_seed(seed);
        for turn in 0..15 {
            let (one, next) = (random.u64(..5), 1 + random.u64(..4));
            let victims = [one, (one + next) % 5];
            let doom = victims.map(|rank| format!("{rank} {}", random.u64(..30_000)));
            let deed = doom.join(",");
            let job = Job::start("dynamic::processes::handing_out", &["-n", "5"], &[(DEED, &deed)]);
            let ended = job.end();
            let case = format!("turn {turn} of seed {seed}: {deed}: {ended:?}");
            assert_eq!(ended.code, Some(0), "{case}");
            assert_eq!(ended.out.matches("right true, 3 left").count(), 3, "{case}");
        }
    }
}
