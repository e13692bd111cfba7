//! Calls that go on while their ranks do something else: several of one communicator at a time,
//! ended in any order, in every place.

#[path = "support/starts.rs"]
mod starts;
mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use spmd::prelude::*;
use spmd_core::internal::{ErasedOp, StartedCall};

use starts::{allreduce, barrier, broadcast};
use support::World;

/// Elements of 4 MiB.
const LARGE: usize = 512 << 10;

const RANKS: [usize; 4] = [1, 2, 3, 5];

/// What `rank` contributes in `turn`.
fn given(rank: usize, turn: usize, count: usize) -> impl Iterator<Item = f64> {
    (0..count).map(move |index| (rank + 1) as f64 / (index % 97 + turn + 1) as f64)
}

/// The sum of what all contribute, by the call that is not started.
fn sum(comm: &Comm, turn: usize, count: usize) -> Result<Vec<f64>> {
    let mut sum: Vec<f64> = given(comm.rank(), turn, count).collect();
    comm.allreduce_in_place(&mut sum, Sum)?;
    Ok(sum)
}

fn in_another_order(ctx: &Comm, count: usize) -> Result<()> {
    let (me, last) = (ctx.rank(), ctx.size() - 1);
    let expected = sum(ctx, 0, count)?;
    for turn in 0..6 {
        let mut sums: Vec<f64> = given(me, 0, count).collect();
        let mut told: Vec<f64> = given(me, turn, count).collect();
        let op = &ErasedOp::new::<f64, _>(&Sum);
        let first = allreduce(ctx, &mut sums, op)?;
        let second = broadcast(ctx, &mut told, last)?;
        let third = barrier(ctx)?;
        // Other calls and messages pass them by.
        assert_eq!(ctx.allreduce_value(me, Max)?, last);
        let (right, left) = ((me + 1) % ctx.size(), (me + last) % ctx.size());
        let mut got = [0];
        ctx.sendrecv(&[me], right, 0, &mut got, left, 0)?;
        assert_eq!(got, [left]);
        let started = match (turn + me) % 3 {
            0 => [third, second, first],
            1 => [second, first, third],
            _ => [first, third, second],
        };
        for call in started {
            call.wait()?;
        }
        assert_eq!(sums, expected, "the same to the last bit");
        assert!(given(last, turn, count).eq(told));
    }
    Ok(())
}

#[test]
fn three_calls_end_in_another_order() -> Result<()> {
    let test = "three_calls_end_in_another_order";
    World::default().everywhere(test, &RANKS, |ctx| in_another_order(ctx, LARGE))?;
    let small = World { segment: Some(256), ..World::default() };
    small.everywhere(test, &RANKS, |ctx| {
        [0, 1, 5, 600, 3000].into_iter().try_for_each(|count| in_another_order(ctx, count))
    })
}

#[test]
fn they_end_with_delays_and_on_more_ranks() -> Result<()> {
    let test = "they_end_with_delays_and_on_more_ranks";
    let delayed = World { chaos: Some(7), ..World::default() };
    delayed.everywhere(test, &[4], |ctx| in_another_order(ctx, 3000))?;
    World::default().everywhere(test, &[17], |ctx| in_another_order(ctx, 700))
}

/// More than have begun at a time, of communicators that come and go.
#[test]
fn many_of_many_communicators() -> Result<()> {
    World::default().everywhere("many_of_many_communicators", &[1, 2, 4], |ctx| {
        let op = &ErasedOp::new::<f64, _>(&Sum);
        for turn in 0..40 {
            let comm = ctx.dup()?;
            let count = |call: usize| [1, 40, 3000][(call + turn) % 3];
            let mut bufs: Vec<Vec<f64>> =
                (0..20).map(|call| given(ctx.rank(), call, count(call)).collect()).collect();
            let started: Result<Vec<_>> =
                bufs.iter_mut().map(|buf| allreduce(&comm, buf, op)).collect();
            let mut started = started?;
            let mut seed = turn * 7 + ctx.rank();
            while !started.is_empty() {
                seed = seed * 31 % 1009;
                started.swap_remove(seed % started.len()).wait()?;
            }
            drop(started);
            for (call, buf) in bufs.iter().enumerate() {
                assert_eq!(*buf, sum(&comm, call, count(call))?);
            }
        }
        Ok(())
    })
}

#[test]
fn a_rank_asks_until_they_are_over() -> Result<()> {
    World::default().everywhere("a_rank_asks_until_they_are_over", &[2, 3], |ctx| {
        let op = &ErasedOp::new::<f64, _>(&Sum);
        let expected = sum(ctx, 0, 3000)?;
        let mut sums: Vec<f64> = given(ctx.rank(), 0, 3000).collect();
        let call = allreduce(ctx, &mut sums, op)?;
        while !call.test() {
            // A virtual rank lets others run where it asks for messages.
            assert!(ctx.iprobe(0, 9)?.is_none());
        }
        call.wait()?;
        assert_eq!(sums, expected);
        // One that nobody waits for is over when it is dropped.
        let mut sums: Vec<f64> = given(ctx.rank(), 0, 3000).collect();
        drop(allreduce(ctx, &mut sums, op)?);
        assert_eq!(sums, expected);
        Ok(())
    })
}

/// Runs on threads and virtual ranks what each of these ends with an error on.
fn where_ranks_share_a_process(ranks: usize, body: impl Fn(&Ctx) + Sync) {
    if support::is_process_rank() {
        return;
    }
    let blocks: [fn(Spmd) -> Spmd; 3] =
        [Spmd::threads, Spmd::virtual_ranks, |block| block.virtual_ranks().workers(1)];
    for block in blocks {
        let block = block(Spmd::new(ranks)).timeout(Duration::from_secs(30));
        // What has stopped them is the block's result, too, after a look at each rank's.
        drop(block.run(|ctx| {
            body(ctx);
            Ok(())
        }));
    }
}

#[test]
fn a_panic_in_an_operation_reaches_all() {
    where_ranks_share_a_process(3, |ctx| {
        let mut buf = [ctx.rank()];
        let bad = Op::new(|_: usize, _: usize| -> usize { panic!("deliberate") });
        let op = &ErasedOp::new::<usize, _>(&bad);
        let call = allreduce(ctx, &mut buf, op).unwrap();
        match catch_unwind(AssertUnwindSafe(|| call.wait())) {
            Ok(result) => {
                let error = result.expect_err("an operation panicked");
                assert!(matches!(error, Error::PeerFailed { .. }), "{error}");
            }
            Err(payload) => assert_eq!(payload.downcast_ref(), Some(&"deliberate")),
        }
        assert!(ctx.barrier().is_err());
    });
}

#[test]
fn calls_started_in_different_orders_are_told() {
    where_ranks_share_a_process(3, |ctx| {
        let mut buf = [0.5];
        let op = &ErasedOp::new::<f64, _>(&Sum);
        let mut outcome = || {
            if ctx.rank() == 1 {
                let first = barrier(ctx)?;
                allreduce(ctx, &mut buf, op)?.wait()?;
                return first.wait();
            }
            let first = allreduce(ctx, &mut buf, op)?;
            barrier(ctx)?.wait()?;
            first.wait()
        };
        let error = outcome().expect_err("the orders differ").to_string();
        assert!(error.contains("do not match") && error.contains("tests/started.rs"), "{error}");
    });
}

/// One that is started between other calls than on the other ranks.
#[test]
fn a_call_started_after_another_one_is_told() {
    where_ranks_share_a_process(2, |ctx| {
        let outcome = || {
            if ctx.rank() == 1 {
                let call = barrier(ctx)?;
                ctx.barrier()?;
                return call.wait();
            }
            ctx.barrier()?;
            barrier(ctx)?.wait()
        };
        let error = outcome().expect_err("the orders differ").to_string();
        assert!(error.contains("do not match"), "{error}");
    });
}

#[test]
fn a_rank_that_leaves_is_told_of() {
    where_ranks_share_a_process(4, |ctx| {
        if ctx.rank() == 1 {
            return;
        }
        let start = Instant::now();
        let error = barrier(ctx).unwrap().wait().expect_err("one has left").to_string();
        assert!(error.contains("rank 1"), "{error}");
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    });
}

/// Calls that go on while all ranks wait for something else, for seconds, are no cycle.
#[test]
fn calls_that_go_on_are_no_cycle() -> Result<()> {
    World::default().everywhere("calls_that_go_on_are_no_cycle", &[2, 3], |ctx| {
        let (comm, op) = (ctx.dup()?, ErasedOp::new::<f64, _>(&Sum));
        for turn in 0..3 {
            let mut sums = vec![1.0; LARGE];
            let many = allreduce(&comm, &mut sums, &op)?;
            let first = barrier(ctx)?;
            if ctx.rank() == turn % ctx.size() {
                // Others wait for this one through several calls.
                std::thread::sleep(Duration::from_millis(700));
            }
            first.wait()?;
            if ctx.rank() == 0 {
                std::thread::sleep(Duration::from_millis(700));
                (1..ctx.size()).try_for_each(|rank| ctx.send(&[turn], rank, 0))?;
            } else {
                ctx.recv(&mut [0usize], 0, 0)?;
            }
            many.wait()?;
            assert!(sums.iter().all(|sum| *sum == ctx.size() as f64));
        }
        Ok(())
    })
}

/// A thread rank that panics takes its memory back, whatever goes on in it.
#[test]
fn a_rank_that_panics_meanwhile_is_told_of() {
    if support::is_process_rank() {
        return;
    }
    for large in [false, true] {
        let block = Spmd::new(3).threads().timeout(Duration::from_secs(30));
        let failed = block.run(|ctx| {
            let mut bufs = vec![vec![1.0; if large { LARGE } else { 10 }]; 6];
            let op = &ErasedOp::new::<f64, _>(&Sum);
            if ctx.rank() == 2 {
                return ctx.recv(&mut [0], 1, 0).map(drop);
            }
            let started: Result<Vec<_>> =
                bufs.iter_mut().map(|buf| allreduce(ctx, buf, op)).collect();
            let started = started?;
            if ctx.rank() == 1 {
                panic!("deliberate");
            }
            started.into_iter().try_for_each(StartedCall::wait)
        });
        let error = failed.expect_err("a rank panicked").to_string();
        assert!(error.contains("rank 1") && error.contains("deliberate"), "{error}");
    }
}

/// Not each of thousands looks at all others.
#[test]
fn thousands_start_calls() -> Result<()> {
    World::default().virtual_ranks(5000, |ctx| {
        let op = &ErasedOp::new::<usize, _>(&Sum);
        for turn in 0..8 {
            let mut sums = [turn];
            let call = allreduce(ctx, &mut sums, op)?;
            barrier(ctx)?.wait()?;
            call.wait()?;
            assert_eq!(sums, [turn * ctx.size()]);
        }
        Ok(())
    })
}
