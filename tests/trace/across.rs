//! One trace of processes that share no memory, over the loopback fabric and over MPI.

use std::path::Path;
use std::process::Command;

use spmd::prelude::*;
use spmd_loopback::Job;

use crate::events::Trace;
use crate::support::{Mpi, again, finish, free, is_mpi_process, to_its_end};

fn body(ctx: &Ctx) -> Result<()> {
    let rank = ctx.rank();
    let task = ctx.task().name("sum").spawn(move || Ok(rank + 1));
    let sum = ctx.allreduce_value(task.take()?, Sum)?;
    for round in 0..200 {
        ctx.barrier()?;
        assert_eq!(ctx.allreduce_value(round, Max)?, round);
    }
    assert_eq!(sum, ctx.size() * (ctx.size() + 1) / 2);
    Ok(())
}

/// All is in this file, in one time: nobody leaves a barrier before all have entered it, but for what the
/// clocks of hosts are known to differ.
fn check(path: &Path, (processes, each): (usize, usize), blocks: usize) {
    let trace = Trace::read(path);
    assert_eq!(trace.processes.len(), processes, "{:?}", trace.processes);
    let ranks = processes * each;
    assert_eq!(trace.rows_of("rank").len(), ranks, "{:?}", trace.rows);
    assert_eq!(trace.tasks("sum").len(), blocks * ranks);
    let barriers = |rank: usize| {
        let row = format!("rank {rank}");
        let its = trace.bars.iter().filter(|bar| trace.rows[&bar.row] == row);
        its.filter(|bar| bar.name == "barrier").collect::<Vec<_>>()
    };
    let all: Vec<_> = (0..ranks).map(barriers).collect();
    assert!(all.iter().all(|its| its.len() == 200 * blocks));
    let error = |bar: &crate::events::Bar| trace.errors.get(&bar.row.0).copied().unwrap_or(0);
    let at = |rank: usize, round: usize| &all[rank][round];
    let pairs = || (0..ranks).flat_map(|one| (0..ranks).map(move |other| (one, other)));
    for round in 0..200 * blocks {
        for (one, other) in pairs() {
            let (one, other) = (at(one, round), at(other, round));
            assert!(one.start <= other.end + error(one) + error(other), "{one:?} {other:?}");
        }
    }
    let left = path.parent().unwrap().read_dir().unwrap().count();
    assert_eq!(left, 1, "a part is left");
}

const INNER: &str = "SPMD_TEST_TRACED";

/// Starts the test of this name again, with a trace in this file: what it then does.
fn traced(test: &str, path: &Path) -> Command {
    let mut command = Command::new("env");
    free(&mut command);
    let mut command = again(command, &format!("across::{test}"));
    command.env("SPMD_TRACE", path).env(INNER, "1");
    command
}

fn is_traced() -> bool {
    std::env::var_os(INNER).is_some()
}

#[test]
fn over_the_loopback_fabric() {
    if is_traced() {
        let job = Job::new(3, 2).blocks(2).run(body);
        return assert!(!job.has_failed(), "{job:?}");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    let ran = finish(&mut traced("over_the_loopback_fabric", &path));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    check(&path, (3, 2), 2);
    // Their clock is the same; nothing knows that.
    let trace = Trace::read(&path);
    assert_eq!(trace.errors.len(), 2, "{:?}", trace.errors);
    for (process, shift) in &trace.shifts {
        assert!(
            shift.unsigned_abs() <= trace.errors[process],
            "{:?} {:?}",
            trace.shifts,
            trace.errors
        );
    }
}

/// What each process has written stays, and can be read.
#[test]
fn of_a_job_that_fails() {
    if is_traced() {
        let job = Job::new(2, 1).run(|ctx| {
            ctx.barrier()?;
            if ctx.rank() == 1 { Err("deliberate".into()) } else { ctx.barrier() }
        });
        return assert!(job.has_failed(), "{job:?}");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    let ran = finish(&mut traced("of_a_job_that_fails", &path));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for (name, row) in [("trace.json", "rank 0"), ("trace.json.rank-1", "rank 1")] {
        let calls = Trace::read(&folder.path().join(name)).calls(row);
        assert!(calls[0].starts_with("barrier at "), "{calls:?}");
    }
}

#[test]
fn over_mpi() -> Result<()> {
    for mpi in Mpi::all() {
        for (processes, each, mode) in [(3, 1, "threads"), (2, 2, "virtual")] {
            let folder = tempfile::tempdir()?;
            let path = folder.path().join("trace.json");
            let settings = [("SPMD_TRACE", path.to_str().expect("it is text"))];
            let launch = || mpi.launch(processes, each, mode);
            let ran = to_its_end("across::over_mpi", launch, &settings, body)?;
            if let Some(ran) = ran {
                assert_eq!(ran.code, Some(0), "{ran:?}");
                check(&path, (processes, each), 1);
            }
        }
        if !is_mpi_process() {
            let folder = tempfile::tempdir()?;
            let path = folder.path().join("trace.json");
            let file = path.to_str().expect("it is text");
            let options = ["--transport", "mpi", "-n", "2", "--trace", file];
            let again = again(mpi.spmdrun(&options), "across::under_spmdrun");
            let ran = finish(&mut { again });
            assert_eq!(ran.code, Some(0), "{ran:?}");
            assert!(ran.err.contains(&format!("the trace is in {file}")), "{}", ran.err);
            check(&path, (2, 1), 1);
        }
    }
    Ok(())
}

/// What the test above starts.
#[test]
fn under_spmdrun() -> Result<()> {
    if is_mpi_process() { spmd::run(body).map(drop) } else { Ok(()) }
}
