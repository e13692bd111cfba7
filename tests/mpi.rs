//! Worlds whose processes are joined by MPI: the conformance matrix on each library with MPI's
//! standard interface that `cargo xtask test mpi` has installed, flat and with several ranks a
//! process.

#![cfg(target_os = "linux")]

mod support;

mod conformance {
    pub mod case;
    pub mod cases;
    pub mod communicators;
    pub mod grids;
    pub mod moves;
    pub mod objects;
    pub mod random;
    pub mod reductions;
    pub mod types;
}

use conformance::cases::{Choice, cases};
use spmd::{Ctx, Result};
use support::{Mpi, across};

const ALL: Choice = Choice { all_layouts: true, all_types: true };
const ONE_TYPE: Choice = Choice { all_layouts: false, all_types: false };

/// Processes, ranks of each, and what they are.
type Place = (usize, usize, &'static str);

fn everywhere(
    test: &str,
    places: &[Place],
    settings: &[(&str, &str)],
    body: impl Fn(&Ctx) -> Result<()> + Sync,
) -> Result<()> {
    for mpi in Mpi::all() {
        for place in places {
            across(test, &mpi, *place, settings, &body)?;
        }
    }
    Ok(())
}

#[test]
fn flat() -> Result<()> {
    let places = [1, 2, 3, 4].map(|processes| (processes, 1, "threads"));
    everywhere("flat", &places, &[], |ctx| cases(ctx, ALL))
}

#[test]
fn flat_in_the_canonical_order() -> Result<()> {
    let places = [2, 3, 4].map(|processes| (processes, 1, "threads"));
    let settings = [("SPMD_REPRODUCIBLE", "1")];
    everywhere("flat_in_the_canonical_order", &places, &settings, |ctx| cases(ctx, ONE_TYPE))
}

#[test]
fn hybrid_of_threads() -> Result<()> {
    let places = [(1, 3, "threads"), (2, 2, "threads"), (3, 2, "threads")];
    everywhere("hybrid_of_threads", &places, &[], |ctx| cases(ctx, ALL))
}

#[test]
fn hybrid_of_virtual_ranks() -> Result<()> {
    let places = [(1, 4, "virtual"), (2, 3, "virtual"), (3, 4, "virtual")];
    everywhere("hybrid_of_virtual_ranks", &places, &[], |ctx| cases(ctx, ONE_TYPE))
}
