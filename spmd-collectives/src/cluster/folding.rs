//! Reductions across processes: by the library that joins them where it folds such elements with
//! such an operation, otherwise, and with `SPMD_REPRODUCIBLE=1`, in the canonical order.

use std::ptr::null_mut;

use spmd_core::internal::{
    Args, BlockLayout, Blocks, Call, Fold, Kind, Leader, NativeCollective, ProcessBlocks,
    copy_bytes, fold_ranks,
};
use spmd_core::{Comm, Result};

use super::packed::{Packed, check_values};
use crate::blocks::differing;
use crate::large::part;
use crate::reducing::Reduction;

/// Bytes of the inputs of all ranks that a process holds at a time, about.
const CHUNK: usize = 4 << 20;

/// A rank's input, and where its result goes: the same or apart, or null where it gets none.
#[derive(Clone, Copy)]
struct FoldBuffers<'a> {
    send: *const u8,
    recv: *mut u8,
    /// Those of its input.
    blocks: Blocks<'a>,
}

impl<'a> FoldBuffers<'a> {
    fn new(args: &Args<'a>) -> FoldBuffers<'a> {
        FoldBuffers { send: args.send.ptr, recv: args.recv.ptr, blocks: args.send.blocks }
    }
}

type Leading<'r> = Leader<'r, FoldBuffers<'r>>;

fn is_native(comm: &Comm, leader: &Leading<'_>, reduction: &Reduction<'_>) -> bool {
    !comm.internals().is_reproducible() && leader.folds(reduction.dtype, reduction.op)
}

/// The elements of a reduction, for a step.
fn fold_of<'o>(reduction: &'o Reduction<'o>, send: *const u8, recv: *mut u8) -> Fold<'o> {
    Fold { send, recv, count: reduction.count, dtype: reduction.dtype, op: reduction.op }
}

/// The fold to all.
///
/// # Safety
/// As `allreduce`.
pub(super) unsafe fn allreduce(comm: &Comm, call: &Call<'_>, args: &Args<'_>) -> Result<()> {
    let (reduction, buffers) = (&Reduction::of(args), FoldBuffers::new(args));
    // SAFETY: all ranks' buffers hold the elements, and are held during the call.
    unsafe {
        comm.internals().collective_on_cluster(call, buffers, |leader| {
            if !is_native(comm, leader, reduction) {
                return in_order(leader, reduction, None);
            }
            let first = leader.parts().next().expect("a process holds a rank at least");
            if leader.parts().len() == 1 {
                return leader
                    .step(NativeCollective::Allreduce(fold_of(reduction, first.send, first.recv)));
            }
            let mut scratch = Vec::new();
            let send = folded_here(leader, reduction, &mut scratch)?;
            leader.step(NativeCollective::Allreduce(fold_of(reduction, send, first.recv)))?;
            for part in leader.parts().skip(1) {
                copy_bytes(first.recv, part.recv, reduction.bytes());
            }
            Ok(())
        })
    }
}

/// The fold to the root, which alone has `recv`.
///
/// # Safety
/// As `reduce`.
pub(super) unsafe fn reduce(comm: &Comm, call: &Call<'_>, args: &Args<'_>) -> Result<()> {
    let (reduction, root) = (&Reduction::of(args), args.root);
    let recv = if comm.rank() == root { args.recv.ptr } else { null_mut() };
    let buffers = FoldBuffers { recv, ..FoldBuffers::new(args) };
    // SAFETY: all ranks' buffers hold the elements, and are held during the call.
    unsafe {
        comm.internals().collective_on_cluster(call, buffers, |leader| {
            let to = leader.process_of(root);
            if !is_native(comm, leader, reduction) {
                return in_order(leader, reduction, Some(to));
            }
            let target = leader.parts().find(|part| !part.recv.is_null());
            let mut scratch = Vec::new();
            let send = folded_here(leader, reduction, &mut scratch)?;
            let recv = target.map_or(null_mut(), |target| target.recv);
            leader.step(NativeCollective::Reduce { root: to, fold: fold_of(reduction, send, recv) })
        })
    }
}

/// The inputs of this process's ranks, folded: in `scratch`, if they are several.
///
/// # Safety
/// The inputs hold the elements, and nobody writes them now.
unsafe fn folded_here(
    leader: &Leading<'_>,
    reduction: &Reduction<'_>,
    scratch: &mut Vec<u8>,
) -> Result<*const u8> {
    let mut parts = leader.parts();
    if let (1, Some(only)) = (parts.len(), parts.next()) {
        return Ok(only.send);
    }
    let inputs: Vec<*const u8> = leader.parts().map(|part| part.send).collect();
    scratch.resize(reduction.bytes(), 0);
    let out = scratch.as_mut_ptr();
    // SAFETY: each input holds the elements, which nobody writes now (this function's contract);
    // `scratch` has room for as many, is apart from them, and is used here alone.
    unsafe { fold(leader, reduction, reduction.count, inputs.len(), out, |rank| inputs[rank])? };
    Ok(scratch.as_ptr())
}

/// Folds `count` elements of each of `ranks` inputs into `out`, in the canonical order.
///
/// # Safety
/// As `fold_ranks`.
unsafe fn fold(
    leader: &Leading<'_>,
    reduction: &Reduction<'_>,
    count: usize,
    ranks: usize,
    out: *mut u8,
    mut input: impl FnMut(usize) -> *const u8,
) -> Result<()> {
    if count == 0 || ranks == 0 {
        return Ok(());
    }
    let size = reduction.size();
    // SAFETY: inputs and `out` are as `fold_ranks` asks for them (this function's contract); there
    // is at least one input, and the operation is one on elements of `size` bytes (contract of
    // `dispatch`).
    leader.operate(reduction.op, || unsafe {
        fold_ranks(reduction.op, size, out, count, ranks, &mut input, &mut Vec::new());
    })
}

/// Of each rank, how many ranks of processes before its own, or before it in its own, there are:
/// where its data come in what is ordered by process.
fn order(leader: &Leading<'_>) -> Vec<usize> {
    let mut order = vec![0; leader.size()];
    let ranks = (0..leader.processes()).flat_map(|process| leader.members(process));
    ranks.enumerate().for_each(|(index, rank)| order[*rank] = index);
    order
}

/// In the canonical order, to all ranks or those of one process that want it: chunk by chunk, each
/// process gets its part of all inputs, folds it, and tells its result.
///
/// # Safety
/// The inputs hold the elements; there is room for them where they are wanted: in each case the
/// rank's own input or apart from all. Nobody else touches these until this returns.
unsafe fn in_order(
    leader: &Leading<'_>,
    reduction: &Reduction<'_>,
    to: Option<usize>,
) -> Result<()> {
    let (size, n, processes) = (reduction.size(), leader.size(), leader.processes());
    let (me, order) = (leader.process(), order(leader));
    let step = (CHUNK / (n * size)).max(processes);
    let mut start = 0;
    while start < reduction.count {
        let count = step.min(reduction.count - start);
        let share = |process| part(count, processes, process);
        let here = leader.members(me).len();
        let out = (0..processes).map(|process| here * share(process).1 * size);
        let mine = share(me).1;
        let came = (0..processes).map(|process| leader.members(process).len() * mine * size);
        let (mut out, mut came) = (Packed::room(out), Packed::room(came));
        // SAFETY: the inputs hold the elements, in which the chunk and its shares lie, `recv` has
        // room for them where it is not null, and nobody else touches them (this function's
        // contract). All else is memory made here, as long as what the step brings, which is values
        // once it has been checked.
        unsafe {
            let mut place = out.memory.as_mut_ptr();
            for (first, len) in (0..processes).map(share) {
                for part in leader.parts() {
                    copy_bytes(part.send.add((start + first) * size), place, len * size);
                    place = place.add(len * size);
                }
            }
            leader.step(NativeCollective::Alltoall { send: out.parts(), recv: came.parts() })?;
            check_values(reduction.dtype, came.memory.as_ptr(), came.memory.len() / size)?;
            let mut folded = vec![0u8; mine * size];
            let input = |rank: usize| came.memory.as_ptr().add(order[rank] * mine * size);
            fold(leader, reduction, mine, n, folded.as_mut_ptr(), input)?;
            let mut result = Packed::room((0..processes).map(|it| share(it).1 * size));
            let (send, recv) = ((folded.as_ptr(), folded.len()), result.parts());
            match to {
                None => leader.step(NativeCollective::Allgather { send, recv })?,
                Some(root) => leader.step(NativeCollective::Gather { root, send, recv })?,
            }
            for target in leader.parts().filter(|part| !part.recv.is_null()) {
                check_values(reduction.dtype, result.memory.as_ptr(), count)?;
                let into = target.recv.add(start * size);
                copy_bytes(result.memory.as_ptr(), into, count * size);
            }
        }
        start += count;
    }
    Ok(())
}

/// Each rank gets its block of the fold.
///
/// # Safety
/// As `reduce_scatter`.
pub(super) unsafe fn reduce_scatter(comm: &Comm, call: &Call<'_>, args: &Args<'_>) -> Result<()> {
    let reduction = &Reduction::of_blocks(args, comm.size());
    let (blocks, buffers) = (args.send.blocks, FoldBuffers::new(args));
    let FoldBuffers { send, recv, .. } = buffers;
    // SAFETY: all ranks' buffers and blocks are held during the call.
    unsafe {
        comm.internals().collective_on_cluster(call, buffers, |leader| {
            if blocks.vary() {
                agree_on_blocks(leader)?;
            }
            if leader.is_flat() && is_native(comm, leader, reduction) {
                let counts: Vec<usize> = (0..leader.size()).map(|rank| blocks.of(rank).1).collect();
                let fold = fold_of(reduction, send, recv);
                return leader.step(NativeCollective::ReduceScatter { fold, counts: &counts });
            }
            scatter_in_order(leader, reduction, blocks)
        })
    }
}

/// Each process gets its ranks' blocks of all inputs, and folds them.
///
/// # Safety
/// As [`reduce_scatter`].
unsafe fn scatter_in_order(
    leader: &Leading<'_>,
    reduction: &Reduction<'_>,
    blocks: Blocks<'_>,
) -> Result<()> {
    let (size, n, processes) = (reduction.size(), leader.size(), leader.processes());
    let (me, order) = (leader.process(), order(leader));
    let of = |process: usize| {
        leader.members(process).iter().map(|rank| blocks.of(*rank).1 * size).sum::<usize>()
    };
    let here = leader.members(me).len();
    let out = (0..processes).map(|process| here * of(process));
    let came = (0..processes).map(|process| leader.members(process).len() * of(me));
    let (mut out, mut came) = (Packed::room(out), Packed::room(came));
    // SAFETY: of each rank here, which are all in the call, `send` holds the blocks, and `recv`,
    // apart from it, has room for its own (contract of `reduce_scatter`); the ranks have agreed on
    // `blocks`. All else is memory made here, as long as what comes, which is values once it has
    // been checked.
    unsafe {
        let mut place = out.memory.as_mut_ptr();
        for process in 0..processes {
            for part in leader.parts() {
                for rank in leader.members(process) {
                    let (start, count) = blocks.of(*rank);
                    copy_bytes(part.send.add(start * size), place, count * size);
                    place = place.add(count * size);
                }
            }
        }
        leader.step(NativeCollective::Alltoall { send: out.parts(), recv: came.parts() })?;
        check_values(reduction.dtype, came.memory.as_ptr(), came.memory.len() / size)?;
        let mut first = 0;
        for (part, rank) in leader.parts().zip(leader.members(me)) {
            let count = blocks.of(*rank).1;
            let input = |rank: usize| came.memory.as_ptr().add(order[rank] * of(me) + first);
            fold(leader, reduction, count, n, part.recv, input)?;
            first += count * size;
        }
    }
    Ok(())
}

/// Ranks that go by different blocks must not go on.
///
/// # Safety
/// All ranks show their blocks.
unsafe fn agree_on_blocks(leader: &Leading<'_>) -> Result<()> {
    let first = leader.parts().next().expect("a process holds a rank at least").blocks;
    // The leader goes by its own in the buffers of all ranks here: a hash is not enough.
    let other = leader.parts().position(|part| part.blocks != first);
    let digest = first.digest();
    // Two words, of which no two processes' are the same if theirs differ.
    let said = [digest, other.map_or(0, |index| index as u64 + 1)];
    let mut heard = vec![[0u64; 2]; leader.processes()];
    let (send, layout) = ((said.as_ptr().cast(), size_of_val(&said)), size_of_val(&said));
    let recv =
        ProcessBlocks { memory: heard.as_mut_ptr().cast(), layout: BlockLayout::Equal(layout) };
    // SAFETY: two words, and room for two of each process.
    unsafe { leader.step(NativeCollective::Allgather { send, recv })? };
    let member = |process: usize, index: u64| {
        let all = leader.members(process);
        all[all.len().saturating_sub(1).min(index as usize)]
    };
    let differs = |(process, words): (usize, &[u64; 2])| match *words {
        [other, 0] if other == digest => None,
        [_, 0] => Some((member(process, 0), member(leader.process(), 0))),
        [_, index] => Some((member(process, index - 1), member(process, 0))),
    };
    match heard.iter().enumerate().find_map(differs) {
        Some((one, other)) => Err(leader.disagree(&differing(one, other))),
        None => Ok(()),
    }
}

/// The fold of the ranks before each, with its own input (`own`) or without.
///
/// # Safety
/// As `scan`.
pub(super) unsafe fn scan(comm: &Comm, call: &Call<'_>, args: &Args<'_>) -> Result<()> {
    let (reduction, buffers) = (&Reduction::of(args), FoldBuffers::new(args));
    let (FoldBuffers { send, recv, .. }, own) = (buffers, args.collective.kind == Kind::Scan);
    // SAFETY: all ranks' buffers hold the elements, and are held during the call.
    unsafe {
        comm.internals().collective_on_cluster(call, buffers, |leader| {
            if leader.is_flat() && is_native(comm, leader, reduction) {
                return native_scan(leader, reduction, own, send, recv);
            }
            scan_in_order(leader, reduction, own)
        })
    }
}

/// # Safety
/// As [`scan`].
unsafe fn native_scan(
    leader: &Leading<'_>,
    reduction: &Reduction<'_>,
    own: bool,
    send: *const u8,
    recv: *mut u8,
) -> Result<()> {
    // The first rank's result of an exscan is what it was before, whatever the library does.
    let mut scratch = vec![0u8; if !own && leader.process() == 0 { reduction.bytes() } else { 0 }];
    let recv = if scratch.is_empty() { recv } else { scratch.as_mut_ptr() };
    let fold = fold_of(reduction, send, recv);
    // SAFETY: `send` holds the elements, and `recv`, or `scratch` in its place, has room for them;
    // nobody else touches them, as the process holds this rank alone (contract of `scan`).
    unsafe {
        leader.step(if own { NativeCollective::Scan(fold) } else { NativeCollective::Exscan(fold) })
    }
}

/// Chunk by chunk, each process gets all inputs, and folds those before each of its ranks.
///
/// # Safety
/// As [`scan`].
unsafe fn scan_in_order(leader: &Leading<'_>, reduction: &Reduction<'_>, own: bool) -> Result<()> {
    let (size, n, order) = (reduction.size(), leader.size(), order(leader));
    let step = (CHUNK / (n * size)).max(1);
    let mut start = 0;
    while start < reduction.count {
        let count = step.min(reduction.count - start);
        let mut out = Vec::new();
        for part in leader.parts() {
            // SAFETY: of each rank here, `send` holds the elements, in which the chunk lies, and
            // `recv` has room for them; nobody else touches them, as all ranks are in the call
            // (contract of `scan`). Elements have no padding: all of their bytes are initialised.
            out.extend_from_slice(unsafe {
                std::slice::from_raw_parts(part.send.add(start * size), count * size)
            });
        }
        let bytes = |process| leader.members(process).len() * count * size;
        let mut came = Packed::room((0..leader.processes()).map(bytes));
        let send = (out.as_ptr(), out.len());
        // SAFETY: as above.
        unsafe {
            let recv = came.parts();
            leader.step(NativeCollective::Allgather { send, recv })?;
            check_values(reduction.dtype, came.memory.as_ptr(), came.memory.len() / size)?;
            let input = |rank: usize| came.memory.as_ptr().add(order[rank] * count * size);
            for (part, rank) in leader.parts().zip(leader.members(leader.process())) {
                let ranks = rank + usize::from(own);
                fold(leader, reduction, count, ranks, part.recv.add(start * size), input)?;
            }
        }
        start += count;
    }
    Ok(())
}
