//! The collective calls of `spmd`, as traits on [`spmd_core::Comm`].

mod allreduce;
mod alltoall;
mod barrier;
mod cartesian;
mod check;
mod data;
mod exchange;
mod large;
mod neighbor;
mod prefix;
mod reduce_scatter;
mod reducing;
mod scan;
mod select;
mod split;

pub use allreduce::Allreduce;
pub use alltoall::Alltoall;
pub use barrier::Barrier;
pub use cartesian::{Cartesian, Topology, dims_create};
pub use neighbor::Neighbor;
pub use reduce_scatter::ReduceScatter;
pub use scan::Scan;
pub use split::Split;
