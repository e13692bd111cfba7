//! The collective calls of `spmd`, as traits on [`spmd_core::Comm`].

mod allgather;
mod allreduce;
mod alltoall;
mod barrier;
mod blocks;
mod broadcast;
mod cartesian;
mod check;
mod cluster;
mod data;
mod exchange;
mod free;
mod gather;
pub mod gathered;
#[doc(hidden)]
pub mod internal;
mod large;
mod neighbor;
mod object;
mod prefix;
mod reduce;
mod reduce_scatter;
mod reducing;
mod scan;
mod scatter;
mod sealed;
mod select;
mod split;

pub use allgather::Allgather;
pub use allreduce::Allreduce;
pub use alltoall::Alltoall;
pub use barrier::Barrier;
pub use broadcast::Broadcast;
pub use cartesian::{Cartesian, Topology, dims_create};
#[doc(hidden)]
pub use cluster::cluster;
pub use free::{spmd_allgather, spmd_barrier, spmd_exchange, spmd_rank, spmd_reduce, spmd_size};
pub use gather::Gather;
pub use gathered::Gathered;
pub use neighbor::Neighbor;
pub use object::Objects;
pub use reduce::Reduce;
pub use reduce_scatter::ReduceScatter;
pub use scan::Scan;
pub use scatter::Scatter;
pub use split::Split;
