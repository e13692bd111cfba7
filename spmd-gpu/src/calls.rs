//! Which calls are calls on a device, and what ranks tell each other before one.

use spmd_collectives::args as on_host;
use spmd_core::buffer::Place;
use spmd_core::internal::{Args, Blocks, Call, Kind, Memory, dispatch};
use spmd_core::{Comm, Element, Result};

/// Whether it is a collective that planes carry out on devices, and all its memory is on one.
pub(crate) fn is_on_device(args: &Args<'_>) -> bool {
    ordinal(args).is_some() && carried_out(args.collective.kind)
}

/// The same, or one with neighbours in a grid, which the host alone knows.
pub(crate) fn is_for_host(args: &Args<'_>) -> bool {
    is_on_device(args) || ordinal(args).is_some() && is_of_neighbors(args.collective.kind)
}

pub(crate) fn is_of_neighbors(kind: Kind) -> bool {
    use Kind::*;
    matches!(kind, NeighborAllgather | NeighborAlltoall | NeighborAlltoallv)
}

/// Whether ranks may bring blocks of different lengths.
pub(crate) fn varies(kind: Kind) -> bool {
    use Kind::*;
    matches!(kind, Gatherv | Allgatherv | Scatterv | Alltoallv | ReduceScatterv)
}

/// Whether some rank brings a block for each, or gets one of each, all of one length.
pub(crate) fn has_a_block_each(kind: Kind) -> bool {
    use Kind::*;
    matches!(kind, Gather | Allgather | Scatter | Alltoall | ReduceScatter)
}

/// The device that all memory of the call is on.
pub(crate) fn ordinal(args: &Args<'_>) -> Option<u32> {
    let mut places =
        [args.send, args.recv].into_iter().filter(|it| it.is_some()).map(|it| it.place);
    let Some(Place::Device(ordinal)) = places.next() else { return None };
    places.all(|place| place == Place::Device(ordinal)).then_some(ordinal)
}

fn carried_out(kind: Kind) -> bool {
    use Kind::*;
    matches!(
        kind,
        Broadcast
            | Reduce
            | Allreduce
            | Gather
            | Allgather
            | Scatter
            | Alltoall
            | ReduceScatter
            | Scan
            | Exscan
            | Gatherv
            | Allgatherv
            | Scatterv
            | Alltoallv
            | ReduceScatterv
    )
}

/// Each rank's words, on the host.
pub(crate) fn allgather(comm: &Comm, call: &Call<'_>, own: &[u64]) -> Result<Vec<u64>> {
    let mut all = vec![0u64; own.len() * comm.size()];
    let send = Memory::host(own.as_ptr().cast(), Blocks::One(own.len()));
    let recv = Memory::host(all.as_mut_ptr().cast(), Blocks::Equal(own.len()));
    // SAFETY: both are this function's, and hold as many words; they are apart.
    unsafe { dispatch(comm, call, &on_host::allgather(&u64::DTYPE, send, recv))? };
    Ok(all)
}
