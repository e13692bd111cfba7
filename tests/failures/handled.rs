//! Failures that a program deals with, one after the other, thousands of times.

use std::sync::atomic::{AtomicBool, Ordering};

use spmd::prelude::*;

/// So many failures in a row must be no more than one is.
pub(crate) const MANY: usize = 10_000;

/// Where ranks run.
const PLACES: [fn(Spmd) -> Spmd; 3] =
    [Spmd::threads, Spmd::virtual_ranks, |spmd| spmd.virtual_ranks().workers(1)];

/// Copies of the communicator on which the ranks' calls differ; its own go well.
pub(crate) fn stopped_copies(ctx: &Ctx, turns: usize) -> Result<()> {
    for turn in 0..turns {
        let copy = ctx.dup()?;
        if turn % 100 == 99 {
            assert_eq!(ctx.allreduce_value(ctx.rank(), Sum)?, ctx.size() * (ctx.size() - 1) / 2);
        }
        let outcome = match ctx.rank() == turn % ctx.size() {
            true => copy.barrier(),
            false => copy.allreduce_value(turn, Sum).map(drop),
        };
        let error = outcome.expect_err("the calls differ");
        let text = error.to_string();
        assert!(text.starts_with("the ranks' calls do not match"), "turn {turn}: {text}");
        assert_eq!(copy.barrier().expect_err("it stays stopped").to_string(), text);
    }
    ctx.barrier()
}

/// Ranks 0 and 1 stop copies of a communicator of their own until they are through; rank 2 has seen
/// none of it when it comes to its only call.
pub(crate) fn while_another_computes(ctx: &Ctx, through: &AtomicBool, turns: usize) -> Result<()> {
    let pair = ctx.split((ctx.rank() < 2).then_some(0), 0)?;
    let late = ctx.dup()?;
    if let Some(pair) = pair {
        if pair.rank() == 0 {
            late.broadcast(&mut [0u8], 0)?;
            drop(late);
        }
        stopped_copies_of(&pair, turns)?;
        through.store(true, Ordering::Relaxed);
    } else {
        while !through.load(Ordering::Relaxed) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        late.broadcast(&mut [0u8], 0)?;
    }
    ctx.barrier()
}

fn stopped_copies_of(comm: &spmd::Comm, turns: usize) -> Result<()> {
    for turn in 0..turns {
        let copy = comm.dup()?;
        let outcome = match comm.rank() {
            0 => copy.barrier(),
            _ => copy.allreduce_value(turn, Sum).map(drop),
        };
        outcome.expect_err("the calls differ");
    }
    Ok(())
}

#[test]
fn communicators_that_are_stopped() {
    // Where ranks meet on several threads, it takes as long as these need to take turns.
    let turns = [MANY / 5, MANY / 20, MANY];
    for (place, turns) in PLACES.into_iter().zip(turns) {
        for (n, turns) in [(2, turns), (5, turns / 20), (16, turns / 20)] {
            place(Spmd::new(n)).run(|ctx| stopped_copies(ctx, turns)).unwrap();
        }
    }
}

#[test]
fn a_rank_that_sees_none_of_it() {
    for place in [Spmd::threads, |spmd: Spmd| spmd.virtual_ranks().workers(3)] {
        let through = AtomicBool::new(false);
        place(Spmd::new(3)).run(|ctx| while_another_computes(ctx, &through, 2000)).unwrap();
    }
}

/// Communicators of survivors that fail again and again.
#[test]
fn shrinking_after_each() {
    for place in PLACES {
        let sizes = place(Spmd::new(4)).run(|ctx| {
            let mut comm = ctx.shrink()?;
            for turn in 0..MANY / 4 {
                let outcome = match comm.rank() == turn % 4 {
                    true => comm.barrier(),
                    false => comm.allreduce_value(turn, Sum).map(drop),
                };
                outcome.expect_err("the calls differ");
                comm = comm.shrink()?;
                assert_eq!(comm.allreduce_value(1, Sum)?, 4);
            }
            Ok(comm.size())
        });
        assert_eq!(sizes.unwrap(), [4; 4]);
    }
}

/// Blocks that fail, and good ones in between.
#[test]
fn blocks_that_fail() {
    for place in PLACES {
        for turn in 0..MANY / 20 {
            let result = place(Spmd::new(4)).run(|ctx| {
                match turn % 4 {
                    0 if ctx.rank() == turn / 4 % 4 => return Err("deliberate".into()),
                    1 if ctx.rank() == turn / 4 % 4 => ctx.send(&[1], ctx.rank(), 0)?,
                    2 if ctx.rank() == turn / 4 % 4 => return Ok(0),
                    _ => {}
                }
                ctx.allreduce_value(turn, Sum)
            });
            match turn % 4 {
                3 => assert_eq!(result.unwrap(), [4 * turn; 4]),
                _ => drop(result.expect_err("the block fails")),
            }
        }
    }
}

#[cfg(target_os = "linux")]
mod processes {
    use super::*;
    use crate::job::{DEED, Ended, Job, exit_with};
    use crate::support::is_process_rank;

    /// Blocks that fail in different ways, none of which may trouble the next one.
    fn blocks(turns: usize) -> Result<()> {
        for turn in 0..turns {
            // What must last before it is found is rare.
            let kind = if turn % 5 == 2 && turn % 250 > 4 { 0 } else { turn % 5 };
            let kind = if kind == 3 && turn % 1000 > 4 { 1 } else { kind };
            let outcome = run(|ctx| {
                let (me, n) = (ctx.rank(), ctx.size());
                if turn % 5 > 0 {
                    ctx.send(&[turn], (me + 1) % n, 7)?; // it is received in good blocks alone
                }
                let odd = me == turn / 5 % n;
                match kind {
                    0 if odd => return Err("deliberate".into()),
                    1 if odd => ctx.barrier()?,
                    2 if odd => return Ok(()),
                    3 if odd => ctx.recv(&mut [0u8], (me + 1) % n, 3).map(drop)?,
                    4 => {
                        let mut before = [0];
                        ctx.recv(&mut before, (me + n - 1) % n, 7)?;
                        assert_eq!(before, [turn]);
                    }
                    _ => {}
                }
                assert_eq!(ctx.allreduce_value(me + turn, Sum)?, n * (n - 1) / 2 + n * turn);
                Ok(())
            });
            match outcome {
                Ok(_) => assert!(kind == 4, "block {turn} fails"),
                Err(error) => assert!(kind != 4, "block {turn} is good: {error}"),
            }
        }
        Ok(())
    }

    /// Blocks of which the rank that fails goes on at once, and those that it stops half a second
    /// later.
    fn late(turns: usize) -> Result<()> {
        for turn in 0..turns {
            let error = run(|ctx| match ctx.rank() {
                0 => Err::<(), _>(format!("failure {turn}").into()),
                rank => {
                    std::thread::sleep(std::time::Duration::from_millis(if rank == 1 {
                        60
                    } else {
                        0
                    }));
                    ctx.barrier()
                }
            })
            .expect_err("rank 0 fails");
            assert!(error.to_string().ends_with(&format!("failure {turn}")), "{turn}: {error}");
        }
        run(|ctx| ctx.barrier()).map(drop)
    }

    #[test]
    #[ignore = "the program of other tests"]
    fn program() {
        if !is_process_rank() {
            return;
        }
        let deed = std::env::var(DEED).expect("set by the test");
        exit_with(match deed.as_str() {
            "blocks" => blocks(MANY / 5),
            "late" => late(20),
            "copies" => run(|ctx| stopped_copies(ctx, MANY / 20)).map(drop),
            "computes" => run(|ctx| {
                // Each process has its own.
                let through = AtomicBool::new(ctx.rank() == 2);
                if ctx.rank() == 2 {
                    std::thread::sleep(std::time::Duration::from_millis(1500));
                }
                while_another_computes(ctx, &through, 2000)
            })
            .map(drop),
            "cycle" => run(|ctx| match ctx.rank() {
                0 => ctx.shrink().map(drop),
                _ => ctx.barrier(),
            })
            .map(drop),
            "once more" => {
                run(|ctx| ctx.barrier().map(|()| ctx.rank())).and_then(|ranks| match *ranks {
                    [1] => run(|_| Ok(())).map(drop),
                    _ => Ok(()),
                })
            }
            other => panic!("no such deed: {other}"),
        });
    }

    fn all_end_well(deed: &str, ranks: usize) -> Ended {
        let arguments = ["-n", &ranks.to_string()];
        let ended = Job::start("handled::processes::program", &arguments, &[(DEED, deed)]).end();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let well = ended.said().iter().filter(|said| said.text == "ended well").count();
        assert_eq!(well, ranks, "{ended:?}");
        ended
    }

    #[test]
    fn many_blocks() {
        all_end_well("blocks", 3);
    }

    #[test]
    fn ranks_that_learn_late() {
        all_end_well("late", 4);
    }

    #[test]
    fn many_communicators() {
        all_end_well("copies", 3);
    }

    #[test]
    fn a_rank_that_learns_of_none() {
        all_end_well("computes", 3);
    }

    /// All ranks wait for each other, one of them in a call that goes on when others fail.
    #[test]
    fn a_cycle_with_a_rank_that_shrinks() {
        for _ in 0..8 {
            let ended = Job::start("handled::processes::program", &["-n", "3"], &[(DEED, "cycle")]);
            let ended = ended.end();
            assert_eq!(ended.code, Some(1), "{ended:?}");
            let said = ended.said();
            assert!(said.iter().all(|said| said.text.starts_with("deadlock: ")), "{ended:?}");
            assert!(said.len() == 3 && ended.last_line().contains("deadlock: "), "{ended:?}");
        }
    }

    #[test]
    fn a_rank_that_enters_the_world_once_more() {
        let ended = Job::start("handled::processes::program", &["-n", "3"], &[(DEED, "once more")]);
        let ended = ended.end();
        assert_eq!(ended.code, Some(1), "{ended:?}");
        let text = "rank 0 ended without entering the world once more, as other ranks did (rank 1: \
                    end of the block at tests/failures/handled.rs:";
        let said = ended.said();
        assert!(said.iter().any(|it| it.rank == 1 && it.text.starts_with(text)), "{ended:?}");
    }
}
