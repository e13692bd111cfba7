//! Exchanges with neighbours across processes: an alltoall in which most blocks are empty.

use spmd_core::internal::{Args, Blocks, Call, Incoming, Kind, Memory, copy_bytes};
use spmd_core::{Comm, Result};

use super::moving::{agree_on_counts, alltoall};
use crate::exchange::CountsCheck;

/// Exchanges blocks with neighbours, of which `send` has one for all or one for each side. Between
/// two ranks they go in the order of the sides on which the receiver has the sender.
///
/// # Safety
/// `send` and `recv` have these blocks, given by displacements if they are several, are apart, and
/// nobody else touches them during the call; `incoming` goes where those of `recv` start, and is as
/// long but in an alltoall of varying blocks.
pub(super) unsafe fn neighbors(comm: &Comm, call: &Call<'_>, args: &Args<'_>) -> Result<()> {
    if args.collective.kind == Kind::NeighborAlltoallv {
        agree_on_counts(comm, call, CountsCheck::of_incoming(args).wrong())?;
    }
    let size = args.size();
    let mut incoming = args.incoming.to_vec();
    let mut outgoing = incoming.clone();
    incoming.sort_by_key(|block| (block.peer, block.side));
    outgoing.sort_by_key(|block| (block.peer, block.side ^ 1));
    let sent = |block: &Incoming| args.send.blocks.of(block.side);
    let displacements = |blocks: &[Incoming], count: &dyn Fn(&Incoming) -> usize| {
        let mut displacements = vec![0; comm.size() + 1];
        blocks.iter().for_each(|block| displacements[block.peer + 1] += count(block));
        (0..comm.size()).for_each(|rank| displacements[rank + 1] += displacements[rank]);
        displacements
    };
    let to = displacements(&outgoing, &|block| sent(block).1);
    let from = displacements(&incoming, &|block| block.count);
    let mut out = Vec::with_capacity(to[comm.size()] * size);
    let mut came = vec![0u8; from[comm.size()] * size];
    // SAFETY: `send` holds the blocks for all sides, and `recv`, apart from it, has room for those
    // of `incoming`, whose lengths fit (this function's contract, and just agreed on). `out` and
    // `came` are as long as their displacements say. Elements have no padding: all of their bytes
    // are initialised.
    unsafe {
        for (start, count) in outgoing.iter().map(sent) {
            let block = args.send.ptr.add(start * size).cast_const();
            out.extend_from_slice(std::slice::from_raw_parts(block, count * size));
        }
        let packed = Args::new(args.collective, args.dtype);
        let packed = packed.send(Memory::host(out.as_ptr(), Blocks::Varying(&to)));
        let packed = packed.recv(Memory::host(came.as_mut_ptr(), Blocks::Varying(&from)));
        alltoall(comm, call, &packed)?;
        let mut place = came.as_ptr();
        for block in &incoming {
            let bytes = block.count * size;
            copy_bytes(place, args.recv.ptr.add(block.into * size), bytes);
            place = place.add(bytes);
        }
    }
    Ok(())
}
