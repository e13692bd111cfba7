//! The collective calls of `spmd`, as traits on [`spmd_core::Comm`].

mod allgather;
mod allreduce;
mod barrier;
mod blocks;
mod broadcast;
mod check;
mod data;
mod gather;
mod large;
mod object;
mod reduce;
mod reducing;
mod scatter;
mod select;

pub use allgather::Allgather;
pub use allreduce::Allreduce;
pub use barrier::Barrier;
pub use blocks::Gathered;
pub use broadcast::Broadcast;
pub use gather::Gather;
pub use object::Objects;
pub use reduce::Reduce;
pub use scatter::Scatter;
