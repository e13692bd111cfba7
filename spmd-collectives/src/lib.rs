//! The collective calls of `spmd`, as traits on [`spmd_core::Comm`].

mod allreduce;
mod barrier;
mod check;
mod data;
mod large;
mod reducing;
mod select;

pub use allreduce::Allreduce;
pub use barrier::Barrier;
