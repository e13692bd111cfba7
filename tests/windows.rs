//! Windows: memory that all ranks may access, in every place.

mod support;

use spmd::prelude::*;
use spmd_conformance::windows;
use support::World;

#[test]
fn every_call() -> Result<()> {
    World::default().everywhere("every_call", &[1, 2, 3, 5], windows::all)
}

#[test]
fn with_delays() -> Result<()> {
    let delayed = World { chaos: Some(5), ..World::default() };
    delayed.everywhere("with_delays", &[2, 4], windows::all)
}
