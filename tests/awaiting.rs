//! Requests as futures, under executors that this library does not know.

mod support;

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;
use std::time::{Duration, Instant};

use futures::executor::LocalPool;
use futures::future::{Either, join_all, select};
use futures::stream::{FuturesUnordered, StreamExt};
use spmd::prelude::*;
use support::World;

/// Elements: few, and many whose data are taken from their sender.
const COUNTS: [usize; 3] = [1, 1025, 200_000];

fn tokio_runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime")
}

/// Executors that have place for one rank a thread.
fn with_tokio<R>(future: impl Future<Output = R>) -> R {
    tokio::task::LocalSet::new().block_on(&tokio_runtime(), future)
}

fn with_local_pool<R>(future: impl Future<Output = R>) -> R {
    LocalPool::new().run_until(future)
}

/// Each sends to the next one and receives from the one before, and all start a reduction.
async fn around(ctx: &Ctx) -> Result<()> {
    let (me, n) = (ctx.rank(), ctx.size());
    let (right, left) = ((me + 1) % n, (me + n - 1) % n);
    for count in COUNTS {
        let received = ctx.irecv(vec![0; count], left, 0)?;
        let sent = ctx.isend(vec![me; count], right, 0)?;
        let (got, status) = received.await?;
        assert!(got == vec![left; count] && status.len() == count);
        assert!(sent.await? == vec![me; count]);
        let late = ctx.issend(vec![me; count], right, 1)?;
        let receives = (0..2).map(|_| ctx.irecv(vec![0; count], ANY, ANY));
        let mut receives = receives.collect::<Result<FuturesUnordered<_>>>()?;
        ctx.send(&[me], right, 2)?;
        while let Some(received) = receives.next().await {
            let (got, status) = received?;
            assert!(got[..status.len()].iter().all(|rank| *rank == left));
        }
        late.await?;
    }
    Ok(())
}

/// Many that end in any order.
async fn many(ctx: &Ctx) -> Result<()> {
    let (me, n) = (ctx.rank(), ctx.size());
    let (right, left) = ((me + 1) % n, (me + n - 1) % n);
    let receives = (0..200).map(|tag| ctx.irecv(vec![0; 2000], left, tag));
    let receives = receives.collect::<Result<Vec<_>>>()?;
    let sends = (0..200).rev().map(|tag| ctx.isend(vec![tag; 10 * tag as usize], right, tag));
    let sends = sends.collect::<Result<Vec<_>>>()?;
    for (tag, received) in join_all(receives).await.into_iter().enumerate() {
        let (got, status) = received?;
        assert_eq!(
            (status.len(), got[..status.len()].iter().sum::<u32>()),
            (10 * tag, { (10 * tag * tag) as u32 })
        );
    }
    join_all(sends).await.into_iter().collect::<Result<Vec<_>>>().map(drop)
}

fn both(ctx: &Ctx, run: impl Fn(&Ctx)) -> Result<()> {
    run(ctx);
    ctx.barrier()
}

#[test]
fn messages_under_any_executor() -> Result<()> {
    let world = World::default();
    world.everywhere("messages_under_any_executor", &[1, 2, 3], |ctx| {
        pollster::block_on(around(ctx))?;
        pollster::block_on(many(ctx))?;
        ctx.barrier()
    })
}

/// Those that know by a thread-local that they run have place for one rank a thread.
#[test]
fn messages_under_executors_of_one_rank_a_thread() -> Result<()> {
    let body = |ctx: &Ctx| {
        both(ctx, |ctx| with_tokio(around(ctx)).expect("under tokio"))?;
        both(ctx, |ctx| with_tokio(many(ctx)).expect("under tokio"))?;
        both(ctx, |ctx| with_local_pool(around(ctx)).expect("under a local pool"))?;
        both(ctx, |ctx| with_local_pool(many(ctx)).expect("under a local pool"))
    };
    let name = "messages_under_executors_of_one_rank_a_thread";
    for ranks in [1, 2, 3] {
        if !support::is_process_rank() {
            Spmd::new(ranks).threads().timeout(Duration::from_secs(60)).run(body)?;
            let apart = Spmd::new(ranks).virtual_ranks().workers(ranks);
            apart.timeout(Duration::from_secs(60)).run(body)?;
        }
        support::processes(name, ranks, &[], body)?;
    }
    Ok(())
}

#[test]
fn collectives_that_are_awaited() -> Result<()> {
    World::default().everywhere("collectives_that_are_awaited", &[1, 2, 4], |ctx| {
        let n = ctx.size() as u64;
        pollster::block_on(async {
            for count in [1, 100_000] {
                let sum = ctx.allreduce_in_place_start(vec![1u64; count], Sum)?;
                let all = ctx.allgather_start(vec![ctx.rank() as u64], vec![0; ctx.size()])?;
                let barrier = ctx.barrier_start()?;
                assert_eq!(all.await?.1, (0..n).collect::<Vec<_>>());
                assert!(sum.await? == vec![n; count]);
                barrier.await?;
            }
            // What is borrowed.
            let (mine, mut sums) = (vec![1.0; 5000], vec![0.0; 5000]);
            ctx.requests(|requests| {
                let request = requests.allreduce(&mine, &mut sums, Sum)?;
                pollster::block_on(request).map(drop)
            })?;
            assert_eq!(sums, vec![n as f64; 5000]);
            Ok(())
        })
    })
}

/// The tasks of an executor go on while one of them awaits.
#[test]
fn other_tasks_go_on() -> Result<()> {
    Spmd::new(2).threads().timeout(Duration::from_secs(60)).run(|ctx| {
        let turns = Rc::new(Cell::new(0));
        let counted = turns.clone();
        if ctx.rank() == 1 {
            std::thread::sleep(Duration::from_millis(300));
            return ctx.send(&[5], 0, 0);
        }
        with_tokio(async {
            tokio::task::spawn_local(async move {
                while counted.get() < 1000 {
                    counted.set(counted.get() + 1);
                    tokio::task::yield_now().await;
                }
            });
            assert_eq!(ctx.irecv([0], 1, 0)?.await?.0, [5]);
            assert_eq!(turns.get(), 1000);
            Ok(())
        })
    })?;
    Ok(())
}

/// A request that loses a race is still there, and can be awaited once more.
#[test]
fn the_first_of_two() -> Result<()> {
    Spmd::new(2).threads().timeout(Duration::from_secs(60)).run(|ctx| {
        let other = 1 - ctx.rank();
        let [first, second] = [0, 1].map(|tag| ctx.irecv([9], other, tag));
        ctx.send(&[1], other, 1)?;
        let left = match pollster::block_on(select(first?, second?)) {
            Either::Right((got, left)) => {
                assert_eq!(got?.0, [1]);
                left
            }
            Either::Left(_) => return Err("nobody has sent that yet".into()),
        };
        ctx.barrier()?;
        ctx.send(&[2], other, 0)?;
        assert_eq!(pollster::block_on(left)?.0, [2]);
        // Polled once more, one that has given its buffers back is an error.
        let mut over = ctx.isend([1], ctx.rank(), 5)?;
        pollster::block_on(&mut over)?;
        assert!(pollster::block_on(over).is_err());
        ctx.recv(&mut [0], ctx.rank(), 5).map(drop)
    })?;
    Ok(())
}

/// A thread of the program's own awaits on a communicator of its own, meanwhile.
#[test]
fn a_thread_that_awaits() -> Result<()> {
    Spmd::new(2).threads().timeout(Duration::from_secs(60)).run(|ctx| {
        let (comm, other) = (ctx.dup()?, 1 - ctx.rank());
        let thread = std::thread::spawn(move || {
            pollster::block_on(async {
                let received = comm.irecv(vec![0; 100_000], other, 0)?;
                let sent = comm.isend(vec![comm.rank(); 100_000], other, 0)?;
                sent.await?;
                Ok::<_, Error>(received.await?.0[7])
            })
        });
        let received = ctx.irecv([9], other, 0)?;
        ctx.send(&[ctx.rank()], other, 0)?;
        assert_eq!(pollster::block_on(received)?.0, [other]);
        assert_eq!(thread.join().expect("it does not panic")?, other);
        ctx.barrier()
    })?;
    Ok(())
}

/// Ranks of threads and of one worker and of several.
fn shared(ranks: usize, body: impl Fn(&Ctx) -> Result<()> + Sync) -> Vec<String> {
    let blocks: [fn(Spmd) -> Spmd; 3] =
        [Spmd::threads, Spmd::virtual_ranks, |block| block.virtual_ranks().workers(1)];
    let run = |block: fn(Spmd) -> Spmd| {
        let ended = block(Spmd::new(ranks)).timeout(Duration::from_secs(2)).run(&body);
        ended.expect_err("none ends well").to_string()
    };
    blocks.map(run).to_vec()
}

/// What peers do that do not answer ends what is awaited.
#[test]
fn peers_that_fail_or_leave() {
    let errors = shared(3, |ctx| {
        if ctx.rank() == 0 {
            std::thread::sleep(Duration::from_millis(200));
            return Err("deliberate".into());
        }
        let start = Instant::now();
        let ended = match ctx.rank() {
            1 => pollster::block_on(ctx.irecv([0], 0, 0)?).map(drop),
            _ => pollster::block_on(ctx.issend([0], 0, 0)?).map(drop),
        };
        assert!(start.elapsed() < Duration::from_secs(2));
        ended
    });
    errors.iter().for_each(|error| assert!(error.contains("deliberate"), "{error}"));
    let errors = shared(2, |ctx| match ctx.rank() {
        0 => Ok(()),
        _ => pollster::block_on(ctx.irecv([0], 0, 0)?).map(drop),
    });
    errors.iter().for_each(|error| assert!(error.contains("irecv"), "{error}"));
}

/// Two that await each other's message: the time limit tells.
#[test]
fn what_never_ends() {
    let errors = shared(2, |ctx| {
        pollster::block_on(ctx.irecv([0], 1 - ctx.rank(), 0)?)?;
        Ok(())
    });
    for error in errors {
        assert!(error.contains("irecv") && error.contains("awaiting.rs"), "{error}");
    }
}
