//! Loops that poll with `iprobe` for ranks of other processes: told if these have left, as in one
//! process, and left alone otherwise.

use std::time::{Duration, Instant};

use spmd::prelude::*;

use crate::mistakes::{self, is_last};
use crate::support::{Mpi, across_to_its_end, is_mpi_process};
use crate::{FLAT, Place, full};

const PLACES: [Place; 2] = [FLAT, (2, 2, "threads")];

/// Runs it on every library, on each of the two with the standard interface in one place. A loop is told only where no thread
/// of its process but ranks could act.
fn everywhere(
    test: &str,
    places: &[Place],
    program: impl Fn(&Ctx) -> Result<()> + Sync,
    check: impl Fn(Option<i32>, &str),
) -> Result<()> {
    let run = || {
        for mpi in Mpi::all() {
            for place in places {
                let others = match mpi.name {
                    "mpich" => *place != FLAT,
                    "impi" => *place == FLAT,
                    _ => false,
                };
                if others && !full() {
                    continue;
                }
                let start = Instant::now();
                let Some(ran) = across_to_its_end(test, &mpi, *place, &[], &program)? else {
                    continue;
                };
                let took = start.elapsed();
                check(ran.code, &format!("{}, {place:?}: {}{}", mpi.name, ran.out, ran.err));
                assert!(took < Duration::from_secs(60), "{}, {place:?}: {took:?}", mpi.name);
            }
        }
        Ok(())
    };
    if !is_mpi_process() {
        return run();
    }
    mistakes::leave_other_threads();
    mistakes::end(run())
}

#[track_caller]
fn told(words: &'static str) -> impl Fn(Option<i32>, &str) {
    move |code, said| {
        let told = said.contains("ended its block while another rank waited for it (rank 0: ")
            && said.contains(words)
            && said.contains("at tests/mpi/polling.rs");
        assert!(code != Some(0) && told, "{code:?}, {said}");
    }
}

#[test]
fn for_a_rank_that_has_left() -> Result<()> {
    let program = |ctx: &Ctx| match ctx.rank() {
        0 => {
            let last = ctx.size() - 1;
            while ctx.iprobe(last, 0)?.is_none() {}
            (1..last).try_for_each(|rank| ctx.send(&[1], rank, 0))
        }
        _ if is_last(ctx) => Ok(()),
        _ => ctx.recv(&mut [0], 0, 0).map(drop),
    };
    everywhere("polling::for_a_rank_that_has_left", &PLACES, program, told("iprobe from rank"))
}

#[test]
fn when_everybody_else_has_left() -> Result<()> {
    let program = |ctx: &Ctx| {
        let copy = ctx.dup()?;
        while ctx.rank() == 0 && copy.iprobe(ANY, ANY)?.is_none() {}
        Ok(())
    };
    let test = "polling::when_everybody_else_has_left";
    everywhere(test, &PLACES, program, told("iprobe from any rank"))
}

/// For longer than it takes to tell a loop: one may be left at any time, and so it is not told
/// while those for whom it polls are there, though they wait for it. Nor is one that works besides.
#[test]
fn that_end_by_the_clock() -> Result<()> {
    let program = |ctx: &Ctx| {
        let start = Instant::now();
        let until = |seconds| start.elapsed() < Duration::from_secs(seconds);
        while ctx.rank() == 0 && until(8) {
            assert!(ctx.iprobe(ANY, 0)?.is_none() && ctx.iprobe(ctx.size() - 1, 1)?.is_none());
        }
        ctx.barrier()?;
        while ctx.rank() == 0 && until(16) {
            assert!(ctx.iprobe(ctx.size() - 1, 0)?.is_none());
            std::thread::sleep(Duration::from_micros(500));
        }
        Ok(())
    };
    everywhere("polling::that_end_by_the_clock", &PLACES[..1], program, |code, said| {
        assert_eq!(code, Some(0), "{said}");
    })
}
