//! The algorithms of allgather and allgatherv.

use std::ptr::null;

use spmd_core::internal::{
    Args, Blocks, Call, Collective, Kind, PAYLOAD, Round, SingleRank, copy_bytes,
};
use spmd_core::{Comm, DType, Result};

use crate::blocks::differing;
use crate::large::stream::two_segments;
use crate::large::{CopyPath, LargeRound, goes_around, take};
use crate::select::{Algorithm::*, SINGLE_COPY, choose};

/// A number that every rank says: how many elements it sends.
const COUNT: usize = 1;
/// A number that every rank says: the digest of the counts that it goes by.
const COUNTS: usize = 2;

pub(super) const ALLGATHER: Collective =
    Collective { kind: Kind::Allgather, single_rank: SingleRank::Copies, arena };
pub(super) const ALLGATHERV: Collective =
    Collective { kind: Kind::Allgatherv, single_rank: SingleRank::Copies, arena };

/// # Safety
/// As [`Arena`](spmd_core::args::Arena): `send` is one block, as long as this rank's of `recv`, and
/// that one or apart from `recv`.
unsafe fn arena(comm: &Comm, call: &Call<'_>, args: &Args<'_>) -> Result<()> {
    let (kind, dtype, blocks) = (args.collective.kind, args.dtype, args.recv.blocks);
    let (mine, recv) = (args.send.ptr.cast_const(), args.recv.ptr);
    let bytes = blocks.longest().saturating_mul(dtype.size as usize);
    let fits = bytes <= PAYLOAD;
    // What goes around caches, the kernel does not.
    let wide = goes_around(bytes.saturating_mul(comm.size()), comm.size());
    let single = !comm.internals().shares_cores() && bytes >= SINGLE_COPY && !wide;
    let default = match fits {
        true => Flat,
        false if single && comm.internals().prefers_private() => SingleCopy,
        false => Chunked,
    };
    let choice = choose(comm, kind, bytes, default, |it| match it {
        SingleCopy => comm.internals().reads_private(),
        _ => fits || it == Chunked,
    });
    let (start, count) = blocks.of(comm.rank());
    let own = recv.wrapping_add(start * dtype.size as usize);
    if !std::ptr::eq(own.cast_const(), mine) {
        // SAFETY: both have room for this rank's block, and are apart, as they are not the same.
        unsafe { copy_bytes(mine, own, count * dtype.size as usize) };
    }
    comm.internals().collective(call, |round| {
        if blocks.vary() {
            round.set_number(COUNT, count as u64);
            round.set_number(COUNTS, blocks.digest());
        }
        // SAFETY: `mine` holds this rank's block, and is that block of `recv` or apart from it;
        // `recv` has room for all blocks; nobody else touches them during the call (this function's
        // contract). `flat` is chosen only where the longest block fits into a payload.
        unsafe {
            match choice {
                Flat => flat(round, dtype, blocks, mine, recv),
                SingleCopy => chunked(round, None, dtype, blocks, mine, recv),
                _ => chunked(round, Some(comm.internals().segment()), dtype, blocks, mine, recv),
            }
        }
    })
}

/// Ranks that go by different counts must not go on, not one of them: they may even have chosen
/// different algorithms.
fn check_counts(round: &Round<'_>, blocks: Blocks<'_>) -> Result<()> {
    if !blocks.vary() {
        return Ok(());
    }
    for peer in 0..round.size() {
        let (sends, expected) = (round.number_of(peer, COUNT), blocks.of(peer).1);
        if sends != expected as u64 {
            return Err(round.disagree(&format!(
                "different counts: rank {peer} of the communicator sends {sends} elements where \
                 rank {} takes {expected}",
                round.rank()
            )));
        }
    }
    let digest = blocks.digest();
    match (0..round.size()).find(|peer| round.number_of(*peer, COUNTS) != digest) {
        Some(peer) => Err(round.disagree(&differing(peer, round.rank()))),
        None => Ok(()),
    }
}

/// The others, beginning with the next one, so that not all read the same rank at once.
fn others(round: &Round<'_>) -> impl Iterator<Item = usize> {
    let (me, n) = (round.rank(), round.size());
    (1..n).map(move |step| (me + step) % n)
}

/// Everybody shows its block, meets, and copies those of the others. One meeting; n − 1 reads of
/// a block a rank.
///
/// # Safety
/// As [`arena`].
unsafe fn flat(
    round: &Round<'_>,
    dtype: &DType,
    blocks: Blocks<'_>,
    mine: *const u8,
    recv: *mut u8,
) -> Result<()> {
    let size = dtype.size as usize;
    let bytes = blocks.of(round.rank()).1 * size;
    // SAFETY: the payload has that many bytes, and so has `mine`.
    unsafe { copy_bytes(mine, round.payload(bytes), bytes) };
    round.arrive(1)?;
    check_counts(round, blocks)?;
    for peer in others(round) {
        let (start, count) = blocks.of(peer);
        let from = round.payload_of(peer, count * size);
        // SAFETY: all have published payloads of their blocks' lengths; `recv` has room.
        unsafe { take(round, dtype, peer, from, recv.add(start * size), count)? };
    }
    Ok(())
}

/// Everybody reads the blocks of the others. Two meetings, or one a segment and one more where
/// data go through staging, which they do not without a `segment`; n − 1 reads of a block a rank.
///
/// # Safety
/// As [`arena`].
unsafe fn chunked(
    round: &Round<'_>,
    segment: Option<usize>,
    dtype: &DType,
    blocks: Blocks<'_>,
    mine: *const u8,
    recv: *mut u8,
) -> Result<()> {
    let size = dtype.size as usize;
    let own = blocks.of(round.rank()).1;
    // Of two ranks each has data for one peer alone.
    let other = (round.size() == 2).then(|| 1 - round.rank());
    let step = segment.map_or(0, |segment| match other {
        Some(_) => two_segments(segment, blocks.longest() * size, size),
        None => (segment / size).max(1),
    });
    let path = match (segment, other) {
        (None, _) => CopyPath::Kernel,
        (Some(_), Some(_)) => CopyPath::Pieces(step * size),
        (Some(_), None) => CopyPath::Staged(step * size),
    };
    let shown = (mine, own * size);
    let fill = |large: &LargeRound<'_, '_>, turn: usize| {
        let start = turn * step;
        if start < own {
            let len = step.min(own - start);
            let into = other.map_or_else(|| large.place(turn), |other| large.next_for(other, turn));
            // SAFETY: a place has room for a segment, which lies within `mine`.
            unsafe { copy_bytes(mine.add(start * size), into, len * size) };
        }
    };
    // SAFETY: the buffer is the caller's. Its owner writes the other blocks of `recv` only, and
    // leaves after the last meeting, before which the others have read it.
    let mut large = unsafe {
        LargeRound::meet(round, dtype, shown, (null(), 0), path, |large| fill(large, 0))?
    };
    large.writes((blocks.longest() * size).saturating_mul(round.size()));
    check_counts(round, blocks)?;
    if large.direct || large.kernel {
        for peer in others(round) {
            let (start, count) = blocks.of(peer);
            // SAFETY: the peer's buffer has so many bytes, or there is an error; `recv` has room.
            unsafe {
                large.fetch(peer, (0, count * size), recv.add(start * size), count)?;
            }
        }
        return large.arrive();
    }
    for turn in 0..blocks.longest().div_ceil(step) {
        let start = turn * step;
        for peer in others(round) {
            let (first, count) = blocks.of(peer);
            if start < count {
                // SAFETY: the peer's place has room for a segment, which lies within its block;
                // the meeting stands between writing and reading it.
                unsafe {
                    let direct = (start * size, count * size);
                    let staged = || match other {
                        Some(_) => large.next_from(peer, turn),
                        None => large.place_of(peer, turn),
                    };
                    let from = large.source(peer, direct, staged)?;
                    let place = recv.add((first + start) * size);
                    large.take(peer, from, place, step.min(count - start))?;
                }
            }
        }
        if large.staged {
            fill(&large, turn + 1);
        }
        large.arrive()?;
    }
    Ok(())
}
