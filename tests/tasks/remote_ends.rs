//! How jobs of process ranks end that run tasks for each other, when something goes wrong.

use std::time::{Duration, Instant};

use spmd::Fault;
use spmd::prelude::*;
use spmd::tasks::{remote, task};

use crate::mistakes::{end, leave_other_threads};
use crate::support::{finish, is_process_rank, spmdrun_self};

fn dies() -> Result<()> {
    std::process::abort()
}

fn naps(milliseconds: u64) -> Result<u64> {
    std::thread::sleep(Duration::from_millis(milliseconds));
    Ok(milliseconds)
}

/// Waits for what it has itself.
fn waits_for_ever() -> Result<()> {
    task().gpu(1).spawn(|| task().gpu(1).spawn(|| Ok(())).take()).take()
}

remote!(dies, naps, waits_for_ever);

type Program = fn(&Ctx) -> Result<()>;

/// What a job does, on how many ranks, and what it says.
const ENDS: &[(&str, usize, Program, &[&str])] = &[
    (
        "the rank of a task dies",
        3,
        |ctx| match ctx.rank() {
            0 => {
                let error = ctx.spawn_on(2, dies, ()).take().expect_err("it dies");
                let Error::TaskFailed(failed) = &error else { panic!("another error: {error}") };
                assert_eq!(failed.fault.as_ref().and_then(Fault::rank), Some(2), "{error}");
                // No rank runs tasks for another one after that.
                assert!(ctx.spawn_on(1, naps, (1,)).take().is_err());
                Err(error)
            }
            _ => ctx.barrier(),
        },
        &["rank 2 failed first: its process", "tests/tasks/remote_ends.rs"],
    ),
    (
        "a rank fails that others need",
        2,
        |ctx| match ctx.rank() {
            0 => ctx.spawn_on(1, naps, (200,)).take().map(drop),
            _ => Err("no more data".into()),
        },
        &["no more data"],
    ),
    (
        "a rank fails that needs others",
        3,
        |ctx| {
            if ctx.rank() == 0 {
                (0..20).for_each(|_| drop(ctx.spawn_on(1, naps, (20,))));
                return Err("no more data".into());
            }
            ctx.barrier()
        },
        &["no more data"],
    ),
    (
        "a cycle of receives beside them",
        2,
        |ctx| {
            assert_eq!(ctx.spawn_on(1 - ctx.rank(), naps, (1,)).take()?, 1);
            ctx.recv(&mut [0u8], 1 - ctx.rank(), 0).map(drop)
        },
        &["deadlock", "rank 0: recv of 1 u8 from rank 1", "rank 1: recv of 1 u8 from rank 0"],
    ),
    (
        "a task that waits for ever",
        2,
        |ctx| match ctx.rank() {
            0 => ctx.spawn_on(1, waits_for_ever, ()).take(),
            _ => Ok(()),
        },
        &["deadlock", "rank 0: fetch at tests/tasks/remote_ends.rs", "waits_for_ever"],
    ),
];

#[test]
fn each() {
    const WHICH: &str = "SPMD_TEST_END";
    if is_process_rank() {
        let which: usize = std::env::var(WHICH).expect("it is set").parse().expect("a number");
        leave_other_threads();
        end(spmd::run(ENDS[which].2).map(drop));
    }
    for (which, (name, ranks, _, texts)) in ENDS.iter().enumerate() {
        let (mut job, start) = (spmdrun_self("remote_ends::each", *ranks), Instant::now());
        let job = job.env(WHICH, which.to_string()).env("SPMD_RESOURCES", "gpu=1");
        let ran = finish(job);
        let took = start.elapsed();
        assert_ne!(ran.code, Some(0), "{name}: {}\n{}", ran.out, ran.err);
        let missing = texts.iter().find(|text| !ran.err.contains(**text));
        assert_eq!(missing, None, "{name}: {}\n{}", ran.out, ran.err);
        assert!(took < Duration::from_secs(30), "{name} took {took:?}");
    }
}
