//! The algorithms of gather and gatherv.

use std::ptr::null;

use spmd_core::internal::{
    Args, Blocks, Call, Collective, FLAT, Kind, PAYLOAD, Round, SingleRank, copy_bytes,
};
use spmd_core::{Comm, DType, Result};

use crate::large::{CopyPath, LargeRound, SEND, take};
use crate::select::{Algorithm::*, choose};

/// A number that every rank says where counts may differ: how many elements it sends.
const COUNT: usize = 1;

pub(super) const GATHER: Collective =
    Collective { kind: Kind::Gather, single_rank: SingleRank::Copies, arena: equal };
pub(super) const GATHERV: Collective =
    Collective { kind: Kind::Gatherv, single_rank: SingleRank::Copies, arena: varying };

/// Gathers equal blocks.
///
/// # Safety
/// As [`Arena`](spmd_core::args::Arena): `send` is one block; on the root alone, `recv` is one as
/// long for each rank, apart from `send`.
unsafe fn equal(comm: &Comm, call: &Call<'_>, args: &Args<'_>) -> Result<()> {
    let (dtype, root, mine, into) = unpack(args);
    let bytes = mine.1 * args.size();
    let fits = bytes <= PAYLOAD;
    let default = match comm.size() {
        _ if !fits => Chunked,
        ranks if ranks <= comm.internals().one_way_limit() => Flat,
        _ => Tree,
    };
    let choice = choose(comm, Kind::Gather, bytes, default, |it| fits || it == Chunked);
    comm.internals().collective(call, |round| {
        // SAFETY: `mine` holds this rank's block, and on the root `recv`, apart from it, has room
        // for one as long of each rank; nobody else touches them during the call (this function's
        // contract). Payloads are chosen only where a block fits into one.
        unsafe {
            if choice == Chunked {
                return chunked(round, comm.internals().segment(), dtype, root, mine, into, false);
            }
            let Some((blocks, recv)) = into else {
                copy_bytes(mine.0, round.payload(bytes), bytes);
                if choice == Tree {
                    return round.arrive(1);
                }
                round.publish_to(1, root);
                return Ok(());
            };
            keep_own(dtype, root, mine, blocks, recv);
            if choice == Tree {
                round.arrive(1)?;
            } else {
                round.publish_to_each(1, std::iter::empty());
                round.wait_for_all(1)?;
            }
            take_payloads(round, dtype, blocks, recv)
        }
    })
}

/// Gathers blocks whose lengths the root alone knows.
///
/// # Safety
/// As [`Arena`](spmd_core::args::Arena): `send` is one block; on the root alone, `recv` is one for
/// each rank, its own as long as `send`, apart from that.
unsafe fn varying(comm: &Comm, call: &Call<'_>, args: &Args<'_>) -> Result<()> {
    let (dtype, root, mine, into) = unpack(args);
    let default = if comm.size() <= FLAT { Flat } else { Chunked };
    let choice = choose(comm, Kind::Gatherv, 0, default, |_| true);
    comm.internals().collective(call, |round| {
        let payloads = choice == Flat;
        // SAFETY: `mine` holds this rank's block, and on the root `recv`, apart from it, has room
        // for one of each rank, its own as long as `mine`; nobody else touches them during the call
        // (this function's contract).
        unsafe { chunked(round, comm.internals().segment(), dtype, root, mine, into, payloads) }
    })
}

/// What this rank sends, address and number of elements, and on the root the blocks of all, and
/// where they go.
#[allow(clippy::type_complexity, reason = "it is taken apart at once")]
fn unpack<'a>(
    args: &Args<'a>,
) -> (&'a DType, usize, (*const u8, usize), Option<(Blocks<'a>, *mut u8)>) {
    let (send, recv) = (args.send, args.recv);
    let into = recv.is_some().then_some((recv.blocks, recv.ptr));
    (args.dtype, args.root, (send.ptr.cast_const(), send.blocks.longest()), into)
}

/// The root puts its own block where it belongs.
///
/// # Safety
/// `mine` holds the block of `root`, as long as `blocks` says, and `recv` has room for the blocks,
/// apart from it.
unsafe fn keep_own(
    dtype: &DType,
    root: usize,
    mine: (*const u8, usize),
    blocks: Blocks<'_>,
    recv: *mut u8,
) {
    let size = dtype.size as usize;
    // SAFETY: `mine` holds the root's block, and `recv`, apart from it, has room for one as long
    // there (this function's contract).
    unsafe { copy_bytes(mine.0, recv.add(blocks.of(root).0 * size), mine.1 * size) };
}

/// Copies what the others have in their payloads.
///
/// # Safety
/// The others have published payloads of their blocks' lengths; `recv` has room for all blocks.
unsafe fn take_payloads(
    round: &Round<'_>,
    dtype: &DType,
    blocks: Blocks<'_>,
    recv: *mut u8,
) -> Result<()> {
    let size = dtype.size as usize;
    for peer in (0..round.size()).filter(|peer| *peer != round.rank()) {
        let (start, count) = blocks.of(peer);
        let from = round.payload_of(peer, count * size);
        // SAFETY: the peer has published a payload of its block's length, which it does not write
        // again in this round, and `recv`, this rank's own, has room for the block (this function's
        // contract).
        unsafe { take(round, dtype, peer, from, recv.add(start * size), count)? };
    }
    Ok(())
}

/// The root reads everybody's data. Two meetings, or one and a step a segment where data go
/// through staging. With `payloads`, blocks that are all small lie in the payloads, and one meeting
/// is enough.
///
/// # Safety
/// As [`varying`].
unsafe fn chunked(
    round: &Round<'_>,
    segment: usize,
    dtype: &DType,
    root: usize,
    mine: (*const u8, usize),
    into: Option<(Blocks<'_>, *mut u8)>,
    payloads: bool,
) -> Result<()> {
    let (me, size) = (round.rank(), dtype.size as usize);
    let bytes = mine.1 * size;
    let others = || (0..round.size()).filter(|peer| *peer != root);
    let step = (segment / size).max(1);
    round.set_number(COUNT, mine.1 as u64);
    if payloads && me != root && bytes <= PAYLOAD {
        // SAFETY: the payload has that many bytes, and so has `mine`.
        unsafe { copy_bytes(mine.0, round.payload(bytes), bytes) };
    }
    if let Some((blocks, recv)) = into {
        // SAFETY: this rank is the root: `mine` holds its block, and `recv`, apart from it, has
        // room for one as long there (contract of `varying`).
        unsafe { keep_own(dtype, root, mine, blocks, recv) };
    }
    let shown = if me == root { (null(), 0) } else { (mine.0, bytes) };
    let fill = |large: &LargeRound<'_, '_>, turn: usize| {
        let start = turn * step;
        if me != root && start < mine.1 {
            let len = step.min(mine.1 - start);
            // SAFETY: a place has room for a segment, which lies within `mine`.
            unsafe { copy_bytes(mine.0.add(start * size), large.place(turn), len * size) };
        }
    };
    // SAFETY: the buffer is the caller's, which nobody writes until the last meeting, before
    // which the root has read it.
    let large = unsafe {
        LargeRound::meet(
            round,
            dtype,
            shown,
            (null(), 0),
            CopyPath::From { rank: usize::from(root == 0), place: step * size, show: true },
            |large| fill(large, 0),
        )?
    };
    if let Some((blocks, _)) = into
        && let Some(peer) =
            others().find(|peer| round.number_of(*peer, COUNT) != blocks.of(*peer).1 as u64)
    {
        let (sends, expected) = (round.number_of(peer, COUNT), blocks.of(peer).1);
        return Err(round.disagree(&format!(
            "different counts: rank {peer} of the communicator sends {sends} elements where the \
             root takes {expected}"
        )));
    }
    let longest = || {
        let count = |peer| match into {
            Some((blocks, _)) => blocks.of(peer).1 as u64,
            None => round.number_of(peer, COUNT),
        };
        others().map(count).max().unwrap_or(0)
    };
    if payloads && longest() <= (PAYLOAD / size) as u64 {
        // SAFETY: the blocks are as long as the others say, so all are in their payloads.
        return into
            .map_or(Ok(()), |(blocks, recv)| unsafe { take_payloads(round, dtype, blocks, recv) });
    }
    if large.direct {
        if let Some((blocks, recv)) = into {
            for peer in others() {
                let (start, count) = blocks.of(peer);
                // SAFETY: `reach` has seen that the peer shows so many bytes; `recv` has room.
                unsafe {
                    let from = large.reach(peer, SEND, count * size)?;
                    large.take(peer, from, recv.add(start * size), count)?;
                }
            }
        }
        return large.arrive();
    }
    let turns = longest().div_ceil(step as u64) as usize;
    let Some((blocks, recv)) = into else {
        return large.produce(turns, std::iter::once(root), |turn| fill(&large, turn));
    };
    large.consume(turns, others(), |turn| {
        let start = turn * step;
        for peer in others() {
            let (first, count) = blocks.of(peer);
            if start < count {
                // SAFETY: the peer has shown the segment, which lies within its block; `recv` has
                // room.
                unsafe {
                    let direct = (start * size, count * size);
                    let from = large.source(peer, direct, || large.place_of(peer, turn))?;
                    let place = recv.add((first + start) * size);
                    large.take(peer, from, place, step.min(count - start))?;
                }
            }
        }
        Ok(())
    })
}
