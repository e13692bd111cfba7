//! Correct programs that come close to a mistake: none of them ever draws an error.

use std::time::{Duration, Instant};

use spmd::prelude::*;

use crate::expect::MODES;

fn pause(milliseconds: u64) {
    std::thread::sleep(Duration::from_millis(milliseconds));
}

/// Runs `program` on `n` thread ranks, then on `n` virtual ones.
#[track_caller]
fn fine(n: usize, program: impl Fn(&Ctx) -> Result<()> + Sync) {
    for (mode, place) in MODES {
        if let Err(error) = place(Spmd::new(n)).run(&program) {
            panic!("{mode}: {error}");
        }
    }
}

fn compute(time: Duration) -> f64 {
    let start = Instant::now();
    let mut value = 1.0f64;
    while start.elapsed() < time {
        (0..1000).for_each(|_| value = (value * 1.000_1).sin() + 1.0);
    }
    value
}

#[test]
fn a_long_computation_while_others_wait() {
    fine(3, |ctx| {
        if ctx.rank() == 1 {
            assert!(compute(Duration::from_millis(700)) > 0.0);
        }
        ctx.barrier()
    });
}

#[test]
fn a_rank_that_sleeps_before_it_joins() {
    fine(4, |ctx| {
        let mut data = [ctx.rank()];
        if ctx.rank() == 0 {
            pause(1000);
            return ctx.send(&data, 1, 0).and_then(|()| ctx.barrier());
        }
        if ctx.rank() == 1 {
            ctx.recv(&mut data, 0, 0)?;
        }
        ctx.barrier()
    });
}

#[test]
fn all_wait_for_any_until_one_speaks() {
    fine(4, |ctx| {
        if ctx.rank() == 0 {
            pause(400);
            (1..4).try_for_each(|rank| ctx.send(&[7], rank, 0))?;
            return Ok(());
        }
        ctx.recv(&mut [0], ANY, ANY).map(drop)
    });
}

/// Ranks wait in chains for a slow one: long waits, no cycle.
#[test]
fn chains_of_waits() {
    fine(12, |ctx| {
        let (me, n) = (ctx.rank(), ctx.size());
        for _ in 0..3 {
            let mut token = [me];
            if me > 0 {
                ctx.recv(&mut token, me - 1, 0)?;
            } else {
                pause(120);
            }
            if me + 1 < n {
                ctx.send(&token, me + 1, 0)?;
            }
        }
        ctx.barrier()
    });
}

#[test]
fn answers_that_come_just_in_time() {
    fine(2, |ctx| {
        let peer = 1 - ctx.rank();
        for turn in 0..40u64 {
            let mut buf = [turn];
            if turn % 2 == ctx.rank() as u64 {
                pause(turn);
                ctx.ssend(&buf, peer, 0)?;
            } else {
                ctx.recv(&mut buf, peer, 0)?;
            }
        }
        Ok(())
    });
}

/// While the ranks' own threads wait for each other, helpers with communicators of their own
/// exchange messages, the last of which releases them.
#[test]
fn helpers_with_communicators_of_their_own() {
    let program = |ctx: &Ctx| {
        let (peer, rank) = (1 - ctx.rank(), ctx.rank());
        let (control, data) = (ctx.dup()?, ctx.dup()?);
        let helper = std::thread::spawn(move || -> Result<u64> {
            let mut sum = 0;
            for turn in 0..10u64 {
                pause(20);
                let mut theirs = [0];
                data.sendrecv(&[turn], peer, 0, &mut theirs, peer, 0)?;
                sum += theirs[0];
            }
            if rank == 0 {
                pause(500);
                control.send(&[sum], 1, 9)?;
                control.send(&[sum], 0, 9)?;
            } else {
                // Kept until the other has spoken, as rank 1 itself waits on its copy below.
                pause(600);
            }
            drop(control);
            Ok(sum)
        });
        let sum = helper.join().expect("the helper does not panic")?;
        assert_eq!(sum, 45);
        Ok(())
    };
    let messages = Spmd::new(2).threads().run(program);
    // Nobody receives what the helpers of rank 0 say last, which is the point of waiting.
    assert!(matches!(&messages, Err(Error::Unreceived(kept)) if kept.count == 1), "{messages:?}");
}

#[test]
fn a_helper_that_releases_its_own_rank() {
    Spmd::new(2)
        .threads()
        .run(|ctx| {
            let copy = ctx.dup()?;
            let me = ctx.rank();
            let helper = std::thread::spawn(move || {
                pause(700);
                copy.barrier()?;
                copy.send(&[5], 1 - me, 3)?;
                copy.recv(&mut [0], 1 - me, 3)
            });
            // Both ranks' own agents wait, for what only the helpers can bring about.
            ctx.barrier()?;
            helper.join().expect("the helper does not panic")?;
            Ok(())
        })
        .unwrap();
}

/// Every rank waits in its own communicator for a helper thread of its neighbour.
#[test]
fn ranks_that_wait_for_helpers_only() {
    Spmd::new(2)
        .threads()
        .run(|ctx| {
            let copy = ctx.dup()?;
            let peer = 1 - ctx.rank();
            std::thread::scope(|scope| {
                let mine = ctx.dup()?;
                let helper = scope.spawn(move || {
                    pause(600);
                    mine.send(&[1], peer, 0)?;
                    mine.recv(&mut [0], peer, 0).map(drop)
                });
                copy.barrier()?;
                helper.join().expect("the helper does not panic")
            })
        })
        .unwrap();
}

#[test]
fn nested_blocks() {
    fine(2, |ctx| {
        let sums = spmd(3, |inner| {
            pause(50 * inner.rank() as u64);
            inner.allreduce_value(inner.rank(), Sum)
        })?;
        assert_eq!(sums, [3; 3]);
        let sums = Spmd::new(5).virtual_ranks().run(|inner| {
            let deeper = spmd(2, |ctx| ctx.allreduce_value(1, Sum))?;
            inner.allreduce_value(inner.rank() + deeper[0], Sum)
        })?;
        assert_eq!(sums, [20; 5]);
        ctx.barrier()
    });
}

/// One rank works in a block of its own for long, while the others wait for it outside.
#[test]
fn a_long_block_within_a_rank() {
    fine(3, |ctx| {
        if ctx.rank() == 0 {
            Spmd::new(2).run(|inner| {
                if inner.rank() == 1 {
                    pause(700);
                }
                inner.barrier()
            })?;
        }
        ctx.barrier()
    });
}

#[test]
fn many_ranks_that_wait_for_a_slow_one() {
    fine(40, |ctx| {
        for slow in [0, 39, 17] {
            if ctx.rank() == slow {
                pause(200);
            }
            assert_eq!(ctx.allreduce_value(1, Sum)?, 40);
        }
        Ok(())
    });
}

#[test]
fn different_calls_on_different_communicators() {
    fine(6, |ctx| {
        let odd = ctx.rank() % 2 == 1;
        let half = ctx.split(Some(u32::from(odd)), 0)?.expect("every rank gives a color");
        for _ in 0..20 {
            if odd {
                half.barrier()?;
                half.allgather_value(1.5)?;
            } else {
                half.allreduce_value(1u8, Max)?;
            }
        }
        ctx.barrier()
    });
}

/// Equal calls from different lines are equal.
#[test]
fn the_same_call_from_another_line() {
    fine(2, |ctx| {
        if ctx.rank() == 0 {
            ctx.allreduce_value(1, Sum)?;
            ctx.broadcast(&mut [0u8; 3], 0)
        } else {
            ctx.allreduce_value(2, Sum)?;
            ctx.broadcast(&mut [1u8, 2, 3], 0)
        }
    });
}

/// Ranks of a block end at very different times, when nobody needs them any more.
#[test]
fn ranks_that_end_early_when_nobody_waits() {
    fine(4, |ctx| {
        ctx.barrier()?;
        if ctx.rank() < 2 {
            return Ok(());
        }
        pause(300);
        let mut buf = [0];
        if ctx.rank() == 2 { ctx.send(&[1], 3, 0) } else { ctx.recv(&mut buf, 2, 0).map(drop) }
    });
}

#[test]
#[expect(clippy::needless_borrows_for_generic_args, reason = "a reference is an operation, too")]
fn one_operation_in_two_calls_and_by_reference() {
    fine(3, |ctx| {
        let longest = Op::new(|a: f64, b: f64| if b.abs() > a.abs() { b } else { a });
        let found = match ctx.rank() {
            0 => ctx.allreduce_value(1.0, longest)?,
            _ => ctx.allreduce_value(-2.0, &longest)?,
        };
        assert_eq!(found, -2.0);
        let nothing = ctx.rank() as f64 * 0.0;
        let capturing = Op::new(move |a: f64, b: f64| a.max(b) + nothing);
        (0..3).try_for_each(|_| ctx.allreduce_value(1.0, &capturing).map(drop))
    });
}

/// As in programs of which root and others take different ways.
#[test]
fn one_operation_made_on_different_lines() {
    fn longest(a: f64, b: f64) -> f64 {
        if b.abs() > a.abs() { b } else { a }
    }
    fine(3, |ctx| {
        if ctx.rank() == 0 {
            assert_eq!(ctx.reduce_value(1.0, Op::new(longest), 0)?, Some(-2.0));
            let sum = Op::new(|a: f64, b: f64| a + b).named("sum of lengths");
            assert_eq!(ctx.reduce_value(1.0, sum, 0)?, Some(-3.0));
        } else {
            ctx.reduce_value(-2.0, Op::new(longest), 0)?;
            ctx.reduce_value(-2.0, Op::new(|a: f64, b: f64| b + a).named("sum of lengths"), 0)?;
        }
        Ok(())
    });
}

#[test]
fn objects_that_are_borrowed_on_one_side() {
    fine(2, |ctx| {
        if ctx.rank() == 0 {
            ctx.send_object("text", 1, 0)?;
            ctx.send_object(&[1u8, 2, 3][..], 1, 0)?;
            return ctx.send_object(&Some(("a", Box::new([1.5]))), 1, 0);
        }
        assert_eq!(ctx.recv_object::<String>(0, 0)?.0, "text");
        assert_eq!(ctx.recv_object::<Vec<u8>>(0, 0)?.0, [1, 2, 3]);
        let last = ctx.recv_object::<Option<(String, [f64; 1])>>(0, 0)?.0;
        assert_eq!(last, Some(("a".to_owned(), [1.5])));
        Ok(())
    });
}
