//! What `SPMD_TRACE` writes: calls and tasks of every rank, in a file that trace viewers read.

#![cfg(target_os = "linux")]

mod across;
mod calls;
mod events;
#[path = "../support/mod.rs"]
mod support;
mod tasks;
