//! Cycles through calls that ranks have started.

use spmd::prelude::*;

use crate::expect::mistake;

pub(crate) fn the_end_of_a_started_call() {
    mistake(2, |ctx| match ctx.rank() {
        0 => ctx.barrier_start()?.wait(),        // <1>
        _ => ctx.recv(&mut [0], 0, 0).map(drop), // <2>
    })
    .deadlock(&[0, 1], &["rank 0: barrier at <1>", "rank 1: recv of 1 i32 from rank 0", "<2>"]);
}

pub(crate) fn receives_beside_started_calls() {
    mistake(3, |ctx| {
        let comm = ctx.dup()?;
        let started = [comm.barrier_start()?, ctx.barrier_start()?];
        ctx.recv(&mut [0], (ctx.rank() + 1) % 3, 0)?; // <1>
        started.into_iter().try_for_each(Request::wait)
    })
    .deadlock(&[0, 1, 2], &["rank 0: recv of 1 i32 from rank 1 with tag 0 at <1>"]);
}

pub(crate) fn a_started_call_whose_turn_has_not_come() {
    mistake(2, |ctx| {
        if ctx.rank() > 0 {
            return ctx.recv(&mut [0], 0, 0).map(drop);
        }
        let started: Result<Vec<_>> = (0..7).map(|_| ctx.barrier_start()).collect(); // <1>
        started?.into_iter().rev().try_for_each(Request::wait)
    })
    .deadlock(&[0, 1], &["rank 0: barrier at <1>", "rank 1: recv of 1 i32 from rank 0"]);
}

pub(crate) fn a_started_call_that_is_dropped() {
    mistake(3, |ctx| {
        let comm = ctx.dup()?;
        if ctx.rank() > 0 {
            return ctx.recv(&mut [0], 0, 0).map(drop);
        }
        drop(comm.barrier_start()?); // <1>
        Ok(())
    })
    .deadlock(&[1, 2], &["rank 0: barrier at <1>", "ranks 1, 2: recv of 1 i32 from rank 0"]);
}

pub(crate) fn a_started_call_that_lends_its_memory() {
    mistake(2, |ctx| {
        let buf = vec![1.0; 512 << 10];
        if ctx.rank() > 0 {
            return ctx.ssend(&[0], 0, 0); // <1>
        }
        ctx.allreduce_in_place_start(buf, Sum)?.wait().map(drop) // <2>
    })
    .deadlock(
        &[0, 1],
        &["rank 0: allreduce_in_place of 524288 f64 with Sum at <2>", "rank 1: ssend", "<1>"],
    );
}
