//! The algorithms of scatter and scatterv.

use std::ptr::null;

use spmd_core::internal::{
    Args, Blocks, Call, Collective, Kind, PAYLOAD, Round, SingleRank, copy_bytes,
};
use spmd_core::{Comm, DType, Result};

use crate::large::{CopyPath, LargeRound, SEND, take};
use crate::select::{Algorithm::*, choose};

pub(super) const SCATTER: Collective =
    Collective { kind: Kind::Scatter, single_rank: SingleRank::Copies, arena };
pub(super) const SCATTERV: Collective =
    Collective { kind: Kind::Scatterv, single_rank: SingleRank::Copies, arena };

/// A number that the root says where blocks differ: the elements of the longest.
const LONGEST: usize = 1;

/// What a rank must know of a scatter: where its block lies, how much there is.
#[derive(Clone, Copy)]
struct Share {
    start: usize,
    count: usize,
    /// Elements of all blocks.
    all: usize,
    /// Whether all blocks have the same length.
    equal: bool,
}

/// Where a rank's block goes, and what the root has told of it.
#[derive(Clone, Copy)]
struct Target {
    share: Share,
    ptr: *mut u8,
    /// Elements that there is room for.
    len: usize,
}

impl Target {
    /// Of equal blocks, each rank knows its own from its place; of others, the root has told each.
    fn of(comm: &Comm, args: &Args<'_>) -> Target {
        let (ptr, len) = (args.recv.ptr, args.recv.blocks.longest());
        let share = match args.incoming.first() {
            Some(block) => {
                Share { start: block.from, count: block.count, all: block.total, equal: false }
            }
            None => {
                let all = len.saturating_mul(comm.size());
                Share { start: comm.rank() * len, count: len, all, equal: true }
            }
        };
        Target { share, ptr, len }
    }

    /// Refuses a block of another length than this rank has room for.
    fn check(&self, round: &Round<'_>, root: usize) -> Result<()> {
        let (sends, takes) = (self.share.count, self.len);
        if sends == takes {
            return Ok(());
        }
        Err(round.disagree(&format!(
            "different counts: rank {root} of the communicator sends {sends} elements to rank {}, \
             which takes {takes}",
            round.rank()
        )))
    }
}

/// # Safety
/// As [`Arena`](spmd_core::args::Arena): on the root alone, `send` is a block for each rank; `recv`
/// is one, apart from `send`, on the root as long as its own there. Where lengths differ,
/// `incoming` is what the root has told, of a buffer of fewer bytes than there is memory; all ranks
/// but hostile ones give equal totals.
unsafe fn arena(comm: &Comm, call: &Call<'_>, args: &Args<'_>) -> Result<()> {
    let (kind, dtype, root) = (args.collective.kind, args.dtype, args.root);
    let from = args.send.is_some().then_some((args.send.blocks, args.send.ptr.cast_const()));
    let target = Target::of(comm, args);
    let bytes = target.share.all.saturating_mul(dtype.size as usize);
    let fits = bytes <= PAYLOAD;
    let default = match comm.size() {
        _ if !fits => Chunked,
        ranks if ranks <= comm.internals().one_way_limit() => Flat,
        _ => Tree,
    };
    let choice = choose(comm, kind, bytes, default, |it| fits || it == Chunked);
    comm.internals().collective(call, |round| {
        // SAFETY: on the root `from` holds a block for each rank; `target`, apart from it, has room
        // for one; nobody else touches them during the call; and `incoming` is what the root has
        // told (this function's contract). `small` is chosen only where all blocks fit into a
        // payload.
        unsafe {
            match choice {
                Flat => small(round, dtype, root, from, target, false),
                Tree => small(round, dtype, root, from, target, true),
                _ => chunked(round, comm.internals().segment(), dtype, root, from, target),
            }
        }
    })
}

/// The root puts its own block where it belongs.
///
/// # Safety
/// As [`arena`], on the root.
unsafe fn keep_own(
    dtype: &DType,
    root: usize,
    (blocks, from): (Blocks<'_>, *const u8),
    target: Target,
) {
    let size = dtype.size as usize;
    let (start, count) = blocks.of(root);
    debug_assert_eq!(count, target.len);
    // SAFETY: `from` holds the root's block, among all, and `target`, apart from it, has room for
    // one as long (contract of `arena`, on the root).
    unsafe { copy_bytes(from.add(start * size), target.ptr, count * size) };
}

/// The root shows all blocks and goes on (`meet`: after all have met over a tree); each of the
/// others reads its own. One step, or 2 log₄ n; one copy of all data and one of a block a rank.
///
/// # Safety
/// As [`arena`]; all data fit into a payload.
unsafe fn small(
    round: &Round<'_>,
    dtype: &DType,
    root: usize,
    from: Option<(Blocks<'_>, *const u8)>,
    target: Target,
    meet: bool,
) -> Result<()> {
    let (size, share) = (dtype.size as usize, target.share);
    let bytes = share.all * size;
    if let Some((blocks, from)) = from {
        // SAFETY: the payload has that many bytes, and so has `from`.
        unsafe {
            copy_bytes(from, round.payload(bytes), bytes);
            keep_own(dtype, root, (blocks, from), target);
        }
        if meet {
            return round.arrive(1);
        }
        round.publish(1);
        return Ok(());
    }
    if meet {
        round.arrive(1)?;
    } else {
        round.publish_to(1, root);
        round.wait_for(root, 1)?;
    }
    target.check(round, root)?;
    // SAFETY: the root has published its payload, in which the share lies; there is room for it.
    unsafe {
        let from = round.payload_of(root, bytes).add(share.start * size);
        take(round, dtype, root, from, target.ptr, share.count)
    }
}

/// Everybody reads its block of the root's data. Two meetings, or one and a step a segment where
/// data go through staging: a segment then holds a part for each rank.
///
/// # Safety
/// As [`arena`].
unsafe fn chunked(
    round: &Round<'_>,
    segment: usize,
    dtype: &DType,
    root: usize,
    from: Option<(Blocks<'_>, *const u8)>,
    target: Target,
) -> Result<()> {
    let (n, me, size) = (round.size(), round.rank(), dtype.size as usize);
    let share = target.share;
    let step = (segment / size / n).max(1);
    if let Some(from) = from {
        // SAFETY: `from` is there on the root alone, and holds a block for each rank; `target`,
        // apart from it, has room for one as long as the root's (contract of `arena`).
        unsafe { keep_own(dtype, root, from, target) };
    }
    let shown = from.map_or((null(), 0), |(_, from)| (from, share.all * size));
    let fill = |large: &LargeRound<'_, '_>, turn: usize| {
        let Some((blocks, from)) = from else { return };
        for peer in (0..n).filter(|peer| *peer != root) {
            let (first, count) = blocks.of(peer);
            let len = step.min(count.saturating_sub(turn * step));
            // SAFETY: a place has room for a part for each rank, of `step` elements; what is
            // copied lies within the rank's block.
            unsafe {
                let place = large.place(turn).add(peer * step * size);
                let from = from.wrapping_add((first + turn * step) * size);
                copy_bytes(from, place, len * size);
            }
        }
    };
    if let (false, Some((blocks, _))) = (share.equal, from) {
        round.set_number(LONGEST, blocks.longest() as u64);
    }
    // SAFETY: the buffer is the caller's, which nobody writes until the last meeting, before
    // which the others have read it.
    let large = unsafe {
        let place = CopyPath::From { rank: root, place: n * step * size, show: true };
        LargeRound::meet(round, dtype, shown, (null(), 0), place, |large| fill(large, 0))?
    };
    if me != root {
        target.check(round, root)?;
    }
    if large.direct {
        if me != root {
            // SAFETY: `reach` has seen that the root shows all blocks, in which the share lies;
            // there is room for it.
            unsafe {
                let from = large.reach(root, SEND, share.all * size)?.add(share.start * size);
                large.take(root, from, target.ptr, share.count)?;
            }
        }
        return large.arrive();
    }
    let longest = match share.equal {
        true => share.count,
        false => round.number_of(root, LONGEST) as usize,
    };
    if share.count > longest || longest > share.all {
        return Err(round.lied(root));
    }
    let turns = longest.div_ceil(step);
    if me == root {
        let readers = (0..n).filter(|peer| *peer != root);
        return large.produce(turns, readers, |turn| fill(&large, turn));
    }
    large.consume(turns, std::iter::once(root), |turn| {
        let start = turn * step;
        if start >= share.count {
            return Ok(());
        }
        // SAFETY: the root has shown the segment, whose place has room for a part for each rank,
        // and this lies within the block.
        unsafe {
            let from = large.place_of(root, turn)?.add(me * step * size);
            let place = target.ptr.add(start * size);
            large.take(root, from, place, step.min(share.count - start))
        }
    })
}
