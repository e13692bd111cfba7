//! Barrier, broadcast and alltoall across processes.

use spmd_core::internal::{
    Args, Blocks, Call, ErasedOp, Leader, Memory, NativeCollective, copy_bytes,
};
use spmd_core::{BitAnd, Comm, DType, Element, Error, Max, Operation, Result};

use super::packed::{Lengths, Packed, check_values, is_even};

/// The leaders meet when all ranks of their processes have come, and compare all calls so far.
pub(super) fn barrier(comm: &Comm, call: &Call<'_>) -> Result<()> {
    // SAFETY: no memory is named.
    unsafe { comm.internals().collective_on_cluster(call, (), |leader| leader.meet()) }
}

/// The bits that all ranks set.
pub(crate) fn agree(comm: &Comm, call: &Call<'_>, bits: u64) -> Result<u64> {
    fold(comm, call, bits, &BitAnd)
}

/// The same error on all ranks, before anything goes, if one of them has found that what another,
/// `wrong`, sends is not what it takes.
pub(super) fn agree_on_counts(comm: &Comm, call: &Call<'_>, wrong: Option<usize>) -> Result<()> {
    let pair = wrong.map_or(0, |from| (comm.rank() as u64 + 1) << 32 | from as u64);
    match greatest(comm, call, pair)? {
        0 => Ok(()),
        pair => Err(Error::argument(format!(
            "{call}: different counts: what rank {} of the communicator sends to rank {} is not what \
             that takes",
            pair as u32,
            (pair >> 32) - 1
        ))),
    }
}

/// The greatest word of any rank.
pub(crate) fn greatest(comm: &Comm, call: &Call<'_>, word: u64) -> Result<u64> {
    fold(comm, call, word, &Max)
}

/// All ranks' words, folded.
fn fold<O: Operation<u64>>(comm: &Comm, call: &Call<'_>, word: u64, op: &O) -> Result<u64> {
    let mut folded = 0u64;
    let op = &ErasedOp::new::<u64, _>(op);
    let one = Blocks::One(1);
    let send = Memory::host((&raw const word).cast(), one);
    let recv = Memory::host((&raw mut folded).cast(), one);
    let args = crate::allreduce::args(&u64::DTYPE, op, send, recv);
    // SAFETY: two words.
    unsafe { super::folding::allreduce(comm, call, &args)? };
    Ok(folded)
}

/// The root's process sends its data to one rank of each of the others, from which those beside it
/// copy.
///
/// # Safety
/// As `broadcast`.
pub(super) unsafe fn broadcast(comm: &Comm, call: &Call<'_>, args: &Args<'_>) -> Result<()> {
    let (dtype, root, buf) = (args.dtype, args.root, args.recv.ptr);
    let count = args.recv.blocks.longest();
    let bytes = count * dtype.size as usize;
    // SAFETY: all ranks' buffers hold that many bytes, and are held during the call.
    unsafe {
        comm.internals().collective_on_cluster(call, buf, |leader| {
            let (from, mine) = (leader.process_of(root), leader.process());
            let here = leader.members(mine).iter().position(|rank| *rank == root).unwrap_or(0);
            let first = leader.parts().nth(here).expect("a process holds the ranks that it says");
            let mut scratch = Vec::new();
            let memory = match dtype.valid.is_some() && from != mine {
                true => {
                    scratch.resize(bytes, 0u8);
                    scratch.as_mut_ptr()
                }
                false => first,
            };
            leader.step(NativeCollective::Broadcast { root: from, memory, bytes })?;
            check_values(dtype, memory, count)?;
            for buf in leader.parts().filter(|buf| *buf != memory) {
                copy_bytes(memory, buf, bytes);
            }
            Ok(())
        })
    }
}

/// Every rank's blocks to all others: those from one process to another are packed by sender, then
/// by receiver. All ranks' blocks are equal, or nobody's are.
///
/// # Safety
/// `send` and `recv` have these blocks, are apart, and nobody else touches them during the call.
pub(super) unsafe fn alltoall(comm: &Comm, call: &Call<'_>, args: &Args<'_>) -> Result<()> {
    // SAFETY: all ranks' buffers hold their blocks, and are held during the call, as are the
    // displacements.
    unsafe {
        comm.internals().collective_on_cluster(call, *args, |leader| exchange(leader, args.dtype))
    }
}

/// [`alltoall`] of blocks whose lengths peers have told: all know whether one of them has found
/// these to be wrong, before anything goes.
///
/// # Safety
/// As [`alltoall`].
pub(super) unsafe fn alltoallv(comm: &Comm, call: &Call<'_>, args: &Args<'_>) -> Result<()> {
    agree_on_counts(comm, call, crate::alltoall::counts(args).wrong())?;
    // SAFETY: `send` and `recv` have a block for each rank, are apart, and nobody else touches them
    // during the call (this function's contract): `alltoall` asks for the same.
    unsafe { alltoall(comm, call, args) }
}

/// # Safety
/// As [`alltoall`] for all ranks of this process.
unsafe fn exchange(leader: &Leader<'_, Args<'_>>, dtype: &DType) -> Result<()> {
    let (processes, checked) = (leader.processes(), dtype.valid.is_some());
    let size = dtype.size as usize;
    // SAFETY: of each rank here, which are all in the call, `send` and `recv` have a block for each
    // rank, of the lengths that `blocks` says, are apart, and nobody else touches them (contract of
    // `alltoall`). `out` and `came` are as long as all of these together.
    unsafe {
        if let (true, false, Some(only)) = (leader.is_flat(), checked, leader.parts().next()) {
            // The processes are then as many as the ranks, and in the same order.
            let lengths = |blocks: Blocks<'_>| match blocks {
                Blocks::Varying(_) => {
                    let bytes = (0..processes).map(|rank| bytes(blocks.of(rank), size));
                    let (displacements, bytes) = bytes.unzip();
                    Lengths::Listed { bytes, displacements }
                }
                _ => Lengths::Equal(blocks.longest() * size, processes),
            };
            let (out, come) = (lengths(only.send.blocks), lengths(only.recv.blocks));
            let (send, recv) = (out.at(only.send.ptr), come.at(only.recv.ptr));
            return leader.step(NativeCollective::Alltoall { send, recv });
        }
        let here = leader.members(leader.process()).len();
        let all = |blocks: &dyn for<'a> Fn(&Args<'a>) -> Blocks<'a>| {
            let sum = |process| {
                let each = |part: Args<'_>| {
                    let blocks = blocks(&part);
                    leader
                        .members(process)
                        .iter()
                        .map(|rank| blocks.of(*rank).1 * size)
                        .sum::<usize>()
                };
                leader.parts().map(each).sum::<usize>()
            };
            Packed::of(match leader.parts().next().map(|part| blocks(&part)) {
                // As long as all processes have as many ranks.
                Some(Blocks::Equal(count)) if is_even(leader) => {
                    Lengths::Equal(count * size * here * here, processes)
                }
                _ => Lengths::listed((0..processes).map(sum)),
            })
        };
        let mut out = all(&|part| part.send.blocks);
        let mut came = all(&|part| part.recv.blocks);
        let mut place = out.memory.as_mut_ptr();
        for process in 0..processes {
            for part in leader.parts() {
                for rank in leader.members(process) {
                    let (start, bytes) = bytes(part.send.blocks.of(*rank), size);
                    copy_bytes(part.send.ptr.add(start), place, bytes);
                    place = place.add(bytes);
                }
            }
        }
        leader.step(NativeCollective::Alltoall { send: out.parts(), recv: came.parts() })?;
        let mut place = came.memory.as_ptr();
        for process in 0..processes {
            for rank in leader.members(process) {
                for part in leader.parts() {
                    let (start, bytes) = bytes(part.recv.blocks.of(*rank), size);
                    check_values(dtype, place, bytes / size)?;
                    copy_bytes(place, part.recv.ptr.add(start), bytes);
                    place = place.add(bytes);
                }
            }
        }
        Ok(())
    }
}

/// A block in bytes.
fn bytes((start, count): (usize, usize), size: usize) -> (usize, usize) {
    (start * size, count * size)
}
