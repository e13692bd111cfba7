//! Exchanges with neighbours across processes: an alltoall in which most blocks are empty.

use std::ptr::copy_nonoverlapping;

use spmd_core::algorithm::Call;
use spmd_core::{Comm, DType, Result};

use super::ByRank;

/// A block that goes to or comes from a peer; places and lengths in elements.
#[derive(Clone, Copy)]
pub(crate) struct Beside {
    pub(crate) peer: usize,
    /// The receiver's side on which the sender is: a peer may be on several.
    pub(crate) side: usize,
    pub(crate) start: usize,
    pub(crate) count: usize,
}

/// Every rank's blocks to its neighbours.
///
/// # Safety
/// `send` holds the outgoing blocks, `recv` has room for the incoming ones; they are apart.
pub(crate) unsafe fn neighbors(
    comm: &Comm,
    call: &Call<'_>,
    dtype: DType,
    (send, mut outgoing): (*const u8, Vec<Beside>),
    (recv, mut incoming): (*mut u8, Vec<Beside>),
) -> Result<()> {
    let size = dtype.size as usize;
    outgoing.sort_by_key(|block| (block.peer, block.side));
    incoming.sort_by_key(|block| (block.peer, block.side));
    let by_rank = |blocks: &[Beside]| {
        let mut all = vec![(0, 0); comm.size()];
        blocks.iter().for_each(|block| all[block.peer].1 += block.count * size);
        let mut total = 0;
        for (start, bytes) in &mut all {
            *start = total;
            total += *bytes;
        }
        (all, total)
    };
    let ((to, out), (from, came)) = (by_rank(&outgoing), by_rank(&incoming));
    let (mut out, mut came) = (Vec::with_capacity(out), vec![0u8; came]);
    // SAFETY: as the caller promises; `out` and `came` hold what the lists say.
    unsafe {
        for block in &outgoing {
            let block =
                std::slice::from_raw_parts(send.add(block.start * size), block.count * size);
            out.extend_from_slice(block);
        }
        let (to, from) = (ByRank::Listed(to.as_ptr()), ByRank::Listed(from.as_ptr()));
        super::alltoall(comm, call, dtype, (out.as_ptr(), to), (came.as_mut_ptr(), from))?;
        let mut place = came.as_ptr();
        for block in &incoming {
            copy_nonoverlapping(place, recv.add(block.start * size), block.count * size);
            place = place.add(block.count * size);
        }
    }
    Ok(())
}
