//! Which calls are calls on a device.

use spmd_core::buffer::Place;
use spmd_core::internal::{Args, Kind};

/// Whether it is a collective that planes carry out on devices, and all its memory is on one.
pub(crate) fn is_on_device(args: &Args<'_>) -> bool {
    ordinal(args).is_some() && carried_out(args.collective.kind)
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
