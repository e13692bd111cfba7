//! What reductions share: folding what ranks have put into their payloads or into their staging
//! areas.

pub(crate) mod tree;

use spmd_core::internal::{Args, Call, CombiningCall, ErasedOp, Round, copy_bytes, fold_ranks};
use spmd_core::{Comm, DType, Result};

use crate::large::{CopyPath, LargeRound, Parts, SEND, checked, part};

/// Bytes that are folded before they are copied on.
const BLOCK: usize = 16 << 10;

/// A reduction of `count` elements of `dtype` with `op`.
#[derive(Clone, Copy)]
pub(crate) struct Reduction<'o> {
    pub(crate) dtype: &'o DType,
    pub(crate) op: &'o ErasedOp<'o>,
    pub(crate) count: usize,
}

impl<'o> Reduction<'o> {
    /// What is to be folded: all that a rank contributes.
    #[inline]
    pub(crate) fn of(args: &Args<'o>) -> Reduction<'o> {
        let op = args.op.expect("a reduction has an operation");
        Reduction { dtype: args.dtype, op, count: args.send.blocks.longest() }
    }

    /// The same of a block for each of so many ranks.
    pub(crate) fn of_blocks(args: &Args<'o>, ranks: usize) -> Reduction<'o> {
        Reduction { count: args.send.blocks.total(ranks), ..Reduction::of(args) }
    }
}

impl Reduction<'_> {
    pub(crate) fn size(&self) -> usize {
        self.dtype.size as usize
    }

    pub(crate) fn bytes(&self) -> usize {
        self.count * self.size()
    }

    /// Who folds what of data that can be read in place.
    pub(crate) fn parts(&self, ranks: usize) -> Parts {
        Parts::new(self.count, self.size(), ranks)
    }

    /// Folds the ranks' `send` in their combining barrier, into `recv` where that is not null: all
    /// meet once, the last of each worker folds for it, the last of all the rest.
    ///
    /// # Safety
    /// The combining barrier can fold it ([`Comm::folds_combining`]); `send` holds the elements,
    /// `recv` has room for them or is null.
    pub(crate) unsafe fn combined(
        &self,
        comm: &Comm,
        call: &Call<'_>,
        send: *const u8,
        recv: *mut u8,
    ) -> Result<()> {
        // SAFETY: `send` holds the elements, `recv` has room for them or is null, and the combining
        // barrier can fold them (this function's contract), which includes that any bytes are
        // values.
        let fold = |combining: &CombiningCall<'_>| unsafe {
            combining.reduce(self.op, self.size(), self.count, send, recv)
        };
        comm.internals().collective_combined(call, fold)
    }

    /// Folds the inputs of ranks `0..ranks` that lie in their payloads into `out`. This rank's own
    /// is read at `own`, not in its payload: a line that a peer has read may have gone to it.
    ///
    /// # Safety
    /// All these ranks have published their payloads of [`Reduction::bytes`]; `own` and `out` have
    /// as many, and are the same or apart.
    pub(crate) unsafe fn fold_payloads(
        &self,
        round: &Round<'_>,
        ranks: usize,
        own: *const u8,
        out: *mut u8,
    ) -> Result<()> {
        let me = round.rank();
        let input = |peer| if peer == me { own } else { round.payload_of(peer, self.bytes()) };
        // SAFETY: payloads hold what their owners published; `out` is this rank's own.
        unsafe { self.fold(round, self.count, ranks, out, input) }
    }

    /// Folds `count` elements each of ranks `0..ranks` into `out`, in canonical order.
    ///
    /// # Safety
    /// Each `input(rank)` holds `count` elements that nobody who keeps the rules writes now;
    /// `out` has room for them, is one of the inputs exactly or apart from them, and nobody else
    /// touches it now.
    pub(crate) unsafe fn fold(
        &self,
        round: &Round<'_>,
        count: usize,
        ranks: usize,
        out: *mut u8,
        input: impl Fn(usize) -> *const u8,
    ) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        let mut copies = Vec::new();
        if round.must_check(self.dtype) {
            for peer in 0..ranks {
                let mut scratch = Vec::new();
                // SAFETY: the input holds `count` elements that nobody who keeps the rules writes
                // now (this function's contract). What is seen stays valid: `scratch` is kept
                // beside it, and not changed.
                let seen =
                    unsafe { checked(round, self.dtype, peer, input(peer), count, &mut scratch)? };
                copies.push((scratch, seen));
            }
        }
        let mut input = |peer: usize| copies.get(peer).map_or_else(|| input(peer), |copy| copy.1);
        let mut scratch = Vec::new();
        // SAFETY: each input holds `count` elements that nobody who keeps the rules writes now;
        // `out` has room for them, is one of the inputs or apart from them, and nobody else touches
        // it (this function's contract). The inputs are values of the operation's type: those of
        // peers were checked where bytes may be none.
        round.operate(self.op, || unsafe {
            fold_ranks(self.op, self.size(), out, count, ranks, &mut input, &mut scratch);
        })
    }

    /// Folds `share` (start, count) of all ranks' send buffers, where they can be reached, into
    /// `out`, and copies that to `others`, block by block, while it is in the nearest cache.
    ///
    /// # Safety
    /// As [`Reduction::fold`]; the send buffers have `total` elements, the share among them. Each
    /// of `others` has room for the share, apart from `out` and from what the fold reads after the
    /// same element.
    pub(crate) unsafe fn fold_direct(
        &self,
        large: &LargeRound<'_, '_>,
        total: usize,
        share: (usize, usize),
        out: *mut u8,
        others: &[*mut u8],
    ) -> Result<()> {
        let (round, size) = (large.round, self.size());
        if share.1 == 0 {
            return Ok(());
        }
        let mut inputs = Vec::with_capacity(round.size());
        for peer in 0..round.size() {
            // SAFETY: the share lies within the buffer, whose length `reach` has checked.
            inputs.push(unsafe { large.reach(peer, SEND, total * size)?.add(share.0 * size) });
        }
        // SAFETY: each of `inputs` has the elements of the share, which nobody who keeps the rules
        // writes now; `out` and `others` have room for them, where `fold_and_copy` allows them to
        // be (this function's contract).
        unsafe { self.fold_and_copy(round, &inputs, share.1, out, others) }
    }

    /// Folds `count` elements of each of `inputs`, the ranks', into `out`, and copies that to
    /// `others`, block by block, while it is in the nearest cache.
    ///
    /// # Safety
    /// As [`Reduction::fold`]. Each of `others` has room for the elements, apart from `out` and
    /// from what the fold reads after the same element.
    unsafe fn fold_and_copy(
        &self,
        round: &Round<'_>,
        inputs: &[*const u8],
        count: usize,
        out: *mut u8,
        others: &[*mut u8],
    ) -> Result<()> {
        let size = self.size();
        let block = if others.is_empty() { count } else { (BLOCK / size).max(1) };
        for start in (0..count).step_by(block.max(1)) {
            let (len, offset) = (block.min(count - start), start * size);
            // SAFETY: the block lies within the elements, which inputs hold, and for which `out`
            // and `others` have room; `out` is an input or apart, `others` are apart from it, and
            // from all that is still to be read (this function's contract).
            unsafe {
                let input = |peer: usize| inputs[peer].add(offset);
                self.fold(round, len, inputs.len(), out.add(offset), input)?;
                for other in others {
                    copy_bytes(out.add(offset), other.add(offset), len * size);
                }
            }
        }
        Ok(())
    }

    /// Elements of a segment for [`Reduction::fold_staged`]. Data of more than 32 segments get
    /// longer ones, up to four times: where ranks outnumber cores, a meeting costs a switch
    /// between them; still longer ones would not stay in the cache.
    pub(crate) fn step(&self, segment: usize) -> usize {
        let bytes = (self.bytes() / 32).clamp(segment, segment.saturating_mul(4));
        (bytes / self.size()).max(1).min(self.count.max(1))
    }

    /// How data go for [`Reduction::fold_staged`] of so many ranks: the part of a segment that each
    /// of them folds.
    pub(crate) fn pieces(&self, step: usize, ranks: usize) -> CopyPath {
        CopyPath::Pieces(step.div_ceil(ranks) * self.size())
    }

    /// The start and length of segment `turn`.
    fn segment(&self, step: usize, turn: usize) -> (usize, usize) {
        (turn * step, step.min(self.count - turn * step))
    }

    /// Shows segment `turn` of `send`, all but the part that this rank folds.
    ///
    /// # Safety
    /// As [`Reduction::fold_staged`].
    pub(crate) unsafe fn fill(
        &self,
        large: &LargeRound<'_, '_>,
        step: usize,
        turn: usize,
        send: *const u8,
    ) {
        let ((start, count), size) = (self.segment(step, turn), self.size());
        let (n, me) = (large.round.size(), large.round.rank());
        for peer in (0..n).filter(|peer| *peer != me) {
            let (first, share) = part(count, n, peer);
            // SAFETY: the piece has room for the peer's part of the segment, which lies within
            // `send`. The peer has read what was here before.
            unsafe {
                let from = send.add((start + first) * size);
                copy_bytes(from, large.piece_for(peer, turn), share * size);
            }
        }
    }

    /// Folds segment by segment, of `step` elements, through the staging areas, every rank a part
    /// of each segment. In one turn a rank copies a segment to where the others see it, folds its
    /// part of the segment before, and takes the results of the one before that: one meeting a
    /// segment, and one more. Inputs that can be reached are not copied.
    ///
    /// The result goes to `root`, or to all if there is none: into `recv`, which is not used on
    /// other ranks.
    ///
    /// # Safety
    /// `send` holds the elements, and `large` exposes it; `recv` has room for them, and is `send`
    /// or apart from it. `large` has places of [`Reduction::pieces`], of which the
    /// first is filled.
    pub(crate) unsafe fn fold_staged(
        &self,
        large: &LargeRound<'_, '_>,
        step: usize,
        root: Option<usize>,
        send: *const u8,
        recv: *mut u8,
    ) -> Result<()> {
        let (round, size) = (large.round, self.size());
        let (n, me) = (round.size(), round.rank());
        let segments = self.count.div_ceil(step);
        let mut inputs = Vec::with_capacity(n);
        for turn in 1..segments + 2 {
            if turn < segments && large.staged {
                // SAFETY: `send` holds the elements, in which the segment lies, and `large` has
                // places of `pieces` (this function's contract). What was in this place three turns
                // ago, the others have taken before the last meeting.
                unsafe { self.fill(large, step, turn, send) };
            }
            if let Some(turn) = turn.checked_sub(1).filter(|turn| *turn < segments) {
                let (start, count) = self.segment(step, turn);
                let (first, share) = part(count, n, me);
                let offset = (start + first) * size;
                inputs.clear();
                // SAFETY: the others have shown the segment before the last meeting; nobody but
                // this rank reads its pieces, and their owners show other things there three turns
                // later. The result, which may lie where such a piece is, has room for the part;
                // what stays on this rank goes where it belongs at once: of `send`, which may be
                // the same memory, nobody else reads this part.
                unsafe {
                    for peer in 0..n {
                        inputs.push(match peer {
                            _ if peer == me => send.add(offset),
                            _ => {
                                let direct = (offset, self.bytes());
                                large.source(peer, direct, || large.piece_from(peer, turn))?
                            }
                        });
                    }
                    let place = large.result(turn);
                    match root {
                        None => {
                            let own = recv.add(offset);
                            self.fold_and_copy(round, &inputs, share, own, &[place])?;
                        }
                        Some(root) => {
                            let out = if root == me { recv.add(offset) } else { place };
                            self.fold_and_copy(round, &inputs, share, out, &[])?;
                        }
                    }
                }
            }
            if let Some(turn) = turn.checked_sub(2)
                && root.is_none_or(|root| root == me)
            {
                let (start, count) = self.segment(step, turn);
                for peer in (1..n).map(|step| (me + step) % n) {
                    let (first, share) = part(count, n, peer);
                    // SAFETY: the peer has folded its part before the last meeting. Of `recv`,
                    // which may be `send`, nobody reads this segment any more.
                    unsafe {
                        let into = recv.add((start + first) * size);
                        large.take(peer, large.result_of(peer, turn)?, into, share)?;
                    }
                }
            }
            large.arrive()?;
        }
        Ok(())
    }
}
