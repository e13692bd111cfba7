//! Calls that a thread beside each rank carries out.

use std::thread;
use std::time::Duration;

use spmd::prelude::*;
use spmd_conformance::{beside, persistent, random, requests, started};

use crate::{everywhere, most};

const HELPED: &[(&str, &str)] = &[("SPMD_PROGRESS", "thread")];

#[test]
fn collectives_as_requests() -> Result<()> {
    let places = [(2, 1, "threads"), (3, 2, "threads"), (3, 1, "threads")];
    everywhere("progress::collectives_as_requests", most(&places), HELPED, started::all)
}

#[test]
fn persistent_calls() -> Result<()> {
    let places = [(2, 1, "threads"), (2, 2, "threads")];
    everywhere("progress::persistent_calls", &places, HELPED, persistent::all)
}

#[test]
fn messages_as_requests() -> Result<()> {
    let places = [(2, 1, "threads"), (2, 2, "virtual")];
    everywhere("progress::messages_as_requests", &places, HELPED, requests::all)
}

#[test]
fn random_programs() -> Result<()> {
    let programs = random::fixed(10);
    let places = [(2, 1, "threads"), (2, 2, "threads")];
    everywhere("progress::random_programs", &places, HELPED, |ctx| {
        programs.iter().enumerate().try_for_each(|(number, steps)| {
            let run = random::execute(ctx, steps);
            run.map_err(|error| format!("program {number}: {error}").into())
        })
    })
}

/// Messages to and from a rank that makes no call.
#[test]
fn messages_go_on_while_the_rank_computes() -> Result<()> {
    let places = [(2, 1, "threads"), (2, 2, "threads")];
    everywhere("progress::messages_go_on_while_the_rank_computes", &places, HELPED, beside::goes_on)
}

/// What the library does in many steps is over when a rank has asked a few times, all of which it
/// did something else before.
#[test]
fn calls_go_on_while_ranks_compute() -> Result<()> {
    let places = [(2, 1, "threads"), (2, 2, "threads")];
    everywhere("progress::calls_go_on_while_ranks_compute", &places, HELPED, |ctx| {
        let mut request = ctx.allreduce_in_place_start(vec![1.0; 2 << 20], Sum)?;
        let mut asked = 0;
        while !request.test()? {
            thread::sleep(Duration::from_millis(500));
            asked += 1;
            assert!(asked < 40, "it does not go on");
        }
        assert!(request.wait()?.iter().all(|sum| *sum == ctx.size() as f64));
        Ok(())
    })
}
