//! Collectives of communicators whose ranks live in several processes without common memory. In
//! each process one rank leads ([`Leader`](spmd_core::internal::Leader)): it sees the buffers of all
//! ranks there, and makes the steps among processes for them. Data of several ranks are packed for
//! that; those of one rank, or in the order of the ranks, go where they are.

pub(crate) mod announcing;
mod folding;
mod gathering;
pub(crate) mod moving;
mod neighbors;
mod packed;

use std::sync::Arc;

use spmd_core::internal::{Args, Call, Kind, Plane};
use spmd_core::{Comm, Error, Result};

use crate::data::{receiving_elsewhere, sending_a_copy};

/// The native collectives of the library that joins the processes, one rank of each leading.
#[derive(Debug)]
struct ClusterPlane;

/// What carries out collectives across processes.
pub fn cluster() -> Arc<dyn Plane> {
    Arc::new(ClusterPlane)
}

impl Plane for ClusterPlane {
    fn name(&self) -> &str {
        "cluster"
    }

    fn is_for(&self, spans_processes: bool) -> bool {
        spans_processes
    }

    fn serves(&self, _: &Comm, args: &Args<'_>) -> bool {
        args.is_on_host()
    }

    unsafe fn run(&self, comm: &Comm, call: &Call<'_>, args: &Args<'_>) -> Result<()> {
        // SAFETY: all is as the arena function of this kind asks for it, until the call returns,
        // and on the host (contract of `Plane::run`): the functions here ask for no more, and get
        // buffers apart where they need that. When `reduce_scatter` has returned, the leader, which
        // alone reads `send`, is through with it.
        unsafe {
            match args.collective.kind {
                Kind::Barrier => moving::barrier(comm, call),
                Kind::Broadcast => moving::broadcast(comm, call, args),
                Kind::Alltoall => {
                    sending_a_copy(args, comm.size(), |args| moving::alltoall(comm, call, args))
                }
                Kind::Alltoallv => moving::alltoallv(comm, call, args),
                Kind::Gather | Kind::Gatherv => gathering::gather(comm, call, args),
                Kind::Allgather | Kind::Allgatherv => gathering::allgather(comm, call, args),
                Kind::Scatter | Kind::Scatterv => gathering::scatter(comm, call, args),
                Kind::Reduce => folding::reduce(comm, call, args),
                Kind::Allreduce => folding::allreduce(comm, call, args),
                Kind::ReduceScatter | Kind::ReduceScatterv => {
                    receiving_elsewhere(args, |args| folding::reduce_scatter(comm, call, args))
                }
                Kind::Scan | Kind::Exscan => folding::scan(comm, call, args),
                Kind::NeighborAllgather | Kind::NeighborAlltoall | Kind::NeighborAlltoallv => {
                    neighbors::neighbors(comm, call, args)
                }
                other => {
                    Err(Error::argument(format!("{call}: no {} across processes", other.name())))
                }
            }
        }
    }
}
