//! Calls of ranks.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use spmd::prelude::*;

use crate::events::Trace;
use crate::support::{again, finish, is_process_rank, spmdrun, spmdrun_self};

fn calls(ctx: &Ctx) -> Result<()> {
    ctx.barrier()?;
    assert_eq!(ctx.allreduce_value(1u32, Sum)?, ctx.size() as u32);
    let (right, left) = ((ctx.rank() + 1) % ctx.size(), (ctx.rank() + ctx.size() - 1) % ctx.size());
    ctx.send(&[1.5], right, 7)?;
    ctx.recv(&mut [0.0], left, 7).map(drop)
}

fn check(path: &Path, size: usize) {
    let trace = Trace::read(path);
    assert_eq!(trace.rows.len(), size, "{:?}", trace.rows);
    for rank in 0..size {
        let calls = trace.calls(&format!("rank {rank}"));
        let (right, left) = ((rank + 1) % size, (rank + size - 1) % size);
        let starts = [
            "barrier at tests/trace/calls.rs:".to_owned(),
            "allreduce_value of 1 u32 with Sum at tests/trace/calls.rs:".to_owned(),
            format!("send of 1 f64 to rank {right} with tag 7 at tests/trace/calls.rs:"),
            format!("recv of 1 f64 from rank {left} with tag 7 at tests/trace/calls.rs:"),
        ];
        assert_eq!(calls.len(), starts.len(), "rank {rank}: {calls:?}");
        assert!(
            calls.iter().zip(&starts).all(|(call, start)| call.starts_with(start)),
            "{calls:?}"
        );
    }
    for bar in &trace.bars {
        let chose = bar.args.get("algorithm").is_some();
        assert_eq!(chose, bar.name.starts_with("allreduce"), "{bar:?}");
    }
}

#[test]
fn of_every_kind_of_rank() {
    if is_process_rank() {
        run(calls).unwrap();
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (mode, ranks) in [("processes", 3), ("threads", 3), ("virtual", 5)] {
        // A name that is no text.
        let name = [mode.as_bytes(), b" \"\\\n\xff"].concat();
        let path = folder.path().join(OsStr::from_bytes(&name));
        // What an earlier job has left there goes.
        std::fs::write(&path, "old").unwrap();
        let mut job = spmdrun_self("calls::of_every_kind_of_rank", ranks);
        let ran = finish(job.env("SPMD_AS", mode).env("SPMD_TRACE", &path));
        assert_eq!(ran.code, Some(0), "{ran:?}");
        check(&path, ranks);
    }
}

#[test]
fn to_a_place_that_cannot_be_written() {
    let ran = finish(spmdrun(&["-n", "2", "true"]).env("SPMD_TRACE", "/nowhere/trace"));
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains("writing the trace /nowhere/trace"), "{}", ran.err);
}

/// What a program names may hold anything.
#[test]
fn with_odd_names() {
    if is_process_rank() {
        run(odd).unwrap();
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    let ran = finish(spmdrun_self("calls::with_odd_names", 2).env("SPMD_TRACE", &path));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let trace = Trace::read(&path);
    let calls = ["rank 0", "rank 1"].map(|row| trace.calls(row)).concat();
    let found = calls.iter().filter(|call| call.contains("with \"most\"\n\\\u{1} of all")).count();
    assert_eq!(found, 2, "{calls:?}");
}

struct Most;

impl Operation<u32> for Most {
    const NAME: &'static str = "\"most\"\n\\\u{1} of all";

    fn combine(&self, left: u32, right: u32) -> u32 {
        left.max(right)
    }
}

fn odd(ctx: &Ctx) -> Result<()> {
    ctx.allreduce_value(1, Most).map(drop)
}

#[test]
fn where_the_command_line_says() {
    if is_process_rank() {
        run(calls).unwrap();
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    for mode in ["processes", "threads"] {
        let mut job = spmdrun(&["-n", "2", "--as", mode, "--trace", "trace.json"]);
        job.current_dir(folder.path());
        let ran = finish(&mut again(job, "calls::where_the_command_line_says"));
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let told = format!("the trace is in {}\n", path.display());
        assert!(ran.err.ends_with(&told), "{}", ran.err);
        check(&path, 2);
    }
}
