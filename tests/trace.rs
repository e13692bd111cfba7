//! What `SPMD_TRACE` writes: every call of every rank, in a file that trace viewers read.

#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde_json::Value;
use spmd::prelude::*;

mod support;

use support::{finish, is_process_rank, spmdrun, spmdrun_self};

fn calls(ctx: &Ctx) -> Result<()> {
    ctx.barrier()?;
    assert_eq!(ctx.allreduce_value(1u32, Sum)?, ctx.size() as u32);
    let (right, left) = ((ctx.rank() + 1) % ctx.size(), (ctx.rank() + ctx.size() - 1) % ctx.size());
    ctx.send(&[1.5], right, 7)?;
    ctx.recv(&mut [0.0], left, 7).map(drop)
}

/// The calls of each rank, in order, by what the file says of them.
fn read(path: &Path) -> BTreeMap<u64, Vec<String>> {
    let text = std::fs::read_to_string(path).unwrap();
    let events: Vec<Value> = serde_json::from_str(&text).unwrap();
    // A line for each call, which is JSON but for the comma behind it.
    let lines = text.trim_start_matches("[\n").trim_end_matches("\n]\n").lines();
    let lines = lines.map(|line| serde_json::from_str(line.trim_end_matches(',')).unwrap());
    assert_eq!(lines.collect::<Vec<Value>>(), events);
    let mut ranks: BTreeMap<u64, Vec<(f64, String)>> = BTreeMap::new();
    for event in events {
        assert_eq!(event["ph"], "X");
        assert!(event["dur"].as_f64().unwrap() >= 0.0);
        let what = event["args"]["call"].as_str().unwrap().to_owned();
        assert!(what.starts_with(event["name"].as_str().unwrap()), "{what}");
        let chose = event["args"].get("algorithm").is_some();
        assert_eq!(chose, what.starts_with("allreduce"), "{what}");
        let start = event["ts"].as_f64().unwrap();
        ranks.entry(event["tid"].as_u64().unwrap()).or_default().push((start, what));
    }
    let in_order = |mut calls: Vec<(f64, String)>| {
        calls.sort_by(|a, b| a.0.total_cmp(&b.0));
        calls.into_iter().map(|(_, what)| what).collect()
    };
    ranks.into_iter().map(|(rank, calls)| (rank, in_order(calls))).collect()
}

fn check(path: &Path, size: usize) {
    let ranks = read(path);
    assert_eq!(ranks.keys().copied().collect::<Vec<_>>(), (0..size as u64).collect::<Vec<_>>());
    for (rank, calls) in ranks {
        let (right, left) = ((rank + 1) % size as u64, (rank + size as u64 - 1) % size as u64);
        let starts = [
            "barrier at tests/trace.rs:".to_owned(),
            "allreduce_value of 1 u32 with Sum at tests/trace.rs:".to_owned(),
            format!("send of 1 f64 to rank {right} with tag 7 at tests/trace.rs:"),
            format!("recv of 1 f64 from rank {left} with tag 7 at tests/trace.rs:"),
        ];
        assert_eq!(calls.len(), starts.len(), "rank {rank}: {calls:?}");
        assert!(
            calls.iter().zip(&starts).all(|(call, start)| call.starts_with(start)),
            "{calls:?}"
        );
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
        let mut job = spmdrun_self("of_every_kind_of_rank", ranks);
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
    let ran = finish(spmdrun_self("with_odd_names", 2).env("SPMD_TRACE", &path));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let text = std::fs::read_to_string(&path).unwrap();
    let events: Vec<Value> = serde_json::from_str(&text).unwrap();
    let calls = events.iter().map(|event| event["args"]["call"].as_str().unwrap());
    let found = calls.filter(|call| call.contains("with \"most\"\n\\\u{1} of all")).count();
    assert_eq!(found, 2, "{text}");
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
