//! Barrier, broadcast and alltoall across processes.

use std::ptr::copy_nonoverlapping;

use spmd_core::algorithm::{Call, ErasedOp, Lead, Step};
use spmd_core::{Comm, DType, Element, Error, Max, Result};

use super::{Lengths, Packed, check_values, is_even};
use crate::reducing::Reduction;

/// The leads meet when all ranks of their processes have come, and compare all calls so far.
pub(crate) fn barrier(comm: &Comm, call: &Call<'_>) -> Result<()> {
    // SAFETY: no memory is named.
    unsafe { comm.collective_across(call, (), |lead| lead.meet()) }
}

/// Whether all ranks say yes.
pub(crate) fn agree(comm: &Comm, call: &Call<'_>, yes: bool) -> Result<bool> {
    Ok(greatest(comm, call, u64::from(!yes))? == 0)
}

/// The same error on all ranks, before anything goes, if one of them has found that what another,
/// `wrong`, sends is not what it takes.
pub(crate) fn agree_on_counts(comm: &Comm, call: &Call<'_>, wrong: Option<usize>) -> Result<()> {
    let pair = wrong.map_or(0, |from| (comm.rank() as u64 + 1) << 32 | from as u64);
    match greatest(comm, call, pair)? {
        0 => Ok(()),
        pair => Err(Error::Argument(format!(
            "{call}: different counts: what rank {} of the communicator sends to rank {} is not what \
             that takes",
            pair as u32,
            (pair >> 32) - 1
        ))),
    }
}

/// The greatest word of any rank.
fn greatest(comm: &Comm, call: &Call<'_>, word: u64) -> Result<u64> {
    let mut greatest = 0u64;
    let op = ErasedOp::new::<u64, _>(&Max);
    let reduction = Reduction { dtype: u64::DTYPE, op, count: 1 };
    let (send, recv) = ((&raw const word).cast(), (&raw mut greatest).cast());
    // SAFETY: two words.
    unsafe { super::allreduce(comm, call, &reduction, send, recv)? };
    Ok(greatest)
}

/// The root's process sends its data to one rank of each of the others, from which those beside it
/// copy.
///
/// # Safety
/// As `broadcast`.
pub(crate) unsafe fn broadcast(
    comm: &Comm,
    call: &Call<'_>,
    dtype: DType,
    count: usize,
    root: usize,
    buf: *mut u8,
) -> Result<()> {
    let bytes = count * dtype.size as usize;
    // SAFETY: all ranks' buffers hold that many bytes, and are held during the call.
    unsafe {
        comm.collective_across(call, buf, |lead| {
            let (from, mine) = (lead.process_of(root), lead.process());
            let here = lead.members(mine).iter().position(|rank| *rank == root).unwrap_or(0);
            let first = lead.parts().nth(here).expect("a process holds the ranks that it says");
            let mut room = Vec::new();
            let memory = match dtype.valid.is_some() && from != mine {
                true => {
                    room.resize(bytes, 0u8);
                    room.as_mut_ptr()
                }
                false => first,
            };
            lead.step(Step::Broadcast { root: from, memory, bytes })?;
            check_values(dtype, memory, count)?;
            for buf in lead.parts().filter(|buf| *buf != memory) {
                copy_nonoverlapping(memory, buf, bytes);
            }
            Ok(())
        })
    }
}

/// The blocks of a buffer for or from all ranks, in bytes.
#[derive(Clone, Copy)]
pub(crate) enum ByRank {
    /// All of this length, one after the other.
    Equal(usize),
    /// The start and the length of each.
    Listed(*const (usize, usize)),
}

impl ByRank {
    /// The start and the length of a rank's.
    ///
    /// # Safety
    /// The list of so many ranks is there.
    unsafe fn of(self, rank: usize) -> (usize, usize) {
        match self {
            ByRank::Equal(bytes) => (rank * bytes, bytes),
            // SAFETY: as the caller promises.
            ByRank::Listed(blocks) => unsafe { *blocks.add(rank) },
        }
    }
}

/// What a rank calls an alltoall with.
#[derive(Clone, Copy)]
struct Exchanged {
    send: *const u8,
    recv: *mut u8,
    outgoing: ByRank,
    incoming: ByRank,
}

/// Every rank's blocks to all others: those from one process to another are packed by sender, then
/// by receiver. All ranks' blocks are equal, or nobody's are.
///
/// # Safety
/// `send` and `recv` have these blocks, which are listed for all ranks; they are apart.
pub(crate) unsafe fn alltoall(
    comm: &Comm,
    call: &Call<'_>,
    dtype: DType,
    (send, outgoing): (*const u8, ByRank),
    (recv, incoming): (*mut u8, ByRank),
) -> Result<()> {
    let mine = Exchanged { send, recv, outgoing, incoming };
    // SAFETY: all ranks' buffers hold their blocks, and are held during the call, as are the lists.
    unsafe { comm.collective_across(call, mine, |lead| exchange(lead, dtype)) }
}

/// # Safety
/// As [`alltoall`] for all ranks of this process.
unsafe fn exchange(lead: &Lead<'_, Exchanged>, dtype: DType) -> Result<()> {
    let (processes, checked) = (lead.processes(), dtype.valid.is_some());
    // SAFETY: as the caller promises: the blocks of all ranks are known, and lie in the buffers.
    unsafe {
        if let (true, false, Some(only)) = (lead.is_flat(), checked, lead.parts().next()) {
            // The processes are then as many as the ranks, and in the same order.
            let lengths = |blocks| match blocks {
                ByRank::Equal(bytes) => Lengths::Equal(bytes, processes),
                ByRank::Listed(_) => {
                    let (starts, bytes) = (0..processes).map(|rank| blocks.of(rank)).unzip();
                    Lengths::Listed { bytes, starts }
                }
            };
            let (out, come) = (lengths(only.outgoing), lengths(only.incoming));
            let (send, recv) = (out.at(only.send.cast_mut()), come.at(only.recv));
            return lead.step(Step::Alltoall { send, recv });
        }
        let here = lead.members(lead.process()).len();
        let all = |blocks: &dyn Fn(Exchanged) -> ByRank| {
            let sum = |process| {
                let each = |part| {
                    let blocks = blocks(part);
                    lead.members(process).iter().map(move |rank| blocks.of(*rank).1)
                };
                lead.parts().flat_map(each).sum::<usize>()
            };
            Packed::of(match lead.parts().next().map(blocks) {
                // As long as all processes have as many ranks.
                Some(ByRank::Equal(bytes)) if is_even(lead) => {
                    Lengths::Equal(bytes * here * here, processes)
                }
                _ => Lengths::listed((0..processes).map(sum)),
            })
        };
        let (mut out, mut came) = (all(&|part| part.outgoing), all(&|part| part.incoming));
        let mut place = out.memory.as_mut_ptr();
        for process in 0..processes {
            for part in lead.parts() {
                for rank in lead.members(process) {
                    let (start, bytes) = part.outgoing.of(*rank);
                    copy_nonoverlapping(part.send.add(start), place, bytes);
                    place = place.add(bytes);
                }
            }
        }
        lead.step(Step::Alltoall { send: out.parts(), recv: came.parts() })?;
        let mut place = came.memory.as_ptr();
        for process in 0..processes {
            for rank in lead.members(process) {
                for part in lead.parts() {
                    let (start, bytes) = part.incoming.of(*rank);
                    check_values(dtype, place, bytes / dtype.size as usize)?;
                    copy_nonoverlapping(place, part.recv.add(start), bytes);
                    place = place.add(bytes);
                }
            }
        }
        Ok(())
    }
}
