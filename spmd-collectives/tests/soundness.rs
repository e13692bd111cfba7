//! Attacks by safe code: what a program's mistakes, odd orders and odd threads must not do.

use std::sync::Mutex;
use std::time::{Duration, Instant};

mod common;

use spmd_collectives::{
    Allgather, Allreduce, Alltoall, Barrier, Broadcast, Gather, Reduce, ReduceScatter, Scan,
    Scatter, Split, spmd_rank,
};
use spmd_core::{ANY, BitAnd, Ctx, DType, Element, Error, Op, Operation, Result, Spmd, Sum, spmd};

/// A limit, so that a hang is a failure.
fn block(ranks: usize) -> Spmd {
    Spmd::new(ranks).timeout(Duration::from_secs(20))
}

#[test]
fn a_polling_virtual_rank_stays_itself() {
    block(3)
        .virtual_ranks()
        .workers(1)
        .run(|ctx| {
            if ctx.rank() != 0 {
                return ctx.send(&[1u8], 0, 0);
            }
            for source in [1, 2] {
                while ctx.iprobe(source, ANY)?.is_none() {
                    assert_eq!(spmd_rank(), 0);
                }
                ctx.recv(&mut [0u8], source, ANY)?;
            }
            assert_eq!(spmd_rank(), 0);
            Ok(())
        })
        .unwrap();
}

/// Asks for the rank when it is dropped.
struct Asks;

impl Drop for Asks {
    fn drop(&mut self) {
        assert_eq!(spmd_rank(), 0, "no rank runs here any more");
    }
}

#[test]
fn no_rank_runs_on_a_worker_after_its_ranks() {
    let error = block(3)
        .virtual_ranks()
        .workers(1)
        .run(|ctx| {
            ctx.barrier()?;
            if ctx.rank() == 2 {
                std::panic::panic_any(Asks);
            }
            Ok(())
        })
        .unwrap_err();
    assert!(matches!(&error, Error::Panicked(panic) if panic.rank == 2), "{error}");
}

#[test]
fn counts_that_differ_stop_every_rank_before_a_byte_moves() {
    let failed = block(2).run(|ctx| {
        // Bytes that are no values of bool lie in all slots.
        for _ in 0..8 {
            ctx.allreduce_value(u64::MAX, BitAnd)?;
        }
        // Rank 1 expects much more of rank 0 than that sends, and takes another algorithm.
        let long = 5000 * ctx.rank();
        let mut all = vec![false; 2 + long];
        Ok(ctx.allgatherv(&[true], &mut all, &[1 + long, 1]).is_err())
    });
    assert_eq!(failed.unwrap(), [true, true]);
}

#[test]
fn a_message_survives_the_error_of_the_receive_beside_it() {
    for large in [10, 100_000] {
        let got = block(2)
            .run(|ctx| {
                let data = vec![7u64; large];
                if ctx.rank() == 0 {
                    let mut short = [0u64];
                    let result = ctx.sendrecv(&data, 1, 0, &mut short, 1, 0);
                    assert!(matches!(result, Err(Error::Truncated(_))), "{result:?}");
                    ctx.recv(&mut [0u8], 1, 1)?;
                } else {
                    ctx.send(&[1u64, 2], 0, 0)?;
                    let mut data = vec![0u64; large];
                    ctx.recv(&mut data, 0, 0)?;
                    ctx.send(&[1u8], 0, 1)?;
                    return Ok(data[large - 1]);
                }
                Ok(0)
            })
            .unwrap();
        assert_eq!(got, [0, 7]);
    }
}

#[test]
fn a_refused_message_lets_its_sender_go_at_once() {
    for setup in [Spmd::threads, Spmd::virtual_ranks] {
        let times = setup(block(2))
            .run(|ctx| {
                let start = Instant::now();
                for _ in 0..20 {
                    if ctx.rank() == 0 {
                        ctx.send(&vec![1u64; 10_000], 1, 0)?;
                    } else {
                        let result = ctx.recv(&mut [0u64], 0, 0);
                        assert!(matches!(result, Err(Error::Truncated(_))));
                    }
                }
                Ok(start.elapsed())
            })
            .unwrap();
        assert!(times[0] < Duration::from_millis(300), "{times:?}");
    }
}

#[test]
fn no_block_opens_inside_an_operation() {
    let refused = spmd(2, |ctx| {
        let inner = Op::new(|a: u32, b: u32| {
            let refused = matches!(spmd(1, |_| Ok(())), Err(Error::Reentrant(_)));
            (a & b) & u32::from(refused)
        });
        ctx.allreduce_value(1u32, inner)
    });
    assert_eq!(refused.unwrap(), [1, 1]);
}

#[test]
fn an_area_that_is_used_again_does_not_match_its_former_communicator() {
    // Rank 0 has dropped its end of `pair` and uses all areas for communicators with rank 2, on
    // which it calls what rank 1 now calls on `pair`.
    block(3)
        .run(|ctx| {
            let me = ctx.rank();
            let pair = ctx.split((me < 2).then_some(0), 0)?;
            let other = ctx.split((me != 1).then_some(0), 0)?;
            pair.as_ref().map_or(Ok(()), |pair| pair.barrier())?;
            if let Some(other) = &other {
                drop(pair);
                let mut others = Vec::new();
                while let Ok(another) = other.dup() {
                    another.barrier()?;
                    another.barrier()?;
                    others.push(another);
                }
                if me == 0 {
                    ctx.send(&[0u8], 1, 0)?;
                    ctx.recv(&mut [0u8], 1, 0)?;
                }
                return Ok(());
            }
            ctx.recv(&mut [0u8], 0, 0)?;
            let result = pair.expect("rank 1 is in it").barrier();
            assert!(matches!(result, Err(Error::Stopped(_))), "{result:?}");
            ctx.send(&[0u8], 0, 0)
        })
        .unwrap();
}

#[test]
fn communicators_are_made_on_two_threads_at_once() {
    for _ in 0..20 {
        block(2)
            .run(|ctx| {
                let (a, b) = (ctx.dup()?, ctx.dup()?);
                let work = |comm: &spmd_core::Comm, mine: u64| {
                    for turn in 0..50 {
                        let child = comm.dup()?;
                        for _ in 0..3 {
                            assert_eq!(child.allreduce_value(mine + turn, Sum)?, 2 * (mine + turn));
                        }
                    }
                    Result::Ok(())
                };
                std::thread::scope(|scope| {
                    let there = scope.spawn(move || work(&a, 1000));
                    work(&b, 2000).and(there.join().unwrap())
                })
            })
            .unwrap();
    }
}

#[test]
fn a_communicator_that_waits_to_be_made_holds_up_no_other() {
    block(2)
        .run(|ctx| {
            let (a, b) = (ctx.dup()?, ctx.dup()?);
            if ctx.rank() == 1 {
                // In turn; rank 0 makes both at once, and begins with the other one.
                b.dup()?.barrier()?;
                return a.dup()?.barrier();
            }
            std::thread::scope(|scope| {
                let there = scope.spawn(move || a.dup()?.barrier());
                std::thread::sleep(Duration::from_millis(50));
                b.dup()?.barrier()?;
                there.join().unwrap()
            })
        })
        .unwrap();
}

#[test]
fn communicators_that_were_stopped_leave_nothing_behind() {
    let result = block(2).run(|ctx| {
        for turn in 0..100 {
            let part = ctx.dup()?;
            let big = vec![ctx.rank() as u64; 10_000];
            let mut buf = big.clone();
            // The ranks disagree, every time.
            let failed = if ctx.rank() == 0 {
                part.broadcast(&mut buf, 0)
            } else {
                part.allreduce_in_place(&mut buf, Sum)
            };
            assert!(matches!(failed, Err(Error::Stopped(_))), "turn {turn}: {failed:?}");
        }
        ctx.barrier()
    });
    result.unwrap();
}

#[test]
fn areas_come_back_where_groups_overlap() {
    block(4)
        .run(|ctx| {
            let me = ctx.rank() as u32;
            let row = ctx.split(Some(me / 2), 0)?.unwrap();
            let column = ctx.split(Some(me % 2), 0)?.unwrap();
            for _ in 0..1500 {
                let short = row.dup()?;
                (0..5).try_for_each(|_| short.barrier())?;
                drop(short);
                column.dup()?.barrier()?;
            }
            Ok(())
        })
        .unwrap();
}

/// An element that no page is aligned to.
#[derive(Clone, Copy, Element)]
#[spmd(crate = spmd_core)]
#[repr(C, align(8192))]
struct Huge([u8; 8192]);

#[test]
fn shared_buffers_that_cannot_be_are_errors() {
    block(1)
        .unreachable_buffers()
        .run(|ctx| {
            assert!(ctx.alloc_shared::<u8>(usize::MAX).is_err());
            assert!(ctx.alloc_shared::<u64>(usize::MAX / 8).is_err());
            assert!(ctx.alloc_shared::<Huge>(1).is_err());
            Ok(())
        })
        .unwrap();
    block(1)
        .run(|ctx| {
            assert!(ctx.alloc_shared::<u8>(usize::MAX).is_err());
            let huge = ctx.alloc_shared::<Huge>(2)?;
            assert!(huge[1].0.iter().all(|byte| *byte == 0));
            Ok(())
        })
        .unwrap();
}

#[test]
fn blocks_of_impossible_size_are_errors() {
    assert!(matches!(spmd(usize::MAX, |_| Ok(())), Err(Error::Argument(_))));
    assert!(matches!(Spmd::new(1 << 40).virtual_ranks().run(|_| Ok(())), Err(Error::Argument(_))));
}

/// A byte with the identity of `bool`, as another type might have it by chance.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Seven(u8);

// SAFETY: a byte, of any value.
unsafe impl Element for Seven {
    const DTYPE: DType = DType { id: bool::DTYPE.id, ..u8::DTYPE };
}

/// An operation on elements of any type.
struct First;

impl<T: Element> Operation<T> for First {
    const NAME: &'static str = "first";

    fn combine(&self, left: T, _: T) -> T {
        left
    }
}

/// Calls that fill a buffer, whatever comes of them.
const CALLS: usize = 11;

fn filled<T: Element>(ctx: &Ctx, call: usize, send: Vec<T>) -> Vec<T> {
    let mut recv = send.clone();
    let (n, one) = (ctx.size(), send.len() / ctx.size());
    let (sent, whole) = (&send[..one * n], one * n);
    let _ = match call {
        0 => ctx.broadcast(&mut recv, 0),
        1 => ctx.allreduce(&send, &mut recv, First),
        2 => ctx.allreduce_in_place(&mut recv, First),
        3 => ctx.reduce(&send, &mut recv, First, 1),
        4 => ctx.scan(&send, &mut recv, First),
        5 => ctx.gather(&send[..one], &mut recv[..whole], 1),
        6 => ctx.allgather(&send[..one], &mut recv[..whole]),
        7 => ctx.scatter(sent, &mut recv[..one], 0),
        8 => ctx.alltoall(sent, &mut recv[..whole]),
        9 => ctx.reduce_scatter(sent, &mut recv[..one], First),
        _ if ctx.rank() == 0 => ctx.send(&send, 1, 0),
        _ => ctx.recv(&mut recv, 0, 0).map(drop),
    };
    recv
}

#[test]
fn a_type_of_the_same_identity_does_not_make_a_bool_of_seven() {
    for setup in [Spmd::threads, Spmd::virtual_ranks] {
        // What the peer itself looks at may be in order: an error of its own keeps the rest away.
        let sevens = |half: usize, index: usize| half == 2 || index == half;
        let cases = (0..CALLS).flat_map(|call| [2, 1000, 400_000].map(|count| (call, count)));
        for ((call, count), half) in cases.flat_map(|case| [0, 1, 2].map(|half| (case, half))) {
            let greatest = Mutex::new(0);
            let ended = setup(block(2)).run(|ctx| {
                if ctx.rank() == 0 {
                    let value = |at| Seven(if sevens(half, 2 * at / count) { 7 } else { 0 });
                    filled(ctx, call, (0..count).map(value).collect());
                    return Ok(());
                }
                let bools = filled(ctx, call, vec![false; count]);
                // SAFETY: as many bytes, which nobody writes any more.
                let bytes = unsafe { std::slice::from_raw_parts(bools.as_ptr().cast(), count) };
                *greatest.lock().unwrap() = bytes.iter().copied().max().unwrap_or(0u8);
                Ok(())
            });
            let greatest = greatest.into_inner().unwrap();
            assert!(greatest < 2, "call {call} of {count}, half {half}: {ended:?}");
        }
    }
}

/// A rank that gives up keeps what others still read.
#[test]
fn a_time_limit_within_an_allreduce_of_bools() {
    const COUNT: usize = 4 << 20;
    let (send, start) = (vec![true; COUNT], Instant::now());
    let whole = |limit: Option<Duration>| {
        let block = limit.into_iter().fold(block(3).threads(), Spmd::timeout);
        let all = block.run(|ctx| {
            let mut recv = vec![false; COUNT];
            ctx.allreduce(&send, &mut recv, First)?;
            Ok(recv.iter().all(|it| *it))
        });
        assert!(all.iter().flatten().all(|all| *all));
    };
    whole(None);
    let took = start.elapsed();
    let apart = if cfg!(sanitizer) { 4 } else { 1 };
    (1..30).step_by(apart).for_each(|part| whole(Some(took * part / 20)));
}

/// So it does with the prefixes that it has worked out for them.
#[test]
fn a_time_limit_within_scans() {
    let send = vec![1u8; 4 << 20];
    for limit in (1..8).cycle().take(if cfg!(sanitizer) { 7 } else { 25 }) {
        let block = Spmd::new(3).threads().timeout(Duration::from_millis(limit));
        let right = block.run(|ctx| {
            for _ in 0..5 {
                // Memory that is new takes a while to be written.
                let mut recv = vec![0; send.len()];
                ctx.scan(&send, &mut recv, Sum)?;
                assert!(recv.iter().all(|it| *it as usize == ctx.rank() + 1));
            }
            Ok(())
        });
        assert!(!matches!(right, Err(Error::Panicked(_))), "{right:?}");
    }
}

/// More small messages than a ring holds, to a rank that is in another call.
#[cfg(target_os = "linux")]
#[test]
fn a_full_ring_is_no_deadlock() {
    common::processes("a_full_ring_is_no_deadlock", 2, &[("SPMD_TIMEOUT", "60")], |ctx| {
        let values = [ctx.rank() as u64; 100];
        if ctx.rank() == 0 {
            (0..300).try_for_each(|tag| ctx.send(&values, 1, tag))?;
            ctx.barrier()?;
        } else {
            ctx.barrier()?;
            let mut got = [1u64; 100];
            for tag in (0..300).rev() {
                ctx.recv(&mut got, 0, tag)?;
                assert_eq!(got, [0; 100]);
            }
        }
        Ok(())
    })
    .unwrap();
}
