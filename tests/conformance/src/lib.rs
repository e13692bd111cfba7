//! What ranks do to show that a world is one: every collective in every form against plain loops,
//! messages, communicators, and random sequences of calls. What
//! is done for every element type is in `spmd-matrix`. Several test binaries run it, each in
//! worlds of its own kind; here it is compiled once for all of them.

#![allow(missing_docs, missing_debug_implementations, reason = "it has no users but tests")]

pub mod beside;
pub mod case;
pub mod cases;
pub mod communicators;
pub mod declared;
pub mod element;
pub mod fold;
pub mod grids;
pub mod matched;
pub mod messages;
pub mod mixed;
pub mod moves;
pub mod objects;
pub mod persistent;
pub mod persistent_messages;
mod prelude;
pub mod random;
pub mod reductions;
pub mod requests;
pub mod started;
pub mod windows;

/// Whether the exhaustive products were asked for (`SPMD_TEST_FULL=1`).
pub fn full() -> bool {
    std::env::var("SPMD_TEST_FULL").is_ok_and(|value| value == "1")
}
