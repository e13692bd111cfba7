//! The matrix of `spmd-conformance` for every element type and operation.
//!
//! A crate of its own, as it is the longest to compile by far, and not optimised: of each type there are
//! few cases. Those of which there are many are of one type, which the other crate has.

#![allow(missing_docs, missing_debug_implementations, reason = "it has no users but tests")]

mod types;

use spmd_conformance::cases::{cases_and, cases_on_device_and};
use spmd_core::{Ctx, Result};

pub use spmd_conformance::cases::Choice;
pub use spmd_conformance::full;

/// All cases, on the communicator of the world.
pub fn cases(ctx: &Ctx, choice: Choice) -> Result<()> {
    cases_and(ctx, choice, types::visit_all)
}

/// Every collective that takes buffers alone, on buffers of the ranks' device: the full product for
/// `f64` and `Sum`, and for the library's own types and operations, and types of programs, each pair of two
/// values.
pub fn cases_on_device(ctx: &Ctx, all_types: bool) -> Result<()> {
    cases_on_device_and(ctx, all_types, types::visit_on_device)
}

/// The same, and operations of programs, which the host alone carries out.
pub fn cases_by_way_of_the_host(ctx: &Ctx, all_types: bool) -> Result<()> {
    cases_on_device_and(ctx, all_types, types::visit_all)
}
