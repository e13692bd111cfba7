//! Barrier, broadcast and alltoall across processes.

use std::ptr::copy_nonoverlapping;

use spmd_core::algorithm::{Call, ErasedOp, Lead, Parts, Step};
use spmd_core::{Comm, DType, Element, Max, Result};

use super::{Packed, check_values};
use crate::reducing::Reduction;

/// The leads meet when all ranks of their processes have come, and compare all calls so far.
pub(crate) fn barrier(comm: &Comm, call: &Call<'_>) -> Result<()> {
    // SAFETY: no memory is named.
    unsafe { comm.collective_across(call, (), |lead| lead.meet()) }
}

/// Whether all ranks say yes.
pub(crate) fn agree(comm: &Comm, call: &Call<'_>, yes: bool) -> Result<bool> {
    let no = u64::from(!yes);
    let mut any = 0u64;
    let op = ErasedOp::new::<u64, _>(&Max);
    let reduction = Reduction { dtype: u64::DTYPE, op, count: 1 };
    let (send, recv) = ((&raw const no).cast(), (&raw mut any).cast());
    // SAFETY: two words.
    unsafe { super::allreduce(comm, call, reduction, send, recv)? };
    Ok(any == 0)
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

/// What a rank calls an alltoall with: its buffers, and for each rank where the block for it starts
/// and how long it is, and where that from it goes, in bytes.
#[derive(Clone, Copy)]
struct Exchanged {
    send: *const u8,
    recv: *mut u8,
    /// A block for each rank.
    outgoing: *const (usize, usize),
    incoming: *const (usize, usize),
}

impl Exchanged {
    /// # Safety
    /// The blocks of so many ranks are there.
    unsafe fn outgoing(&self, rank: usize) -> (usize, usize) {
        // SAFETY: as the caller promises.
        unsafe { *self.outgoing.add(rank) }
    }

    /// # Safety
    /// As above.
    unsafe fn incoming(&self, rank: usize) -> (usize, usize) {
        // SAFETY: as the caller promises.
        unsafe { *self.incoming.add(rank) }
    }
}

/// Every rank's blocks to all others: those from one process to another are packed by sender, then
/// by receiver. `outgoing` and `incoming`: start and length of the block for and from each rank,
/// in bytes. `equal`: all have the same length, and lie one after another.
///
/// # Safety
/// `send` and `recv` have these blocks; they are apart.
pub(crate) unsafe fn alltoall(
    comm: &Comm,
    call: &Call<'_>,
    dtype: DType,
    (send, outgoing): (*const u8, &[(usize, usize)]),
    (recv, incoming): (*mut u8, &[(usize, usize)]),
    equal: bool,
) -> Result<()> {
    let (outgoing, incoming) = (outgoing.as_ptr(), incoming.as_ptr());
    let mine = Exchanged { send, recv, outgoing, incoming };
    // SAFETY: all ranks' buffers hold their blocks, and are held during the call, as are the lists.
    unsafe { comm.collective_across(call, mine, |lead| exchange(lead, dtype, equal)) }
}

/// # Safety
/// As [`alltoall`] for all ranks of this process.
unsafe fn exchange(lead: &Lead<'_, Exchanged>, dtype: DType, equal: bool) -> Result<()> {
    let (processes, checked) = (lead.processes(), dtype.valid.is_some());
    let mine: Vec<usize> = lead.members(lead.process()).to_vec();
    // SAFETY: as the caller promises: the blocks of all ranks are known, and lie in the buffers.
    unsafe {
        if let (true, false, Some(only)) = (lead.is_flat(), checked, lead.parts().next()) {
            let blocks = |block: &dyn Fn(usize) -> (usize, usize)| -> (Vec<usize>, Vec<usize>) {
                (0..processes).map(|process| block(lead.members(process)[0])).unzip()
            };
            let (starts, bytes) = blocks(&|rank| only.outgoing(rank));
            let send = Parts { memory: only.send.cast_mut(), bytes: &bytes, starts: &starts };
            let (starts, bytes) = blocks(&|rank| only.incoming(rank));
            let recv = Parts { memory: only.recv, bytes: &bytes, starts: &starts };
            let equal = equal && lead.is_ordered();
            return lead.step(Step::Alltoall { send, recv, equal });
        }
        let sum = |process: usize, block: &dyn Fn(Exchanged, usize) -> (usize, usize)| {
            let each = |part| lead.members(process).iter().map(move |rank| block(part, *rank).1);
            lead.parts().flat_map(each).sum::<usize>()
        };
        let all = |block: &dyn Fn(Exchanged, usize) -> (usize, usize)| {
            Packed::room((0..processes).map(|process| sum(process, block)).collect())
        };
        let (mut out, mut came) =
            (all(&|it, rank| it.outgoing(rank)), all(&|it, rank| it.incoming(rank)));
        let mut place = out.memory.as_mut_ptr();
        for process in 0..processes {
            for part in lead.parts() {
                for rank in lead.members(process) {
                    let (start, bytes) = part.outgoing(*rank);
                    copy_nonoverlapping(part.send.add(start), place, bytes);
                    place = place.add(bytes);
                }
            }
        }
        // Blocks of equal ranks are equal as long as all processes have as many.
        let equal = equal && (0..processes).all(|it| lead.members(it).len() == mine.len());
        lead.step(Step::Alltoall { send: out.parts(), recv: came.parts(), equal })?;
        let mut place = came.memory.as_ptr();
        for process in 0..processes {
            for rank in lead.members(process) {
                for part in lead.parts() {
                    let (start, bytes) = part.incoming(*rank);
                    check_values(dtype, place, bytes / dtype.size as usize)?;
                    copy_nonoverlapping(place, part.recv.add(start), bytes);
                    place = place.add(bytes);
                }
            }
        }
        Ok(())
    }
}
