//! Calls that a thread beside each rank carries out.

mod messages;
#[path = "../support/mod.rs"]
mod support;

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use spmd::Progress;
use spmd::prelude::*;
use spmd_conformance::{random, requests};
use support::World;

const HELPED: Progress = Progress::Thread;

fn helped() -> World {
    World { progress: HELPED, ..World::default() }
}

/// Runs `body` on threads and on processes.
fn everywhere(test: &str, ranks: &[usize], body: impl Fn(&Ctx) -> Result<()> + Sync) -> Result<()> {
    for ranks in ranks {
        helped().threads(*ranks, &body)?;
        helped().processes(test, *ranks, &body)?;
    }
    Ok(())
}

/// What takes thousands of steps is over when a rank has asked a few times, all of which it did
/// something else before.
#[test]
fn calls_go_on_while_ranks_compute() -> Result<()> {
    everywhere("calls_go_on_while_ranks_compute", &[2, 3], |ctx| {
        let n = ctx.size() as f64;
        let comm = ctx.dup()?;
        let mut persistent = comm.allreduce_init(vec![2.0; 1 << 20], vec![0.0; 1 << 20], Sum)?;
        let mut request = ctx.allreduce_in_place_start(vec![1.0; 2 << 20], Sum)?;
        persistent.start()?;
        let mut asked = 0;
        let start = Instant::now();
        while !request.test()? || !persistent.test()? {
            match ctx.rank() {
                0 => thread::sleep(Duration::from_millis(500)),
                _ => {
                    let start = Instant::now();
                    while start.elapsed() < Duration::from_millis(500) {
                        std::hint::spin_loop();
                    }
                }
            }
            asked += 1;
            assert!(asked < 40, "in {:?}", start.elapsed());
        }
        assert!(request.wait()?.iter().all(|sum| *sum == n));
        persistent.wait()?;
        assert!(persistent.recv()?.iter().all(|sum| *sum == 2.0 * n));
        Ok(())
    })
}

#[test]
fn beside_messages_and_in_sets() -> Result<()> {
    everywhere("beside_messages_and_in_sets", &[2, 3], |ctx| {
        requests::sets_of_calls_and_messages(ctx)?;
        requests::all(ctx)
    })
}

#[test]
fn random_programs() -> Result<()> {
    let programs = random::fixed(10);
    everywhere("random_programs", &[2, 3], |ctx| {
        programs.iter().enumerate().try_for_each(|(number, steps)| {
            let run = random::execute(ctx, steps);
            run.map_err(|error| format!("program {number}: {error}").into())
        })
    })
}

/// Neighbours, in a scope, which borrow.
#[test]
fn neighbours_that_borrow() -> Result<()> {
    everywhere("neighbours_that_borrow", &[1, 3], |ctx| {
        let n = ctx.size();
        let ring = ctx.cartesian(&[n], &[true])?.ok_or("there is a place for each")?;
        let (me, left, right) = (ring.rank(), (ring.rank() + n - 1) % n, (ring.rank() + 1) % n);
        for count in [1, 20_000] {
            let (mine, mut all) = (vec![me; count], vec![9; 2 * count]);
            ctx.requests(|requests| {
                requests.neighbor_allgather(&ring, &mine, &mut all)?;
                Ok(())
            })?;
            assert_eq!(all, [vec![left; count], vec![right; count]].concat());
        }
        Ok(())
    })
}

/// What is wrong with its arguments is told by the wait.
#[test]
fn errors_come_from_the_wait() -> Result<()> {
    everywhere("errors_come_from_the_wait", &[2], |ctx| {
        let wrong = ctx.allreduce_start(vec![1; 3], vec![0; 2], Sum)?;
        let error = wrong.wait().expect_err("the lengths differ").to_string();
        assert!(error.contains("receive buffer"), "{error}");
        ctx.barrier_start()?.wait()
    })
}

/// Calls that are awaited: the thread that carries them out has them polled.
#[test]
fn calls_that_are_awaited() -> Result<()> {
    everywhere("calls_that_are_awaited", &[2, 3], |ctx| {
        let n = ctx.size();
        let sums = pollster::block_on(async {
            let large = ctx.allreduce_in_place_start(vec![1; 300_000], Sum)?;
            let small = ctx.allreduce_in_place_start([ctx.rank()], Max)?;
            assert_eq!(small.await?, [n - 1]);
            large.await
        })?;
        assert_eq!(sums, vec![n; 300_000]);
        Ok(())
    })
}

/// Operations run on the thread, which the rank's panic and its own storage know nothing of.
#[test]
fn operations_run_beside_their_ranks() -> Result<()> {
    spmd::rank_local! {
        static CALLS: AtomicUsize = AtomicUsize::new(0);
    }
    Spmd::new(2).threads().progress(HELPED).run(|ctx| {
        let counted = Op::new(|a: usize, b: usize| {
            CALLS.with(|calls| calls.fetch_add(1, Relaxed));
            a + b
        });
        assert_eq!(ctx.allreduce_in_place_start([1], counted)?.wait()?, [2]);
        assert_eq!(CALLS.with(|calls| calls.load(Relaxed)), 0);
        Ok(())
    })?;
    Ok(())
}

/// Threads of this process by name, as far as the system keeps names.
#[cfg(target_os = "linux")]
fn threads_named(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("a process has threads");
    let names = tasks.filter_map(|task| {
        let path = task.ok()?.path().join("comm");
        std::fs::read_to_string(path).ok()
    });
    names.filter(|its| its.trim_end() == name).count()
}

/// A thread is there from the first started call to the end of the block.
#[test]
#[cfg(target_os = "linux")]
fn nothing_is_left_behind() -> Result<()> {
    if support::is_process_rank() {
        return Ok(());
    }
    // 15 bytes of it are kept.
    let last = "rank 33 progres";
    for fails in [false, true] {
        let ran = Spmd::new(34).threads().progress(HELPED).run(|ctx| {
            ctx.barrier()?;
            assert_eq!(threads_named(last), 0);
            ctx.barrier()?;
            ctx.barrier_start()?.wait()?;
            assert_eq!(threads_named(last), 1);
            ctx.barrier()?;
            std::mem::forget(ctx.allreduce_in_place_start([1], Sum)?);
            if fails && ctx.rank() == 3 { Err("deliberate".into()) } else { Ok(()) }
        });
        assert_eq!(ran.is_err(), fails);
        assert_eq!(threads_named(last), 0);
    }
    Ok(())
}

/// Of each block, one after another and within another.
#[test]
fn blocks_after_and_within_another() -> Result<()> {
    for turn in 0..20 {
        let sums = Spmd::new(2).threads().progress(HELPED).run(|outer| {
            let around = outer.allreduce_in_place_start(vec![1; 100_000], Sum)?;
            let inner = Spmd::new(2).threads().progress(HELPED).run(|inner| {
                let first = inner.allreduce_in_place_start([turn], Sum)?;
                inner.barrier_start()?.wait()?;
                first.wait()
            })?;
            assert_eq!(around.wait()?, vec![2; 100_000]);
            Ok(inner[0][0] + inner[1][0])
        })?;
        assert_eq!(sums, [4 * turn; 2]);
    }
    Ok(())
}

/// Virtual ranks have no such threads, and go on without.
#[test]
fn virtual_ranks_have_none() -> Result<()> {
    helped().virtual_ranks(100, |ctx| {
        let sums = ctx.allreduce_in_place_start([1], Sum)?.wait()?;
        assert_eq!(sums, [100]);
        Ok(())
    })
}

/// A process that is killed while the others' calls go on beside them.
#[test]
#[cfg(target_os = "linux")]
fn a_process_that_is_killed_meanwhile() {
    let test = "a_process_that_is_killed_meanwhile";
    if support::is_process_rank() {
        let ended = spmd::run(|ctx| {
            ctx.barrier_start()?.wait()?;
            let request = ctx.allreduce_in_place_start(vec![1.0; 4 << 20], Sum)?;
            if ctx.rank() == 1 {
                // SAFETY: it sends a signal to this process.
                unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
            }
            let start = Instant::now();
            let error = request.wait().expect_err("a rank was killed").to_string();
            assert!(error.contains("rank 1"), "{error}");
            assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
            println!("rank {} was told", ctx.rank());
            Ok(())
        });
        return drop(ended);
    }
    let mut job = support::spmdrun_self(test, 3);
    let ran = support::finish(job.env("SPMD_PROGRESS", "thread"));
    let told = ran.out.matches("was told").count();
    assert_eq!(told, 2, "{ran:?}");
}
