//! The collective calls of `spmd`, as traits on [`spmd_core::Comm`].

mod allreduce;
mod barrier;
mod check;
mod data;
mod large;
mod reducing;
mod select;
mod split;

pub use allreduce::Allreduce;
pub use barrier::Barrier;
pub use split::Split;
