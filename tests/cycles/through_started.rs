//! Cycles through calls that ranks have started.

use spmd::prelude::*;
use spmd_core::internal::{ErasedOp, StartedCall};

#[path = "../support/starts.rs"]
mod starts;

use crate::expect::mistake;
use starts::{allreduce, barrier};

pub(crate) fn the_end_of_a_started_call() {
    mistake(2, |ctx| match ctx.rank() {
        0 => barrier(ctx)?.wait(),               // <1>
        _ => ctx.recv(&mut [0], 0, 0).map(drop), // <2>
    })
    .deadlock(&[0, 1], &["rank 0: barrier at <1>", "rank 1: recv of 1 i32 from rank 0", "<2>"]);
}

pub(crate) fn receives_beside_started_calls() {
    mistake(3, |ctx| {
        let comm = ctx.dup()?;
        let started = [barrier(&comm)?, barrier(ctx)?];
        ctx.recv(&mut [0], (ctx.rank() + 1) % 3, 0)?; // <1>
        started.into_iter().try_for_each(StartedCall::wait)
    })
    .deadlock(&[0, 1, 2], &["rank 0: recv of 1 i32 from rank 1 with tag 0 at <1>"]);
}

pub(crate) fn a_started_call_whose_turn_has_not_come() {
    mistake(2, |ctx| {
        if ctx.rank() > 0 {
            return ctx.recv(&mut [0], 0, 0).map(drop);
        }
        let started: Result<Vec<_>> = (0..7).map(|_| barrier(ctx)).collect(); // <1>
        started?.into_iter().rev().try_for_each(StartedCall::wait)
    })
    .deadlock(&[0, 1], &["rank 0: barrier at <1>", "rank 1: recv of 1 i32 from rank 0"]);
}

pub(crate) fn a_started_call_that_is_dropped() {
    mistake(3, |ctx| {
        let comm = ctx.dup()?;
        if ctx.rank() > 0 {
            return ctx.recv(&mut [0], 0, 0).map(drop);
        }
        drop(barrier(&comm)?); // <1>
        ctx.barrier()
    })
    .deadlock(&[1, 2], &["rank 0: barrier at <1>", "ranks 1, 2: recv of 1 i32 from rank 0"]);
}

pub(crate) fn a_started_call_that_lends_its_memory() {
    mistake(2, |ctx| {
        let mut buf = vec![1.0; 512 << 10];
        if ctx.rank() > 0 {
            return ctx.ssend(&[0], 0, 0); // <1>
        }
        allreduce(ctx, &mut buf, &ErasedOp::new::<f64, _>(&Sum))?.wait() // <2>
    })
    .deadlock(
        &[0, 1],
        &["rank 0: allreduce of 524288 f64 with Sum at <2>", "rank 1: ssend", "<1>"],
    );
}
