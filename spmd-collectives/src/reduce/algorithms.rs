//! The algorithms of reduce.

use std::ptr::{null, null_mut};

use spmd_core::internal::{
    Args, Call, Collective, FLAT, Kind, PAYLOAD, Round, SingleRank, copy_bytes,
};
use spmd_core::{Comm, Result};

use crate::large::stream::two_segments;
use crate::large::{CopyPath, LargeRound, RECV, take};
use crate::reducing::Reduction;
use crate::reducing::tree::tell_down_tree;
use crate::select::{Algorithm::*, choose};

pub(super) const REDUCE: Collective =
    Collective { kind: Kind::Reduce, single_rank: SingleRank::Copies, arena };

/// # Safety
/// As [`Arena`](spmd_core::args::Arena): `send`, and on the root `recv`, are one block, of one
/// length, the same or apart.
unsafe fn arena(comm: &Comm, call: &Call<'_>, args: &Args<'_>) -> Result<()> {
    let reduction = Reduction::of(args);
    let (root, send, recv) = (args.root, args.send.ptr.cast_const(), args.recv.ptr);
    let fits = reduction.bytes() <= PAYLOAD;
    let combining = comm.internals().folds_combining(reduction.bytes(), reduction.dtype);
    let default = match comm.size() {
        _ if combining => Combining,
        _ if !fits => Chunked,
        0..=FLAT => Flat,
        _ => Tree,
    };
    let bytes = reduction.bytes();
    let choice = choose(comm, Kind::Reduce, bytes, default, |it| match it {
        Combining => combining,
        _ => fits || it == Chunked,
    });
    if choice == Combining {
        let recv = if comm.rank() == root { recv } else { null_mut() };
        // SAFETY: `send` holds the elements, and `recv` has room for them on the root (this
        // function's contract), and is null elsewhere; `folds_combining` has said that the
        // combining barrier can fold them.
        return unsafe { reduction.combined(comm, call, send, recv) };
    }
    comm.internals().collective(call, |round| {
        // SAFETY: `send` holds the elements, on the root `recv` has room for them, and is the same
        // or apart, and nobody else touches them during the call (this function's contract). `flat`
        // and `tree` are chosen only where they fit into a payload.
        unsafe {
            match choice {
                Flat => flat(round, reduction, root, send, recv),
                Tree => tree(round, reduction, root, send, recv),
                _ => chunked(round, comm.internals().segment(), reduction, root, send, recv),
            }
        }
    })
}

/// The others show their inputs and go on; the root waits for all and folds. One step; the root
/// reads n − 1 inputs.
///
/// # Safety
/// As [`arena`].
unsafe fn flat(
    round: &Round<'_>,
    reduction: Reduction<'_>,
    root: usize,
    send: *const u8,
    recv: *mut u8,
) -> Result<()> {
    let (bytes, me) = (reduction.bytes(), round.rank());
    if me != root {
        // SAFETY: the payload has that many bytes, and so has `send`.
        unsafe { copy_bytes(send, round.payload(bytes), bytes) };
        round.publish_to(1, root);
        return Ok(());
    }
    round.publish_to_each(1, std::iter::empty());
    round.wait_for_all(1)?;
    let input = |peer| if peer == me { send } else { round.payload_of(peer, bytes) };
    // SAFETY: the others have published their payloads; `recv` has room, and is this rank's input
    // exactly or apart from it.
    unsafe { reduction.fold(round, reduction.count, round.size(), recv, input) }
}

/// Folds up a binomial tree, tells everybody down it, and the root reads the result. 2 log₂ n
/// steps; one read of the data a step.
///
/// # Safety
/// As [`arena`].
unsafe fn tree(
    round: &Round<'_>,
    reduction: Reduction<'_>,
    root: usize,
    send: *const u8,
    recv: *mut u8,
) -> Result<()> {
    let (bytes, last) = (reduction.bytes(), round.size() - 1);
    // SAFETY: the payload has that many bytes, and so has `send`; the fold is over when a rank has
    // been told, and the last rank's payload is written no more.
    unsafe {
        copy_bytes(send, round.payload(bytes), bytes);
        reduction.fold_up_tree(round)?;
        tell_down_tree(round)?;
        if round.rank() != root {
            return Ok(());
        }
        take(round, reduction.dtype, last, round.payload_of(last, bytes), recv, reduction.count)
    }
}

/// Ranks fold a [part](Reduction::parts) each of all inputs: into the root's buffer, if it can be
/// written from here, else into staging, from where the root takes it. Two meetings, or one a
/// segment and two more; the inputs are read once, by all ranks together. Of two processes the root
/// alone folds, as it would read all of the other's input anyway: a meeting, and a step a segment.
///
/// # Safety
/// As [`arena`].
unsafe fn chunked(
    round: &Round<'_>,
    segment: usize,
    reduction: Reduction<'_>,
    root: usize,
    send: *const u8,
    recv: *mut u8,
) -> Result<()> {
    let (n, me, size) = (round.size(), round.rank(), reduction.size());
    let (count, total) = (reduction.count, reduction.bytes());
    // Of two processes the root alone folds what is staged: it would read all of the other's input
    // anyway.
    let two = n == 2 && !round.one_address_space();
    let (step, path) = match two {
        true => {
            let step = two_segments(segment / 2, total, size);
            (step, CopyPath::From { rank: 1 - root, place: step * size, show: true })
        }
        false => {
            let step = reduction.step(segment);
            (step, reduction.pieces(step, n))
        }
    };
    let open = me == root && !round.must_check(reduction.dtype);
    let shown = if open { (recv.cast_const(), total) } else { (null(), 0) };
    // SAFETY: the buffers are the caller's; the algorithm reads as it meets.
    let large = unsafe {
        let first = |large: &LargeRound<'_, '_>| match two {
            true if me == root => {}
            true => fill(large, reduction, step, 0, send),
            false => reduction.fill(large, step, 0, send),
        };
        LargeRound::meet(round, reduction.dtype, (send, total), shown, path, first)?
    };
    if large.pushes() {
        let mine = reduction.parts(n).of(me);
        let into = large.reach(root, RECV, total)?.cast_mut();
        // SAFETY: the root holds `recv` for writing until all ranks have met again, or have left
        // the round if it gives up. Only this rank writes this part of it, and reads this part of
        // the root's `send` if that is the same memory.
        unsafe { reduction.fold_direct(&large, count, mine, into.add(mine.0 * size), &[])? };
        return large.arrive();
    }
    if round.one_address_space() {
        if me == root {
            // SAFETY: `recv`, on the root, has room for the elements, and is this rank's `send` or
            // apart from all inputs (contract of `arena`). No other rank folds, or reads any
            // `send`, and all ranks hold theirs until they have met again.
            unsafe { reduction.fold_direct(&large, count, (0, count), recv, &[])? };
        }
        return large.arrive();
    }
    // SAFETY: `send` holds the elements, on the root `recv` has room for them, and is the same or
    // apart (contract of `arena`). `large` was met just now: it exposes `send`, has the places that
    // the function asks for, and the first is filled.
    unsafe {
        match two {
            true => of_two(&large, reduction, step, root, send, recv),
            false => reduction.fold_staged(&large, step, Some(root), send, recv),
        }
    }
}

/// Shows segment `turn` of `send` to the root, of two ranks.
///
/// # Safety
/// As [`arena`]; the segment, of `step` elements, is one of `send`, and the places of `large` have
/// room for it.
unsafe fn fill(
    large: &LargeRound<'_, '_>,
    reduction: Reduction<'_>,
    step: usize,
    turn: usize,
    send: *const u8,
) {
    let (start, size) = (turn * step, reduction.size());
    let count = step.min(reduction.count - start);
    // SAFETY: a place has room for a segment, which lies within `send`.
    unsafe { copy_bytes(send.add(start * size), large.place(turn), count * size) };
}

/// The other process shows its input segment by segment, or where it is; the root folds.
///
/// # Safety
/// As [`arena`], of two ranks that have met, with places for `step` elements.
unsafe fn of_two(
    large: &LargeRound<'_, '_>,
    reduction: Reduction<'_>,
    step: usize,
    root: usize,
    send: *const u8,
    recv: *mut u8,
) -> Result<()> {
    let (me, size, total) = (large.round.rank(), reduction.size(), reduction.bytes());
    let other = 1 - root;
    let turns = reduction.count.div_ceil(step);
    if me != root {
        return large.produce(turns, std::iter::once(root), |turn| {
            // SAFETY: `send` holds the elements (contract of `arena`), segment `turn` is one of
            // theirs, and the places have room for it (this function's contract).
            unsafe { fill(large, reduction, step, turn, send) }
        });
    }
    large.consume(turns, std::iter::once(other), |turn| {
        let start = turn * step;
        let count = step.min(reduction.count - start);
        // SAFETY: the other has shown the segment, which lies within its input and this rank's;
        // `recv` has room for it, and is this rank's input exactly or apart from it.
        unsafe {
            let theirs =
                large.source(other, (start * size, total), || large.place_of(other, turn))?;
            let own = send.add(start * size);
            let input = |peer| if peer == me { own } else { theirs };
            reduction.fold(large.round, count, 2, recv.add(start * size), input)
        }
    })
}
