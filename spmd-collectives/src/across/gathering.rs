//! Gather, allgather and scatter across processes.

use std::iter;
use std::ptr::copy_nonoverlapping;

use spmd_core::algorithm::{Call, Lead, Parts, Step};
use spmd_core::{Comm, DType, Result};

use super::{Lengths, Packed, check_values, is_even};
use crate::blocks::{Blocks, differing};

/// What a rank calls with: its own data, and on those who get or give them the blocks of all.
#[derive(Clone, Copy)]
struct Held {
    own: *mut u8,
    /// Elements of its own.
    count: usize,
    /// Null where it has none.
    blocks: *const Blocks,
    all: *mut u8,
}

/// What the ranks of this process send, one after another; `room` holds it if they are several.
///
/// # Safety
/// The data of all of them are there.
unsafe fn own_of(lead: &Lead<'_, Held>, size: usize, room: &mut Vec<u8>) -> (*const u8, usize) {
    let mut parts = lead.parts();
    let first = parts.next().expect("a process holds a rank at least");
    if parts.len() == 0 {
        return (first.own, first.count * size);
    }
    for part in lead.parts() {
        // SAFETY: as the caller promises.
        room.extend_from_slice(unsafe { std::slice::from_raw_parts(part.own, part.count * size) });
    }
    (room.as_ptr(), room.len())
}

/// Every rank's block to the root.
///
/// # Safety
/// As `gather` and `gatherv`.
pub(crate) unsafe fn gather(
    comm: &Comm,
    call: &Call<'_>,
    dtype: DType,
    root: usize,
    mine: (*const u8, usize),
    into: Option<(&Blocks, *mut u8)>,
    equal: bool,
) -> Result<()> {
    let (blocks, all) = pointers(into);
    let held = Held { own: mine.0.cast_mut(), count: mine.1, blocks, all };
    // SAFETY: all ranks' buffers and blocks are held during the call.
    unsafe {
        comm.collective_across(call, held, |lead| {
            if !equal {
                agree_on_counts(lead, Some(root))?;
            }
            let mut room = Vec::new();
            let send = own_of(lead, dtype.size as usize, &mut room);
            let to = lead.process_of(root);
            let target = lead.parts().find(|part| !part.blocks.is_null());
            let Some(target) = target else {
                let recv = Parts::elsewhere(equal && is_even(lead));
                return lead.step(Step::Gather { root: to, send, recv });
            };
            let target = iter::once(target);
            collect(lead, dtype, target, |recv| lead.step(Step::Gather { root: to, send, recv }))
        })
    }
}

/// Every rank's block to all.
///
/// # Safety
/// As `allgather`, but that `mine` need not be in `recv` yet.
pub(crate) unsafe fn allgather(
    comm: &Comm,
    call: &Call<'_>,
    dtype: DType,
    blocks: &Blocks,
    mine: *const u8,
    recv: *mut u8,
) -> Result<()> {
    let equal = matches!(blocks, Blocks::Equal(_));
    let count = blocks.of(comm.rank()).1;
    let held = Held { own: mine.cast_mut(), count, blocks, all: recv };
    // SAFETY: all ranks' buffers and blocks are held during the call.
    unsafe {
        comm.collective_across(call, held, |lead| {
            if !equal {
                agree_on_counts(lead, None)?;
            }
            let mut room = Vec::new();
            let send = own_of(lead, dtype.size as usize, &mut room);
            let targets = lead.parts();
            collect(lead, dtype, targets, |recv| lead.step(Step::Allgather { send, recv }))
        })
    }
}

/// Makes a step that brings the blocks of all ranks, and puts them into the buffers of `targets`.
///
/// # Safety
/// Each of these has room for the blocks that it names.
unsafe fn collect(
    lead: &Lead<'_, Held>,
    dtype: DType,
    targets: impl Iterator<Item = Held> + Clone,
    step: impl FnOnce(Parts<'_>) -> Result<()>,
) -> Result<()> {
    let size = dtype.size as usize;
    let first = targets.clone().next().expect("there is a rank that gets the blocks");
    // SAFETY: whoever has blocks shows them during the call.
    let blocks = unsafe { &*first.blocks };
    let lengths = Lengths::of(lead, blocks, size);
    let total = lengths.total();
    if lead.is_ordered() && dtype.valid.is_none() {
        // Processes then follow each other as their ranks do.
        step(lengths.at(first.all))?;
        for target in targets.skip(1) {
            // SAFETY: both have room for all blocks, and are buffers of different ranks.
            unsafe { copy_nonoverlapping(first.all, target.all, total) };
        }
        return Ok(());
    }
    let mut came = Packed::of(lengths);
    step(came.parts())?;
    // SAFETY: `came` holds all blocks, and each target has room for each.
    unsafe {
        check_values(dtype, came.memory.as_ptr(), total / size)?;
        let mut place = came.memory.as_ptr();
        for rank in (0..lead.processes()).flat_map(|process| lead.members(process)) {
            let (start, count) = blocks.of(*rank);
            for target in targets.clone() {
                copy_nonoverlapping(place, target.all.add(start * size), count * size);
            }
            place = place.add(count * size);
        }
    }
    Ok(())
}

/// A block of the root's for every rank. `count` is this rank's, of which there is room at `target`.
///
/// # Safety
/// As `scatter`.
pub(crate) unsafe fn scatter(
    comm: &Comm,
    call: &Call<'_>,
    dtype: DType,
    root: usize,
    from: Option<(&Blocks, *const u8)>,
    (target, count): (*mut u8, usize),
    equal: bool,
) -> Result<()> {
    let (blocks, all) = pointers(from.map(|(blocks, from)| (blocks, from.cast_mut())));
    let held = Held { own: target, count, blocks, all };
    let size = dtype.size as usize;
    // SAFETY: all ranks' buffers and blocks are held during the call.
    unsafe {
        comm.collective_across(call, held, |lead| {
            let to = lead.process_of(root);
            let mine: usize = lead.parts().map(|part| part.count * size).sum();
            let only = lead.parts().next().filter(|_| lead.parts().len() == 1);
            let direct = only.filter(|_| dtype.valid.is_none());
            let mut room = vec![0u8; if direct.is_some() { 0 } else { mine }];
            let recv = (direct.map_or(room.as_mut_ptr(), |only| only.own), mine);
            match lead.parts().find(|part| !part.blocks.is_null()) {
                None => {
                    let send = Parts::elsewhere(equal && is_even(lead));
                    lead.step(Step::Scatter { root: to, send, recv })?;
                }
                Some(source) => {
                    let blocks = &*source.blocks;
                    let lengths = Lengths::of(lead, blocks, size);
                    if lead.is_ordered() {
                        let send = lengths.at(source.all);
                        lead.step(Step::Scatter { root: to, send, recv })?;
                    } else {
                        let mut packed = Packed::of(lengths);
                        let mut place = packed.memory.as_mut_ptr();
                        for rank in (0..lead.processes()).flat_map(|it| lead.members(it)) {
                            let (start, count) = blocks.of(*rank);
                            copy_nonoverlapping(source.all.add(start * size), place, count * size);
                            place = place.add(count * size);
                        }
                        lead.step(Step::Scatter { root: to, send: packed.parts(), recv })?;
                    }
                }
            }
            if direct.is_some() {
                return Ok(());
            }
            check_values(dtype, room.as_ptr(), mine / size)?;
            let mut place = room.as_ptr();
            for part in lead.parts() {
                copy_nonoverlapping(place, part.own, part.count * size);
                place = place.add(part.count * size);
            }
            Ok(())
        })
    }
}

fn pointers(all: Option<(&Blocks, *mut u8)>) -> (*const Blocks, *mut u8) {
    all.map_or((std::ptr::null(), std::ptr::null_mut()), |(blocks, all)| (&raw const *blocks, all))
}

/// Compares what each rank sends with what is expected of it, by the root or by all, before the
/// data go: the same error on all that know.
///
/// # Safety
/// As [`collect`].
unsafe fn agree_on_counts(lead: &Lead<'_, Held>, root: Option<usize>) -> Result<()> {
    // SAFETY: whoever has blocks shows them during the call.
    let digest = |part: Held| unsafe { part.blocks.as_ref() }.map_or(0, Blocks::digest);
    let words = |part: Held| [part.count as u64, digest(part)];
    let mine: Vec<[u64; 2]> = lead.parts().map(words).collect();
    let mut came = Packed::of(Lengths::of(lead, &Blocks::Equal(1), size_of::<[u64; 2]>()));
    let send = (mine.as_ptr().cast::<u8>(), size_of_val(&mine[..]));
    let to = root.map(|root| lead.process_of(root));
    let step = match to {
        None => Step::Allgather { send, recv: came.parts() },
        Some(to) => Step::Gather { root: to, send, recv: came.parts() },
    };
    // SAFETY: the words of this process's ranks, and room for those of all.
    unsafe { lead.step(step)? };
    let Some(judge) = lead.parts().find(|part| !part.blocks.is_null()) else { return Ok(()) };
    // SAFETY: as above.
    let blocks = unsafe { &*judge.blocks };
    let word = |at: usize| u64::from_ne_bytes(came.memory[at..at + 8].try_into().expect("8 bytes"));
    let ranks = (0..lead.processes()).flat_map(|process| lead.members(process));
    for (index, rank) in ranks.enumerate() {
        let (sends, expected) = (word(16 * index), blocks.of(*rank).1);
        if sends != expected as u64 {
            return Err(lead.disagree(&format!(
                "different counts: rank {rank} of the communicator sends {sends} elements where \
                 {expected} are expected"
            )));
        }
        if root.is_none() && word(16 * index + 8) != blocks.digest() {
            let me = lead.members(lead.process())[0];
            return Err(lead.disagree(&differing(*rank, me)));
        }
    }
    Ok(())
}
