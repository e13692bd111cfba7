//! The algorithms of allreduce.

use spmd_core::internal::{Args, Call, Collective, Kind, PAYLOAD, Round, SingleRank, copy_bytes};
use spmd_core::{Comm, Result};

use crate::data::zeros;
use crate::large::{LargeRound, RECV};
use crate::reducing::Reduction;
use crate::reducing::tree::tell_down_tree;
use crate::select::{Algorithm, Algorithm::*, choose};

/// Bytes of all ranks up to which one of them folds alone: the others may have workers of their
/// own.
const CENTRAL: usize = 32 << 10;

pub(super) const ALLREDUCE: Collective =
    Collective { kind: Kind::Allreduce, single_rank: SingleRank::Copies, arena };

/// How so many elements are folded: all ranks choose alike.
pub(super) fn choice(comm: &Comm, reduction: &Reduction<'_>) -> Algorithm {
    let fits = reduction.bytes() <= PAYLOAD;
    let central = fits && comm.internals().has_combining();
    let combining = central && comm.internals().folds_combining(reduction.bytes(), reduction.dtype);
    let default = if combining {
        Combining
    } else if !fits {
        Chunked
    } else if central && reduction.bytes() * comm.size() <= CENTRAL {
        Central
    } else if comm.size() <= comm.internals().flat_limit() {
        Flat
    } else {
        Tree
    };
    choose(comm, Kind::Allreduce, reduction.bytes(), default, |it| match it {
        Central => central,
        Combining => combining,
        _ => fits || it == Chunked,
    })
}

/// # Safety
/// As [`Arena`](spmd_core::args::Arena): `send` and `recv` are one block, of one length, the
/// same or apart.
unsafe fn arena(comm: &Comm, call: &Call<'_>, args: &Args<'_>) -> Result<()> {
    let reduction = Reduction::of(args);
    let (send, recv) = (args.send.ptr.cast_const(), args.recv.ptr);
    let choice = choice(comm, &reduction);
    if choice == Combining {
        // SAFETY: `send` holds the elements, and `recv` has room for them (this function's
        // contract); `folds_combining` has said that the combining barrier can fold them.
        return unsafe { reduction.combined(comm, call, send, recv) };
    }
    // What a rank folds of a type that must be checked, for the others to read. Not in the body: a
    // round that fails ends only when nobody reads any more, which is after the body has.
    let chunked_closed =
        !matches!(choice, Flat | Tree | Central) && comm.internals().closes(reduction.dtype);
    let mut folded = match chunked_closed {
        true => Some(zeros(reduction.parts(comm.size()).of(comm.rank()).1 * reduction.size())?),
        false => None,
    };
    comm.internals().collective(call, |round| {
        // SAFETY: `send` holds the elements, `recv` has room for them, and is the same or apart,
        // and nobody else touches them during the call (this function's contract). All but
        // `chunked` are chosen only where they fit into a payload, `central_fold` where there is a
        // combining barrier. `folded` is what `chunked` asks for, and outlives the round.
        unsafe {
            match choice {
                Flat => flat(round, reduction, send, recv),
                Tree => tree(round, reduction, send, recv),
                Central => central_fold(round, reduction, send, recv),
                _ => chunked(
                    round,
                    comm.internals().segment(),
                    reduction,
                    send,
                    recv,
                    folded.as_deref_mut(),
                ),
            }
        }
    })
}

/// Everybody shows its input, meets, and folds all of them. One step; n − 1 reads of the data a
/// rank.
///
/// # Safety
/// As [`arena`].
unsafe fn flat(
    round: &Round<'_>,
    reduction: Reduction<'_>,
    send: *const u8,
    recv: *mut u8,
) -> Result<()> {
    let bytes = reduction.bytes();
    // SAFETY: the payload has that many bytes, and so has `send`.
    unsafe { copy_bytes(send, round.payload(bytes), bytes) };
    round.arrive(1)?;
    // SAFETY: all have published; `recv` has room.
    unsafe { reduction.fold_payloads(round, round.size(), send, recv) }
}

/// Everybody shows its input; the last to arrive folds all of them before the others go on. One
/// step; n reads of the data on one rank, one on the others.
///
/// # Safety
/// As [`arena`], where the ranks have a combining barrier.
unsafe fn central_fold(
    round: &Round<'_>,
    reduction: Reduction<'_>,
    send: *const u8,
    recv: *mut u8,
) -> Result<()> {
    let bytes = reduction.bytes();
    let payload = round.payload(bytes);
    // SAFETY: the payload has that many bytes, and so has `send`; `recv` has room. While one rank
    // works, the others wait in the meeting. Its payload is the result after that, which it does
    // not write again before all have left this round.
    unsafe {
        copy_bytes(send, payload, bytes);
        let last =
            round.arrive_and(1, || reduction.fold_payloads(round, round.size(), send, payload))?;
        crate::large::take(
            round,
            reduction.dtype,
            last,
            round.payload_of(last, bytes),
            recv,
            reduction.count,
        )
    }
}

/// Folds up a binomial tree, then tells the result down it. 2 log₂ n steps; two reads of the data
/// a rank.
///
/// # Safety
/// As [`arena`].
unsafe fn tree(
    round: &Round<'_>,
    reduction: Reduction<'_>,
    send: *const u8,
    recv: *mut u8,
) -> Result<()> {
    let (bytes, last) = (reduction.bytes(), round.size() - 1);
    // SAFETY: the payload has that many bytes, and so has `send`; the fold is over when everybody
    // has been told, and the last rank's payload is written no more.
    unsafe {
        copy_bytes(send, round.payload(bytes), bytes);
        reduction.fold_up_tree(round)?;
        tell_down_tree(round)?;
        let from = round.payload_of(last, bytes);
        crate::large::take(round, reduction.dtype, last, from, recv, reduction.count)
    }
}

/// Ranks fold a [part](Reduction::parts) each of all inputs, and writes it into all results, or
/// where that cannot be, reads the parts of the others (Rabenseifner's reduce-scatter and
/// allgather, over shared memory). Two meetings, or one a segment and three more where data go
/// through staging; 2 (n − 1)/n reads or writes of the data a rank.
///
/// # Safety
/// As [`arena`]. `folded` is there if the communicator [closes](Comm::closes) results of this
/// type; it has room for this rank's part, and is nobody else's until the round is dropped.
unsafe fn chunked(
    round: &Round<'_>,
    segment: usize,
    reduction: Reduction<'_>,
    send: *const u8,
    recv: *mut u8,
    folded: Option<&mut [u8]>,
) -> Result<()> {
    let (n, me, size) = (round.size(), round.rank(), reduction.size());
    let total = reduction.bytes();
    let step = reduction.step(segment);
    let parts = reduction.parts(n);
    let mine = parts.of(me);
    let folded = folded.map(|folded| (folded.as_mut_ptr(), folded.len()));
    let shown = folded.map_or((recv.cast_const(), total), |(ptr, len)| (ptr.cast_const(), len));
    // SAFETY: the buffers are the caller's, which outlive the round; the algorithm reads as it
    // meets.
    let large = unsafe {
        let first = |large: &LargeRound<'_, '_>| reduction.fill(large, step, 0, send);
        let path = reduction.pieces(step, n);
        LargeRound::meet(round, reduction.dtype, (send, total), shown, path, first)?
    };
    if large.pushes() {
        let mut others = Vec::new();
        for peer in (1..n).filter(|_| mine.1 > 0).map(|step| (me + step) % n) {
            // SAFETY: the part lies within the peer's buffer, whose length `reach` has checked.
            others.push(unsafe { large.reach(peer, RECV, total)?.cast_mut().add(mine.0 * size) });
        }
        // SAFETY: the peers hold their `recv` for writing until all ranks have met again, or have
        // left the round if they give up. Only this rank writes this part of them, and reads this
        // part of any `send` if that is the same memory: an element of it before the fold is
        // copied on.
        unsafe {
            let into = recv.add(mine.0 * size);
            reduction.fold_direct(&large, reduction.count, mine, into, &others)?;
        }
        return large.arrive();
    }
    if large.direct {
        // SAFETY: nobody else writes this part of `recv`, or reads this part of its `send` if
        // that is the same memory; all parts lie within the buffers, and `folded` is one.
        unsafe {
            let own = recv.add(mine.0 * size);
            let into = folded.map_or(own, |(ptr, _)| ptr);
            reduction.fold_direct(&large, reduction.count, mine, into, &[])?;
            large.arrive()?;
            if let Some((ptr, len)) = folded {
                copy_bytes(ptr, own, len);
            }
            for (peer, start, count) in parts.others(me) {
                let from = match folded.is_some() {
                    true => large.reach(peer, RECV, count * size)?,
                    false => large.reach(peer, RECV, total)?.add(start * size),
                };
                large.take(peer, from, recv.add(start * size), count)?;
            }
        }
        return large.arrive();
    }
    // SAFETY: `send` holds the elements, `recv` has room for them, and is the same or apart
    // (contract of `arena`). `large` was met just now: it exposes `send`, has places of `pieces`,
    // and the first is filled.
    unsafe { reduction.fold_staged(&large, step, None, send, recv) }
}
