//! The conformance matrix: every collective in every form, against plain loops.
//!
//! Each world of (mode, number of ranks) runs all its cases ([`cases`]): the
//! full product of forms, counts, roots and layouts of buffers for `f64` and `Sum`; for the other
//! element types and operations each pair of two of these. Worlds of more than 7 ranks are left out where
//! the algorithm is forced, and of workers of chosen numbers. With `SPMD_TEST_FULL=1` all of it is a
//! full product. A small segment lets small data reach every branch.

mod support;

use spmd::Result;
use spmd_conformance::{communicators, full, random};
use spmd_core::algorithm::CHOICES;
use spmd_matrix::{Choice, cases};
use support::World;

const RANKS: [usize; 7] = [1, 2, 3, 4, 7, 8, 16];

/// How many where each mode has done all of it: more take as much longer.
fn few() -> &'static [usize] {
    if full() { &RANKS } else { &RANKS[..5] }
}

const ALL: Choice = Choice { all_layouts: true, all_types: true };

fn world() -> World {
    World { segment: Some(1024), ..Default::default() }
}

#[test]
fn threads() -> Result<()> {
    RANKS.iter().try_for_each(|ranks| world().threads(*ranks, |ctx| cases(ctx, ALL)))
}

#[test]
fn virtual_ranks() -> Result<()> {
    RANKS.iter().try_for_each(|ranks| world().virtual_ranks(*ranks, |ctx| cases(ctx, ALL)))
}

/// Ranks that share a thread, and ranks of three threads, however many cores there are.
#[test]
fn virtual_ranks_on_one_worker_and_on_three() -> Result<()> {
    for workers in [1, 3] {
        let world = World { workers: Some(workers), ..world() };
        few().iter().try_for_each(|ranks| {
            world.virtual_ranks(*ranks, |ctx| cases(ctx, ONE_TYPE))?;
            world.virtual_ranks(*ranks, communicators::agents)?;
            world.virtual_ranks((*ranks).max(2), communicators::busy)
        })?;
    }
    Ok(())
}

#[test]
fn processes() -> Result<()> {
    RANKS.iter().try_for_each(|ranks| world().processes("processes", *ranks, |ctx| cases(ctx, ALL)))
}

/// The calls that have a choice, each with this algorithm (`tree`: with one of several steps) if it
/// knows it.
fn forced(algorithm: &'static str) -> World {
    let by = |choice: &spmd_core::algorithm::Choice| {
        let named =
            |name| choice.candidates.iter().any(|candidate| candidate.algorithm.name() == name);
        let other = if algorithm == "tree" { "doubling" } else { algorithm };
        let found = [algorithm, other].into_iter().find(|name| named(*name))?;
        Some((choice.kind.name(), found))
    };
    World { forced: CHOICES.iter().filter_map(by).collect(), ..world() }
}

const ONE_TYPE: Choice = Choice { all_layouts: false, all_types: false };

#[test]
fn flat() -> Result<()> {
    forced("flat").everywhere("flat", few(), |ctx| cases(ctx, ONE_TYPE))
}

#[test]
fn tree_and_doubling() -> Result<()> {
    forced("tree").everywhere("tree_and_doubling", few(), |ctx| cases(ctx, ONE_TYPE))
}

#[test]
fn chunked() -> Result<()> {
    forced("chunked").everywhere("chunked", few(), |ctx| cases(ctx, ONE_TYPE))
}

#[test]
fn communicators() -> Result<()> {
    world().everywhere("communicators", &[2, 3, 4, 7, 8, 16], communicators::busy)
}

#[test]
fn agents() -> Result<()> {
    world().everywhere("agents", &[1, 2, 3, 4, 8], communicators::agents)
}

/// Ranks that come late, and messages that overtake each other.
#[test]
fn chaos() -> Result<()> {
    let some: &[(u64, &[usize])] = &[(1, &[3, 4]), (2, &[2, 7])];
    let all: Vec<(u64, &[usize])> = (1..=6).map(|seed| (seed, &[2, 3, 4, 7][..])).collect();
    for &(seed, ranks) in if full() { &all[..] } else { some } {
        let world = World { chaos: Some(seed), ..world() };
        world.everywhere("chaos", ranks, |ctx| {
            cases(ctx, ONE_TYPE)?;
            communicators::busy(ctx)
        })?;
    }
    Ok(())
}

/// The same random sequence of calls on every rank.
#[test]
fn random_programs() -> Result<()> {
    use random::{execute, explore, fixed};
    for ranks in [1, 2, 3, 5, 8] {
        if !support::is_process_rank() {
            explore(30, |steps| world().threads(ranks, |ctx| execute(ctx, steps)))?;
            explore(30, |steps| world().virtual_ranks(ranks, |ctx| execute(ctx, steps)))?;
        }
        let programs = fixed(if full() { 300 } else { 30 });
        world().processes("random_programs", ranks, |ctx| {
            programs.iter().enumerate().try_for_each(|(number, steps)| {
                execute(ctx, steps).map_err(|error| format!("program {number}: {error}").into())
            })
        })?;
    }
    Ok(())
}
