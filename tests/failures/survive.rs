//! Thread and virtual ranks that go on when others fail.

use std::sync::Mutex;
use std::time::Duration;

use spmd::Fault;
use spmd::prelude::*;

use crate::use_all::use_all;

/// Where ranks run: as they do, and as if in processes of their own.
pub const PLACES: [fn(Spmd) -> Spmd; 4] = [
    Spmd::threads,
    |spmd| spmd.threads().unreachable_buffers(),
    Spmd::virtual_ranks,
    |spmd| spmd.virtual_ranks().workers(1),
];

/// Runs `f` on ranks of which some fail; gives what the others return, in rank order, and the
/// error of the block.
pub fn survivors<R: Send>(
    block: Spmd,
    f: impl Fn(&Ctx) -> Result<R> + Sync,
) -> (Vec<(usize, R)>, Option<Error>) {
    let values = Mutex::new(Vec::new());
    let whole = block.run(|ctx| {
        let value = f(ctx)?;
        values.lock().unwrap().push((ctx.rank(), value));
        Ok(())
    });
    let mut values = values.into_inner().unwrap();
    values.sort_by_key(|(rank, _)| *rank);
    (values, whole.err())
}

#[test]
fn nothing_has_failed() {
    for place in PLACES {
        for n in [1, 2, 5, 20] {
            let sizes = place(Spmd::new(n)).run(|ctx| {
                let comm = ctx.shrink()?.shrink()?;
                use_all(&comm)?;
                assert_eq!(comm.rank(), ctx.rank());
                ctx.barrier()?;
                Ok(comm.size())
            });
            assert_eq!(sizes.unwrap(), vec![n; n]);
        }
    }
}

/// How a rank fails.
type Way = fn(&Ctx, &mut [f64]) -> Result<()>;

/// Rank 1 fails in the middle of a reduction, in one way or another.
#[test]
fn the_others_go_on() {
    let panics = |ctx: &Ctx, data: &mut [f64]| {
        let op = Op::new(|_: f64, _: f64| panic!("deliberate"));
        ctx.allreduce_in_place(data, op)
    };
    let ways: [Way; 4] = [
        |_, _| Err("deliberate".into()),
        |_, _| panic!("deliberate"),
        panics,
        |ctx, data| {
            let copy = ctx.dup()?;
            copy.allreduce_in_place(data, Sum)?;
            Err("deliberate".into())
        },
    ];
    for ((turn, way), place) in ways.iter().enumerate().flat_map(|way| PLACES.map(|it| (way, it))) {
        // Many take as long as all others together.
        for n in if turn == 2 { &[2, 3, 8, 20][..] } else { &[2, 3, 8] } {
            let n = *n;
            let (values, error) = survivors(place(Spmd::new(n)), |ctx| {
                let mut data = vec![1.0; 50_000];
                ctx.allreduce_in_place(&mut data, Sum)?;
                if ctx.rank() == 1 {
                    way(ctx, &mut data)?;
                }
                let sum = Op::new(|a: f64, b: f64| a + b);
                let error = ctx.allreduce_in_place(&mut data, sum).expect_err("a rank is missing");
                let recoverable = matches!(&error, Error::PeerFailed(peer) if peer.rank == 1)
                    || matches!(error.fault(), Some(Fault::Mismatch { .. }));
                assert!(recoverable, "{error}");
                let comm = ctx.shrink()?;
                use_all(&comm)?;
                // What was stopped stays so.
                ctx.barrier().expect_err("rank 1 is missing");
                use_all(&comm)?;
                Ok((comm.rank(), comm.size()))
            });
            let expected = (0..n).filter(|rank| *rank != 1).enumerate();
            let expected: Vec<_> = expected.map(|(new, old)| (old, (new, n - 1))).collect();
            assert_eq!(values, expected);
            assert!(error.is_some(), "the block tells of the failure");
        }
    }
}

/// One rank after the other fails, the last one finishes.
#[test]
fn until_one_is_left() {
    for place in PLACES {
        let (values, error) = survivors(place(Spmd::new(6)), |ctx| {
            let mut comm = ctx.shrink()?;
            for alive in (1..6).rev() {
                let outcome = comm.barrier().and_then(|()| {
                    if comm.rank() == (alive * 5) % comm.size() {
                        return Err("deliberate".into());
                    }
                    comm.allreduce_value(1, Sum)
                });
                match outcome {
                    Err(Error::PeerFailed(_)) => comm = comm.shrink()?,
                    Err(other) => return Err(other),
                    Ok(_) => panic!("a rank is missing"),
                }
                assert_eq!(comm.size(), alive);
                use_all(&comm)?;
            }
            Ok(comm.size())
        });
        assert_eq!(values.len(), 1);
        assert_eq!(values[0].1, 1);
        assert_eq!(error.unwrap().to_string(), "deliberate");
    }
}

/// Half of the ranks give up, one after the other, while the rest shrinks already.
#[test]
fn ranks_fail_while_others_shrink() {
    for place in PLACES {
        for turn in 0..20 {
            let (values, _) = survivors(place(Spmd::new(8)), |ctx| {
                let me = ctx.rank();
                if me == 0 {
                    return Err("deliberate".into());
                }
                ctx.barrier().expect_err("rank 0 is missing");
                if me % 2 == 0 {
                    std::thread::sleep(Duration::from_micros(100 * (turn % 4) * me as u64));
                    return Err("deliberate".into());
                }
                let comm = ctx.shrink()?;
                use_all(&comm)?;
                Ok(comm.size())
            });
            assert_eq!(values, [(1, 4), (3, 4), (5, 4), (7, 4)]);
        }
    }
}

#[test]
fn all_agree_on_the_same() {
    for place in PLACES {
        for n in [1, 3, 20] {
            let agreed: Result<Vec<Vec<u64>>> = place(Spmd::new(n)).run(|ctx| {
                (0..50).map(|turn| ctx.agree(!(1 << ((turn + ctx.rank()) % 64)))).collect()
            });
            let all =
                |turn: usize| (0..n).fold(u64::MAX, |all, rank| all & !(1 << ((turn + rank) % 64)));
            let expected: Vec<u64> = (0..50).map(all).collect();
            assert_eq!(agreed.unwrap(), vec![expected; n]);
        }
    }
}

/// A rank that fails before it agrees, and one that fails after.
#[test]
fn agreeing_with_ranks_that_fail() {
    for place in PLACES {
        for n in [2, 3, 20] {
            let (values, error) = survivors(place(Spmd::new(n)), |ctx| {
                assert_eq!(ctx.agree(3)?, 3);
                if ctx.rank() == 1 {
                    return Err("deliberate".into());
                }
                let error = ctx.agree(3).expect_err("rank 1 is missing");
                assert!(matches!(&error, Error::PeerFailed(peer) if peer.rank == 1), "{error}");
                let text = "rank 1 failed first: it returned an error: deliberate";
                assert!(error.to_string().ends_with(text), "{error}");
                // Nobody else is missing, and nothing is on the way.
                ctx.agree(3).expect_err("rank 1 is missing still");
                let comm = ctx.shrink()?;
                comm.agree(1 << 40)
            });
            assert_eq!(values.len(), n - 1);
            assert!(values.iter().all(|(_, agreed)| *agreed == 1 << 40));
            assert_eq!(error.unwrap().to_string(), "deliberate");
        }
    }
}

/// Ranks that came through a step agree on it while others, who learnt of a failure, shrink.
#[test]
fn who_shrinks_has_a_veto() {
    for place in PLACES {
        let (values, _) = survivors(place(Spmd::new(5)), |ctx| {
            if ctx.rank() == 4 {
                // It is counted, and has failed when the others have their answers.
                let _ = ctx.agree(1);
                return Err("deliberate".into());
            }
            if ctx.rank() % 2 == 0 {
                let error = ctx.agree(1).expect_err("others shrink");
                let peer = matches!(&error, Error::PeerFailed(peer) if peer.rank == 4);
                let mismatch = matches!(error.fault(), Some(Fault::Mismatch { .. }));
                assert!(peer || mismatch, "{error}");
            }
            let comm = ctx.shrink()?;
            // Rank 4 may fail during this.
            match comm.size() {
                5 => comm.agree(1).map_or_else(|_| Ok(comm.shrink()?.size()), |_| Ok(5)),
                size => Ok(size),
            }
        });
        let sizes: Vec<usize> = values.iter().map(|(_, size)| *size).collect();
        assert_eq!(sizes, [4; 4]);
    }
}

#[test]
fn a_rank_that_has_returned_is_gone() {
    for place in PLACES {
        let (values, error) = survivors(place(Spmd::new(3)), |ctx| {
            if ctx.rank() == 2 {
                return Ok(0);
            }
            let error = ctx.agree(1).expect_err("rank 2 is gone");
            assert!(matches!(error.fault(), Some(Fault::Left { rank: 2, .. })), "{error}");
            let comm = ctx.shrink()?;
            use_all(&comm)?;
            Ok(comm.size())
        });
        assert_eq!(values, [(0, 2), (1, 2), (2, 0)]);
        assert!(error.is_none(), "{error:?}");
    }
}

/// Ranks disagree; nobody has failed, so all go on.
#[test]
fn after_a_mismatch() {
    for place in PLACES {
        let sizes = place(Spmd::new(4)).run(|ctx| {
            ctx.send(&[1], 0, 9)?; // it is never received
            ctx.barrier()?;
            let outcome = if ctx.rank() == 2 { ctx.barrier() } else { ctx.broadcast(&mut [0], 0) };
            let error = outcome.and_then(|()| ctx.barrier()).expect_err("calls differ");
            assert!(matches!(error, Error::Stopped(_)), "{error}");
            let comm = ctx.shrink()?;
            use_all(&comm)?;
            Ok(comm.size())
        });
        assert_eq!(sizes.unwrap(), [4; 4]);
    }
}

/// A communicator without the failed rank is not concerned, and one with it can be shrunk alone.
#[test]
fn parts_of_a_world() {
    for place in PLACES {
        let (values, _) = survivors(place(Spmd::new(6)), |ctx| {
            let row = ctx.split(Some(ctx.rank() as u32 / 3), 0)?.expect("all give a color");
            if ctx.rank() == 1 {
                return Err("deliberate".into());
            }
            let row = match ctx.rank() / 3 {
                0 => {
                    row.barrier().expect_err("rank 1 is missing");
                    row.shrink()?
                }
                _ => row,
            };
            use_all(&row)?;
            Ok(row.size())
        });
        assert_eq!(values, [(0, 2), (2, 2), (3, 3), (4, 3), (5, 3)]);
    }
}

/// Communicators that are shrunk free their places.
#[test]
fn many_times() {
    for place in PLACES {
        let (values, _) = survivors(place(Spmd::new(3)), |ctx| {
            if ctx.rank() == 2 {
                return Err("deliberate".into());
            }
            let mut comm = ctx.shrink()?;
            for _ in 0..3000 {
                comm = comm.shrink()?;
                comm.barrier()?;
            }
            Ok(comm.size())
        });
        assert_eq!(values, [(0, 2), (1, 2)]);
    }
}

#[test]
fn a_cycle_with_an_agreement() {
    for place in PLACES {
        let whole = place(Spmd::new(2)).run(|ctx| match ctx.rank() {
            0 => ctx.agree(1).map(drop),
            _ => ctx.recv(&mut [0], 0, 0).map(drop),
        });
        let text = whole.unwrap_err().to_string();
        assert!(text.starts_with("deadlock"), "{text}");
        assert!(text.contains("rank 0: agree at tests/failures/survive.rs"), "{text}");
        assert!(text.contains("rank 1: recv of 1 i32 from rank 0"), "{text}");
    }
}

#[test]
fn an_agreement_that_was_given_up() {
    // A worker that sleeps would run no other rank.
    for place in &PLACES[..2] {
        let limit = Duration::from_millis(100);
        let (values, _) = survivors(place(Spmd::new(2)).timeout(limit), |ctx| {
            if ctx.rank() == 1 {
                std::thread::sleep(6 * limit);
                return Err("late".into());
            }
            let first = ctx.agree(1).expect_err("rank 1 is late");
            assert!(matches!(first, Error::Timeout(_)), "{first}");
            let second = ctx.shrink().expect_err("the first was given up").to_string();
            assert!(second.contains("an earlier agree or shrink of this rank"), "{second}");
            Ok(())
        });
        assert_eq!(values, [(0, ())]);
    }
}

#[test]
fn an_operation_must_not_shrink() {
    let ended = spmd(2, |ctx| {
        let op = Op::new(|a: u64, b: u64| {
            let error = spmd::with_current(|comm| comm.shrink()).expect_err("refused");
            assert!(matches!(error, Error::Reentrant(_)), "{error}");
            a + b
        });
        ctx.allreduce_value(5, op)
    });
    assert_eq!(ended.unwrap(), [10, 10]);
}
