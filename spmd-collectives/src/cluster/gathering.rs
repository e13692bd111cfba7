//! Gather, allgather and scatter across processes.

use std::iter;

use spmd_core::internal::{
    Args, Blocks, Call, Kind, Leader, Memory, NativeCollective, ProcessBlocks, copy_bytes,
};
use spmd_core::{Comm, DType, Error, Result};

use super::packed::{Lengths, Packed, check_values, is_even};
use crate::blocks::differing;

/// What a rank calls with: its own data, and on those who get or give them the blocks of all.
#[derive(Clone, Copy)]
struct GatherBuffers<'a> {
    own: *mut u8,
    /// Elements of its own.
    count: usize,
    /// The blocks of all, where it has them.
    blocks: Option<Blocks<'a>>,
    all: *mut u8,
}

impl<'a> GatherBuffers<'a> {
    fn new(own: Memory<'a>, all: Memory<'a>) -> GatherBuffers<'a> {
        let blocks = all.is_some().then_some(all.blocks);
        GatherBuffers { own: own.ptr, count: own.blocks.longest(), blocks, all: all.ptr }
    }
}

/// What the ranks of this process send, one after another; `scratch` holds it if they are several.
///
/// # Safety
/// The data of all of them are there, and nobody writes them now.
unsafe fn own_of(
    leader: &Leader<'_, GatherBuffers<'_>>,
    size: usize,
    scratch: &mut Vec<u8>,
) -> (*const u8, usize) {
    let mut parts = leader.parts();
    let first = parts.next().expect("a process holds a rank at least");
    if parts.len() == 0 {
        return (first.own, first.count * size);
    }
    for part in leader.parts() {
        // SAFETY: each rank's data are there, so many elements, and nobody writes them now (this
        // function's contract). Elements have no padding: all of their bytes are initialised.
        scratch
            .extend_from_slice(unsafe { std::slice::from_raw_parts(part.own, part.count * size) });
    }
    (scratch.as_ptr(), scratch.len())
}

/// Every rank's block to the root.
///
/// # Safety
/// As `gather` and `gatherv`.
pub(super) unsafe fn gather(comm: &Comm, call: &Call<'_>, args: &Args<'_>) -> Result<()> {
    let (dtype, root, buffers) = (args.dtype, args.root, GatherBuffers::new(args.send, args.recv));
    let equal = args.collective.kind == Kind::Gather;
    // SAFETY: all ranks' buffers and blocks are held during the call.
    unsafe {
        comm.internals().collective_on_cluster(call, buffers, |leader| {
            if !equal {
                agree_on_counts(leader, Some(root))?;
            }
            let mut scratch = Vec::new();
            let send = own_of(leader, dtype.size as usize, &mut scratch);
            let to = leader.process_of(root);
            let target = leader.parts().find(|part| part.blocks.is_some());
            let Some(target) = target else {
                let recv = ProcessBlocks::elsewhere(equal && is_even(leader));
                return leader.step(NativeCollective::Gather { root: to, send, recv });
            };
            let target = iter::once(target);
            collect(leader, dtype, target, |recv| {
                leader.step(NativeCollective::Gather { root: to, send, recv })
            })
        })
    }
}

/// Every rank's block to all.
///
/// # Safety
/// As `allgather`, but that `mine` need not be in `recv` yet.
pub(super) unsafe fn allgather(comm: &Comm, call: &Call<'_>, args: &Args<'_>) -> Result<()> {
    let (dtype, buffers) = (args.dtype, GatherBuffers::new(args.send, args.recv));
    let equal = !args.recv.blocks.vary();
    // SAFETY: all ranks' buffers and blocks are held during the call.
    unsafe {
        comm.internals().collective_on_cluster(call, buffers, |leader| {
            if !equal {
                agree_on_counts(leader, None)?;
            }
            let mut scratch = Vec::new();
            let send = own_of(leader, dtype.size as usize, &mut scratch);
            let targets = leader.parts();
            collect(leader, dtype, targets, |recv| {
                leader.step(NativeCollective::Allgather { send, recv })
            })
        })
    }
}

/// Makes a step that brings the blocks of all ranks, and puts them into the buffers of `targets`.
///
/// # Safety
/// Each of these has room for the blocks that it names.
unsafe fn collect<'a>(
    leader: &Leader<'_, GatherBuffers<'a>>,
    dtype: &DType,
    targets: impl Iterator<Item = GatherBuffers<'a>> + Clone,
    step: impl FnOnce(ProcessBlocks<'_>) -> Result<()>,
) -> Result<()> {
    let size = dtype.size as usize;
    let first = targets.clone().next().expect("there is a rank that gets the blocks");
    let blocks = first.blocks.expect("who gets the blocks knows them");
    let lengths = Lengths::of(leader, blocks, size);
    let total = lengths.total();
    if leader.is_ordered() && dtype.valid.is_none() {
        // Processes then follow each other as their ranks do.
        step(lengths.at(first.all))?;
        for target in targets.skip(1) {
            // SAFETY: both have room for all blocks, and are buffers of different ranks.
            unsafe { copy_bytes(first.all, target.all, total) };
        }
        return Ok(());
    }
    let mut came = Packed::of(lengths);
    step(came.parts())?;
    // SAFETY: `came` holds all blocks, and each target has room for each.
    unsafe {
        check_values(dtype, came.memory.as_ptr(), total / size)?;
        let mut place = came.memory.as_ptr();
        for rank in (0..leader.processes()).flat_map(|process| leader.members(process)) {
            let (start, count) = blocks.of(*rank);
            for target in targets.clone() {
                copy_bytes(place, target.all.add(start * size), count * size);
            }
            place = place.add(count * size);
        }
    }
    Ok(())
}

/// A block of the root's for every rank. `count` is this rank's, of which there is room at
/// `target`.
///
/// # Safety
/// As `scatter`.
pub(super) unsafe fn scatter(comm: &Comm, call: &Call<'_>, args: &Args<'_>) -> Result<()> {
    let (dtype, root, buffers) = (args.dtype, args.root, GatherBuffers::new(args.recv, args.send));
    let (equal, takes) = (args.collective.kind == Kind::Scatter, buffers.count);
    if let Some(sends) = args.incoming.first().map(|block| block.count)
        && sends != takes
    {
        return Err(Error::argument(format!(
            "{call}: rank {root} of the communicator sends {sends} elements to rank {}, which \
             takes {takes}",
            comm.rank()
        )));
    }
    let size = dtype.size as usize;
    // SAFETY: all ranks' buffers and blocks are held during the call.
    unsafe {
        comm.internals().collective_on_cluster(call, buffers, |leader| {
            let to = leader.process_of(root);
            let mine: usize = leader.parts().map(|part| part.count * size).sum();
            let only = leader.parts().next().filter(|_| leader.parts().len() == 1);
            let direct = only.filter(|_| dtype.valid.is_none());
            let mut scratch = vec![0u8; if direct.is_some() { 0 } else { mine }];
            let recv = (direct.map_or(scratch.as_mut_ptr(), |only| only.own), mine);
            match leader.parts().find(|part| part.blocks.is_some()) {
                None => {
                    let send = ProcessBlocks::elsewhere(equal && is_even(leader));
                    leader.step(NativeCollective::Scatter { root: to, send, recv })?;
                }
                Some(source) => {
                    let blocks = source.blocks.unwrap_or(Blocks::One(0));
                    let lengths = Lengths::of(leader, blocks, size);
                    if leader.is_ordered() {
                        let send = lengths.at(source.all);
                        leader.step(NativeCollective::Scatter { root: to, send, recv })?;
                    } else {
                        let mut packed = Packed::of(lengths);
                        let mut place = packed.memory.as_mut_ptr();
                        for rank in (0..leader.processes()).flat_map(|it| leader.members(it)) {
                            let (start, count) = blocks.of(*rank);
                            copy_bytes(source.all.add(start * size), place, count * size);
                            place = place.add(count * size);
                        }
                        leader.step(NativeCollective::Scatter {
                            root: to,
                            send: packed.parts(),
                            recv,
                        })?;
                    }
                }
            }
            if direct.is_some() {
                return Ok(());
            }
            check_values(dtype, scratch.as_ptr(), mine / size)?;
            let mut place = scratch.as_ptr();
            for part in leader.parts() {
                copy_bytes(place, part.own, part.count * size);
                place = place.add(part.count * size);
            }
            Ok(())
        })
    }
}

/// Compares what each rank sends with what is expected of it, by the root or by all, before the
/// data go: the same error on all that know.
///
/// # Safety
/// As [`collect`].
unsafe fn agree_on_counts(
    leader: &Leader<'_, GatherBuffers<'_>>,
    root: Option<usize>,
) -> Result<()> {
    let digest = |part: GatherBuffers<'_>| part.blocks.map_or(0, |blocks| blocks.digest());
    let words = |part: GatherBuffers<'_>| [part.count as u64, digest(part)];
    let mine: Vec<[u64; 2]> = leader.parts().map(words).collect();
    let mut came = Packed::of(Lengths::of(leader, Blocks::Equal(1), size_of::<[u64; 2]>()));
    let send = (mine.as_ptr().cast::<u8>(), size_of_val(&mine[..]));
    let to = root.map(|root| leader.process_of(root));
    let step = match to {
        None => NativeCollective::Allgather { send, recv: came.parts() },
        Some(to) => NativeCollective::Gather { root: to, send, recv: came.parts() },
    };
    // SAFETY: the words of this process's ranks, and room for those of all.
    unsafe { leader.step(step)? };
    let Some(blocks) = leader.parts().find_map(|part| part.blocks) else { return Ok(()) };
    // The leader goes by its own in the buffers of all ranks here: a hash is not enough.
    let differs = |part: GatherBuffers<'_>| part.blocks.is_some_and(|own| own != blocks);
    if let Some(other) = leader.parts().position(differs) {
        let here = leader.members(leader.process());
        return Err(leader.disagree(&differing(here[other], here[0])));
    }
    let word = |at: usize| u64::from_ne_bytes(came.memory[at..at + 8].try_into().expect("8 bytes"));
    let ranks = (0..leader.processes()).flat_map(|process| leader.members(process));
    for (index, rank) in ranks.enumerate() {
        let (sends, expected) = (word(16 * index), blocks.of(*rank).1);
        if sends != expected as u64 {
            return Err(leader.disagree(&format!(
                "different counts: rank {rank} of the communicator sends {sends} elements where \
                 {expected} are expected"
            )));
        }
        if root.is_none() && word(16 * index + 8) != blocks.digest() {
            let me = leader.members(leader.process())[0];
            return Err(leader.disagree(&differing(*rank, me)));
        }
    }
    Ok(())
}
