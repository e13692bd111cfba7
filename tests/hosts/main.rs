//! Worlds of several hosts, which the tests make of namespaces (`net.rs`): the conformance matrix,
//! the examples and the kernels over TCP, started by `spmdrun` under the launcher of each MPI
//! library, ranks with a GPU of their host each, and what becomes of a job when a rank, a cable or a
//! host fails.
//!
//! What cannot be made here is reported as SKIPPED, with the reason.

#![cfg(target_os = "linux")]

#[allow(dead_code, reason = "these tests use a part of it")]
#[path = "../trace/events.rs"]
mod events;
mod failures;
mod gpus;
mod matrix;
#[path = "../support/mistakes.rs"]
mod mistakes;
mod net;
mod programs;
#[path = "../support/mod.rs"]
mod support;
mod traces;
mod world;
