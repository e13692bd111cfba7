//! The algorithms of reduce_scatter.

use spmd_core::internal::{
    Args, Blocks, Call, Collective, Kind, PAYLOAD, Round, SingleRank, copy_bytes,
};
use spmd_core::{Comm, Result};

use crate::blocks::differing;
use crate::data::receiving_elsewhere;
use crate::large::stream::two_segments;
use crate::large::{CopyPath, LargeRound};
use crate::reducing::Reduction;
use crate::select::{Algorithm::*, choose};

/// The number under which a rank says the digest of its blocks.
const DIGEST: usize = 1;

/// After the first meeting: the same error on all ranks, if their blocks differ.
fn check_agreed(round: &Round<'_>, blocks: Blocks<'_>) -> Result<()> {
    if !blocks.vary() {
        return Ok(());
    }
    let (digest, me) = (blocks.digest(), round.rank());
    match (0..round.size()).find(|peer| round.number_of(*peer, DIGEST) != digest) {
        Some(peer) => Err(round.disagree(&differing(peer, me))),
        None => Ok(()),
    }
}

pub(super) const REDUCE_SCATTER: Collective =
    Collective { kind: Kind::ReduceScatter, single_rank: SingleRank::Copies, arena };
pub(super) const REDUCE_SCATTERV: Collective =
    Collective { kind: Kind::ReduceScatterv, single_rank: SingleRank::Copies, arena };

/// # Safety
/// As [`Arena`](spmd_core::args::Arena): `send` is a block for each rank, `recv` one as
/// long as this rank's, at the start of `send` or apart from it.
unsafe fn arena(comm: &Comm, call: &Call<'_>, args: &Args<'_>) -> Result<()> {
    // SAFETY: all is as `dispatch` asks for it, on the host, and `recv` is one block (this
    // function's contract). `apart` is given one apart from `send`: the caller's, or another if
    // that starts where `send` does. No peer reads `send` after `apart` has returned: it reads
    // payloads, or all have met since.
    unsafe { receiving_elsewhere(args, |args| apart(comm, call, args)) }
}

/// # Safety
/// As [`arena`], `recv` apart from `send`.
unsafe fn apart(comm: &Comm, call: &Call<'_>, args: &Args<'_>) -> Result<()> {
    let (reduction, blocks) = (Reduction::of_blocks(args, comm.size()), args.send.blocks);
    let (send, recv) = (args.send.ptr.cast_const(), args.recv.ptr);
    let fits = reduction.bytes() <= PAYLOAD;
    let default = if fits { Flat } else { Chunked };
    let bytes = reduction.bytes();
    let choice = choose(comm, args.collective.kind, bytes, default, |it| fits || it == Chunked);
    comm.internals().collective(call, |round| {
        round.set_number(DIGEST, blocks.digest());
        // SAFETY: `send` holds all blocks, `recv`, apart from it, has room for this rank's, and
        // nobody else touches them during the call (this function's contract). `flat` is chosen
        // only where `send` fits into a payload.
        unsafe {
            match choice {
                Flat => flat(round, reduction, blocks, send, recv),
                _ => chunked(round, comm.internals().segment(), reduction, blocks, send, recv),
            }
        }
    })
}

/// Everybody shows its input, meets, and folds its block of all of them. One step; n reads of a
/// block a rank.
///
/// # Safety
/// As [`apart`].
unsafe fn flat(
    round: &Round<'_>,
    reduction: Reduction<'_>,
    blocks: Blocks<'_>,
    send: *const u8,
    recv: *mut u8,
) -> Result<()> {
    let bytes = reduction.bytes();
    // SAFETY: the payload has that many bytes, and so has `send`.
    unsafe { copy_bytes(send, round.payload(bytes), bytes) };
    round.arrive(1)?;
    check_agreed(round, blocks)?;
    let me = round.rank();
    let (start, count) = blocks.of(me);
    // SAFETY: all have published payloads of all elements, the block among them, as it is in
    // `send`; `recv` has room.
    unsafe {
        let all = |peer| if peer == me { send } else { round.payload_of(peer, bytes) };
        let input = |peer| all(peer).add(start * reduction.size());
        reduction.fold(round, count, round.size(), recv, input)
    }
}

/// Everybody folds its block of all inputs where they are, or, a piece of every block at a time,
/// in the staging areas. Two meetings, or one a segment; n reads of a block a rank.
///
/// # Safety
/// As [`apart`].
unsafe fn chunked(
    round: &Round<'_>,
    segment: usize,
    reduction: Reduction<'_>,
    blocks: Blocks<'_>,
    send: *const u8,
    recv: *mut u8,
) -> Result<()> {
    let (n, me, size) = (round.size(), round.rank(), reduction.size());
    let longest = (0..n).map(|rank| blocks.of(rank).1).max().unwrap_or(0);
    let step = match n {
        2 => two_segments(segment / n, longest * size, size),
        _ => (segment / (n * size)).max(1),
    };
    let input = (send, reduction.bytes());
    let nothing = (std::ptr::null(), 0);
    let piece = |turn: usize, count: usize| count.saturating_sub(turn * step).min(step);
    let fill = |large: &LargeRound<'_, '_>, turn: usize| {
        for rank in (0..n).filter(|rank| *rank != me) {
            let (first, count) = blocks.of(rank);
            // SAFETY: a place has room for a piece of each block; the piece lies in `send`.
            unsafe {
                let from = send.wrapping_add((first + turn * step) * size);
                let into = large.next_for(rank, turn);
                copy_bytes(from, into, piece(turn, count) * size);
            }
        }
    };
    // SAFETY: the buffer is the caller's, and nobody writes it during the call; the last meeting
    // is after the last read.
    let large = unsafe {
        let path = CopyPath::Pieces(step * size);
        LargeRound::meet(round, reduction.dtype, input, nothing, path, |large| fill(large, 0))?
    };
    check_agreed(round, blocks)?;
    if large.direct {
        // SAFETY: the block lies within the inputs, and `recv` has room for it.
        unsafe { reduction.fold_direct(&large, reduction.count, blocks.of(me), recv, &[])? };
        return large.arrive();
    }
    let mut inputs = Vec::with_capacity(n);
    for turn in 0..longest.div_ceil(step) {
        let (first, all) = blocks.of(me);
        let (start, count) = (turn * step, piece(turn, all));
        if count > 0 {
            let offset = (first + start) * size;
            inputs.clear();
            // SAFETY: peers' places, whose length is checked, hold a piece of this rank's block,
            // which lies within all inputs, and for which `recv` has room; meetings order writing
            // and reading.
            unsafe {
                for peer in 0..n {
                    inputs.push(if peer == me {
                        send.add(offset)
                    } else {
                        let staged = || large.next_from(peer, turn);
                        large.source(peer, (offset, reduction.bytes()), staged)?
                    });
                }
                reduction.fold(round, count, n, recv.add(start * size), |peer| inputs[peer])?;
            }
        }
        if large.staged {
            fill(&large, turn + 1);
        }
        large.arrive()?;
    }
    Ok(())
}
