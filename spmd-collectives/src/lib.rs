//! The collective calls of `spmd`, as traits on [`Comm`](spmd_core::Comm).

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
mod dynamic;
mod exchange;
mod free;
mod gather;
pub mod gathered;
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
mod window;

/// What planes bring to calls that they make on the host for one that they carry out.
#[doc(hidden)]
pub mod args {
    pub use crate::allgather::args as allgather;
    pub use crate::alltoall::args as alltoall;
    pub use crate::barrier::args as barrier;
}

pub use allgather::Allgather;
pub use allgather::init::AllgatherInit;
pub use allgather::requests::{AllgatherRequests, AllgatherStart};
pub use allreduce::Allreduce;
pub use allreduce::init::AllreduceInit;
pub use allreduce::requests::{AllreduceRequests, AllreduceStart};
pub use alltoall::Alltoall;
pub use alltoall::init::AlltoallInit;
pub use alltoall::requests::{AlltoallRequests, AlltoallStart};
pub use barrier::Barrier;
pub use barrier::init::BarrierInit;
pub use barrier::requests::{BarrierRequests, BarrierStart};
pub use broadcast::Broadcast;
pub use broadcast::init::BroadcastInit;
pub use broadcast::requests::{BroadcastRequests, BroadcastStart};
pub use cartesian::{Cartesian, Topology, dims_create};
#[doc(hidden)]
pub use cluster::cluster;
pub use dynamic::Dynamic;
pub use free::{spmd_allgather, spmd_barrier, spmd_exchange, spmd_rank, spmd_reduce, spmd_size};
pub use gather::Gather;
pub use gather::init::GatherInit;
pub use gather::requests::{GatherRequests, GatherStart};
pub use gathered::Gathered;
pub use neighbor::Neighbor;
pub use neighbor::init::NeighborInit;
pub use neighbor::requests::{NeighborRequests, NeighborStart};
pub use object::Objects;
pub use reduce::Reduce;
pub use reduce::init::ReduceInit;
pub use reduce::requests::{ReduceRequests, ReduceStart};
pub use reduce_scatter::ReduceScatter;
pub use reduce_scatter::init::ReduceScatterInit;
pub use reduce_scatter::requests::{ReduceScatterRequests, ReduceScatterStart};
pub use scan::Scan;
pub use scan::init::ScanInit;
pub use scan::requests::{ScanRequests, ScanStart};
pub use scatter::Scatter;
pub use scatter::init::ScatterInit;
pub use scatter::requests::{ScatterRequests, ScatterStart};
#[doc(hidden)]
pub use split::split_for_messages;
pub use split::{Color, Split};
pub use window::{Aggregate, At, Window, Windows};
