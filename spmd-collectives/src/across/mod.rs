//! Collectives of communicators whose ranks live in several processes without common memory. In
//! each process one rank leads ([`Lead`]): it sees the buffers of all ranks there, and makes the
//! steps among processes for them. Data of several ranks are packed for that; those of one rank,
//! or in the order of the ranks, go where they are.

mod folding;
mod gathering;
mod moving;
mod neighbors;
mod telling;

pub(crate) use moving::agree;
pub(crate) use telling::{Told, tell};

use std::sync::Arc;

use spmd_core::internal::{Args, Blocks, Call, Extents, Kind, Lead, Parts, Plane};
use spmd_core::{Comm, DType, Error, Result};

use crate::data::{receiving_elsewhere, sending_a_copy};

/// The native collectives of the library that joins the processes, one rank of each leading.
#[derive(Debug)]
struct Cluster;

/// What carries out collectives across processes.
pub fn cluster() -> Arc<dyn Plane> {
    Arc::new(Cluster)
}

impl Plane for Cluster {
    fn name(&self) -> &str {
        "cluster"
    }

    fn spans_processes(&self) -> bool {
        true
    }

    fn serves(&self, args: &Args<'_>) -> bool {
        args.is_on_host()
    }

    unsafe fn run(&self, comm: &Comm, call: &Call<'_>, args: &Args<'_>) -> Result<()> {
        // SAFETY: as the caller promises.
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

/// Blocks for or from each process, one after another in memory of their own.
struct Packed {
    memory: Vec<u8>,
    lengths: Lengths,
}

impl Packed {
    /// Room for blocks of these lengths.
    fn room(bytes: impl Iterator<Item = usize>) -> Packed {
        Packed::of(Lengths::listed(bytes))
    }

    /// Room for these blocks.
    fn of(lengths: Lengths) -> Packed {
        Packed { memory: vec![0; lengths.total()], lengths }
    }

    fn parts(&mut self) -> Parts<'_> {
        self.lengths.at(self.memory.as_mut_ptr())
    }
}

/// The lengths of the blocks of all processes, which lie one after the other.
enum Lengths {
    /// So many bytes of each of so many processes, as all of them know.
    Equal(usize, usize),
    Listed {
        bytes: Vec<usize>,
        starts: Vec<usize>,
    },
}

impl Lengths {
    fn listed(bytes: impl Iterator<Item = usize>) -> Lengths {
        let mut end = 0;
        let next = |bytes| {
            end += bytes;
            (bytes, end - bytes)
        };
        let (bytes, starts) = bytes.map(next).unzip();
        Lengths::Listed { bytes, starts }
    }

    /// Those of `blocks` of elements of `size` bytes: of each process, the blocks of its ranks.
    fn of<P: Copy>(lead: &Lead<'_, P>, blocks: Blocks<'_>, size: usize) -> Lengths {
        let members = |process| lead.members(process).iter();
        match blocks {
            Blocks::Equal(count) if is_even(lead) => {
                Lengths::Equal(count * size * members(0).len(), lead.processes())
            }
            _ => Lengths::listed(
                (0..lead.processes())
                    .map(|process| members(process).map(|rank| blocks.of(*rank).1 * size).sum()),
            ),
        }
    }

    /// The bytes of all.
    fn total(&self) -> usize {
        match self {
            Lengths::Equal(bytes, processes) => bytes * processes,
            Lengths::Listed { bytes, .. } => bytes.iter().sum(),
        }
    }

    /// The blocks in this memory.
    fn at(&self, memory: *mut u8) -> Parts<'_> {
        let extents = match self {
            Lengths::Equal(bytes, _) => Extents::Equal(*bytes),
            Lengths::Listed { bytes, starts } => Extents::Listed { bytes, starts },
        };
        Parts { memory, extents }
    }
}

/// Whether all processes have as many ranks.
fn is_even<P: Copy>(lead: &Lead<'_, P>) -> bool {
    lead.is_flat()
        || (1..lead.processes()).all(|it| lead.members(it).len() == lead.members(0).len())
}

/// Looks at bytes that came from other processes, before they are given to the program as values.
///
/// # Safety
/// `values` holds `count` elements' worth of bytes.
unsafe fn check_values(dtype: DType, values: *const u8, count: usize) -> Result<()> {
    // SAFETY: as the caller promises.
    if dtype.valid.is_none() || unsafe { dtype.all_valid(values, count) } {
        return Ok(());
    }
    let text = format!("what another process sent holds bytes that are no values of {dtype}");
    Err(Error::argument(text))
}
