//! Calls that go on while their ranks do something else: several of one communicator at a time,
//! ended in any order, in every place.

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use spmd::Progress;
use spmd::prelude::*;

use spmd_conformance::full;
use support::World;

/// Elements of 4 MiB.
const LARGE: usize = 512 << 10;

const RANKS: [usize; 4] = [1, 2, 3, 5];

/// Who goes on with the calls.
const WAYS: [Progress; 2] = [Progress::Calls, Progress::Thread];

/// Runs `body` on each of these numbers of ranks, in every place and both ways.
fn everywhere(
    test: &str,
    world: World,
    ranks: &[usize],
    body: impl Fn(&Ctx) -> Result<()> + Sync,
) -> Result<()> {
    for progress in WAYS {
        World { progress, ..world.clone() }.everywhere(test, ranks, &body)?;
    }
    Ok(())
}

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
        let first = ctx.allreduce_in_place_start(given(me, 0, count).collect::<Vec<f64>>(), Sum)?;
        let second = ctx.broadcast_start(given(me, turn, count).collect::<Vec<f64>>(), last)?;
        let third = ctx.barrier_start()?;
        // Other calls and messages pass them by.
        assert_eq!(ctx.allreduce_value(me, Max)?, last);
        let (right, left) = ((me + 1) % ctx.size(), (me + last) % ctx.size());
        let mut got = [0];
        ctx.sendrecv(&[me], right, 0, &mut got, left, 0)?;
        assert_eq!(got, [left]);
        let (sums, told) = match (turn + me) % 3 {
            0 => {
                third.wait()?;
                let told = second.wait()?;
                (first.wait()?, told)
            }
            1 => {
                let told = second.wait()?;
                let sums = first.wait()?;
                third.wait()?;
                (sums, told)
            }
            _ => {
                let sums = first.wait()?;
                third.wait()?;
                (sums, second.wait()?)
            }
        };
        assert_eq!(sums, expected, "the same to the last bit");
        assert!(given(last, turn, count).eq(told));
    }
    Ok(())
}

#[test]
fn every_collective() -> Result<()> {
    let test = "every_collective";
    let all = spmd_conformance::started::all;
    everywhere(test, World::default(), &RANKS, all)?;
    everywhere(test, World { segment: Some(256), ..World::default() }, &[3], all)
}

#[test]
fn persistent_calls() -> Result<()> {
    let (test, all) = ("persistent_calls", spmd_conformance::persistent::all);
    everywhere(test, World::default(), &[1, 2, 5], all)?;
    let delayed = World { segment: Some(256), chaos: Some(3), ..World::default() };
    everywhere(test, delayed, &[3], all)
}

#[test]
fn three_calls_end_in_another_order() -> Result<()> {
    let test = "three_calls_end_in_another_order";
    everywhere(test, World::default(), &[1, 3], |ctx| in_another_order(ctx, LARGE))?;
    let small = World { segment: Some(256), ..World::default() };
    everywhere(test, small, &RANKS, |ctx| {
        [0, 1, 5, 600, 3000].into_iter().try_for_each(|count| in_another_order(ctx, count))
    })
}

#[test]
fn they_end_with_delays_and_on_more_ranks() -> Result<()> {
    let test = "they_end_with_delays_and_on_more_ranks";
    let delayed = World { chaos: Some(7), ..World::default() };
    everywhere(test, delayed, &[4], |ctx| in_another_order(ctx, 3000))?;
    everywhere(test, World::default(), &[17], |ctx| in_another_order(ctx, 700))
}

/// More than have begun at a time, of communicators that come and go.
#[test]
fn many_of_many_communicators() -> Result<()> {
    everywhere("many_of_many_communicators", World::default(), &[1, 2, 4], |ctx| {
        for turn in 0..40 {
            let comm = ctx.dup()?;
            let count = |call: usize| [1, 40, 3000][(call + turn) % 3];
            let mut bufs: Vec<Vec<f64>> =
                (0..20).map(|call| given(ctx.rank(), call, count(call)).collect()).collect();
            comm.requests(|requests| {
                let started = bufs.iter_mut().map(|buf| requests.allreduce_in_place(buf, Sum));
                let mut started = started.collect::<Result<Vec<_>>>()?;
                let mut seed = turn * 7 + ctx.rank();
                // Those that are left end with the scope.
                while started.len() > 3 {
                    seed = seed * 31 % 1009;
                    started.swap_remove(seed % started.len()).wait()?;
                }
                Ok(())
            })?;
            for (call, buf) in bufs.iter().enumerate() {
                assert_eq!(*buf, sum(&comm, call, count(call))?);
            }
        }
        Ok(())
    })
}

#[test]
fn a_rank_asks_until_they_are_over() -> Result<()> {
    everywhere("a_rank_asks_until_they_are_over", World::default(), &[2, 3], |ctx| {
        let expected = sum(ctx, 0, 3000)?;
        let mine = || given(ctx.rank(), 0, 3000).collect::<Vec<f64>>();
        let mut call = ctx.allreduce_in_place_start(mine(), Sum)?;
        while !call.test()? {
            // A virtual rank lets others run where it asks for messages.
            assert!(ctx.iprobe(0, 9)?.is_none());
        }
        assert_eq!(call.wait()?, expected);
        // What a scope has lent is back when that is over.
        let mut sums = mine();
        ctx.requests(|requests| requests.allreduce_in_place(&mut sums, Sum).map(drop))?;
        assert_eq!(sums, expected);
        Ok(())
    })
}

/// Runs on threads and virtual ranks what each of these ends with an error on.
fn where_ranks_share_a_process(ranks: usize, body: impl Fn(&Ctx) + Sync) {
    if support::is_process_rank() {
        return;
    }
    let blocks: [fn(Spmd) -> Spmd; 4] = [
        Spmd::threads,
        |block| block.threads().progress(Progress::Thread),
        Spmd::virtual_ranks,
        |block| block.virtual_ranks().workers(1),
    ];
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
        let bad = Op::new(|_: usize, _: usize| -> usize { panic!("deliberate") });
        // It may be over at once.
        let call = || ctx.allreduce_in_place_start([ctx.rank()], bad)?.wait().map(drop);
        match catch_unwind(AssertUnwindSafe(call)) {
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
        let outcome = || {
            if ctx.rank() == 1 {
                let first = ctx.barrier_start()?;
                ctx.allreduce_in_place_start([0.5], Sum)?.wait()?;
                return first.wait();
            }
            let first = ctx.allreduce_in_place_start([0.5], Sum)?;
            ctx.barrier_start()?.wait()?;
            first.wait().map(drop)
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
                let call = ctx.barrier_start()?;
                ctx.barrier()?;
                return call.wait();
            }
            ctx.barrier()?;
            ctx.barrier_start()?.wait()
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
        let error = ctx.barrier_start().unwrap().wait().expect_err("one has left").to_string();
        assert!(error.contains("rank 1"), "{error}");
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    });
}

/// Calls that go on while all ranks wait for something else, for seconds, are no cycle.
#[test]
fn calls_that_go_on_are_no_cycle() -> Result<()> {
    let ranks = if full() { &[2, 3][..] } else { &[3] };
    everywhere("calls_that_go_on_are_no_cycle", World::default(), ranks, |ctx| {
        let comm = ctx.dup()?;
        for turn in 0..3 {
            let many = comm.allreduce_in_place_start(vec![1.0; LARGE], Sum)?;
            let first = ctx.barrier_start()?;
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
            assert!(many.wait()?.iter().all(|sum| *sum == ctx.size() as f64));
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
    for (large, progress) in [false, true].into_iter().flat_map(|it| WAYS.map(|way| (it, way))) {
        let block = Spmd::new(3).threads().timeout(Duration::from_secs(30)).progress(progress);
        let failed = block.run(|ctx| {
            let buf = || vec![1.0; if large { LARGE } else { 10 }];
            if ctx.rank() == 2 {
                return ctx.recv(&mut [0], 1, 0).map(drop);
            }
            let started = (0..6).map(|_| ctx.allreduce_in_place_start(buf(), Sum));
            let started = started.collect::<Result<Vec<_>>>()?;
            if ctx.rank() == 1 {
                panic!("deliberate");
            }
            wait_all(started).map(drop)
        });
        let error = failed.expect_err("a rank panicked").to_string();
        assert!(error.contains("rank 1") && error.contains("deliberate"), "{error}");
    }
}

/// Not each of thousands looks at all others.
#[test]
fn thousands_start_calls() -> Result<()> {
    World::default().virtual_ranks(5000, |ctx| {
        for turn in 0..8 {
            let call = ctx.allreduce_in_place_start([turn], Sum)?;
            ctx.barrier_start()?.wait()?;
            assert_eq!(call.wait()?, [turn * ctx.size()]);
        }
        Ok(())
    })
}

/// Handles that nobody waits for: the calls go on, and are over at the end of the block.
#[test]
fn requests_that_are_dropped_or_forgotten() -> Result<()> {
    everywhere("requests_that_are_dropped_or_forgotten", World::default(), &[1, 2, 4], |ctx| {
        let comm = ctx.dup()?;
        for turn in 0..1000 {
            let count = [1, 700, 40][turn % 3];
            let request = comm.allreduce_in_place_start(vec![turn; count], Max)?;
            match turn % 3 {
                0 => drop(request),
                1 => std::mem::forget(request),
                _ => assert_eq!(request.wait()?, vec![turn; count]),
            }
        }
        // They outlive their communicator.
        drop(comm);
        ctx.broadcast_start(vec![0u8; 1 << 20], 0).map(drop)
    })
}

/// Of each communicator, the area is free again when its last call is over.
#[test]
fn areas_come_back() -> Result<()> {
    everywhere("areas_come_back", World::default(), &[2], |ctx| {
        for turn in 0..1500 {
            let comm = ctx.dup()?;
            let request = comm.allreduce_in_place_start([turn; 3], Sum)?;
            drop(comm);
            match turn % 3 {
                0 => drop(request),
                1 => std::mem::forget(request),
                _ => assert_eq!(request.wait()?, [2 * turn; 3]),
            }
        }
        Ok(())
    })
}

/// What goes wrong with a call that nobody waits for is the rank's error.
#[test]
fn errors_that_nobody_has_seen() {
    for forget in [false, true] {
        let block = Spmd::new(2).timeout(Duration::from_secs(30));
        let helped = block.clone().threads().progress(Progress::Thread);
        for block in [block.clone().threads(), helped, block.virtual_ranks()] {
            let failed = block.run(|ctx| {
                if ctx.rank() == 0 {
                    let request = ctx.barrier_start()?;
                    if forget { std::mem::forget(request) } else { drop(request) }
                }
                Ok(())
            });
            let error = failed.expect_err("rank 1 makes no such call").to_string();
            assert!(error.contains("barrier") && error.contains("tests/started.rs"), "{error}");
        }
    }
}

/// Calls of a communicator that goes to another thread while they are under way.
#[test]
fn a_communicator_that_moves_meanwhile() -> Result<()> {
    let moves = |ctx: &Ctx| {
        let comm = ctx.dup()?;
        let first = comm.allreduce_in_place_start(vec![1.0; LARGE], Sum)?;
        let second = comm.allreduce_in_place_start(vec![2.0; LARGE], Sum)?;
        let moved = std::thread::scope(|scope| {
            let there = scope.spawn(move || {
                // Of these the fifth and later ones take the turns of the first.
                let started = (0..9).map(|_| comm.allreduce_in_place_start([3], Sum));
                wait_all(started.collect::<Result<Vec<_>>>()?).map(|sums| (sums, comm))
            });
            assert!(first.wait()?.iter().all(|sum| *sum == 2.0));
            assert!(second.wait()?.iter().all(|sum| *sum == 4.0));
            there.join().expect("it does not panic")
        });
        let (sums, comm) = moved?;
        assert_eq!(sums, [[6]; 9]);
        // A thread that ends waits for what it has started.
        let rank = ctx.rank();
        let ended = std::thread::spawn(move || {
            let request = comm.allreduce_in_place_start(vec![1.0; LARGE], Sum)?;
            if rank == 0 { Ok(()) } else { request.wait().map(drop) }
        });
        ended.join().expect("it does not panic")?;
        ctx.barrier()
    };
    for progress in WAYS {
        Spmd::new(2).threads().progress(progress).run(moves)?;
    }
    Ok(())
}

thread_local! {
    static LEFT: std::cell::RefCell<Vec<Request<[usize; 1]>>> = const { std::cell::RefCell::new(vec![]) };
}

/// Ranks of one thread that pass a request on: it is its own rank's alone.
#[test]
fn a_request_of_another_rank() -> Result<()> {
    Spmd::new(2).virtual_ranks().workers(1).run(|ctx| {
        let request = ctx.allreduce_in_place_start([ctx.rank()], Sum)?;
        if ctx.rank() == 0 {
            LEFT.with_borrow_mut(|left| left.push(request));
            ctx.send(&[0], 1, 0)?;
            ctx.recv(&mut [0], 1, 0)?;
            return ctx.barrier();
        }
        ctx.recv(&mut [0], 0, 0)?;
        let mut other = LEFT.with_borrow_mut(|left| left.pop()).expect("rank 0 has left it here");
        if !other.test().unwrap_or_default() {
            let error = other.wait().expect_err("it is not this rank's").to_string();
            assert!(error.contains("belongs to the rank"), "{error}");
        }
        assert_eq!(request.wait()?, [1]);
        ctx.send(&[0], 0, 0)?;
        ctx.barrier()
    })?;
    Ok(())
}

/// However a scope ends, what it has lent is its owner's again.
#[test]
fn scopes_that_end_early() {
    where_ranks_share_a_process(2, |ctx| {
        let mut sums = [vec![1.0; 10], vec![1.0; LARGE], vec![1.0; 10]];
        let ended = catch_unwind(AssertUnwindSafe(|| {
            ctx.requests(|requests| -> Result<()> {
                for sum in &mut sums {
                    std::mem::forget(requests.allreduce_in_place(sum, Sum)?);
                }
                panic!("deliberate")
            })
        }));
        assert_eq!(ended.expect_err("it panics").downcast_ref(), Some(&"deliberate"));
        sums.iter_mut().for_each(|sum| sum.fill(0.0));
    });
    let ended = Spmd::new(3).run(|ctx| {
        let mut sums = [vec![1.0; 10], vec![1.0; LARGE], vec![1.0; 10]];
        let ended = ctx.requests(|requests| -> Result<()> {
            for sum in &mut sums {
                drop(requests.allreduce_in_place(sum, Sum)?);
            }
            Err("the scope's own".into())
        });
        assert!(ended.unwrap_err().to_string().contains("the scope's own"));
        // All the same they are over.
        assert!(sums.iter().flatten().all(|sum| *sum == 3.0));
        ctx.barrier()
    });
    ended.expect("the communicator is as good as before");
}

#[test]
fn any_and_some_of_many() -> Result<()> {
    everywhere("any_and_some_of_many", World::default(), &[1, 3], |ctx| {
        let start = |turn: usize| ctx.allreduce_in_place_start(vec![turn; 100], Max);
        let mut requests = (0..30).map(start).collect::<Result<Vec<_>>>()?;
        let mut numbers: Vec<usize> = (0..30).collect();
        while requests.len() > 15 {
            let (place, max) = wait_any(&mut requests)?;
            assert_eq!(max, vec![numbers.remove(place); 100]);
        }
        while !requests.is_empty() {
            for (place, max) in wait_some(&mut requests)?.into_iter().rev() {
                assert_eq!(max, vec![numbers.remove(place); 100]);
            }
        }
        assert!(wait_any(&mut requests).is_err(), "there is none");
        Ok(())
    })
}
