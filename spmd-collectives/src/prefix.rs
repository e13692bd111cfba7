//! The algorithms of scan and exscan.
//!
//! The canonical fold over ranks `0..m` takes, for the bits of `m` from high to low, the total of
//! the next aligned block of as many ranks, and folds these totals from the right: for `m = 6`,
//! `T(0..4) op T(4..6)`; for `m = 7`, `T(0..4) op (T(4..6) op x₆)`. A block's total is the total
//! of its left half on the left of that of its right half. All algorithms here do just that.

use spmd_core::Result;
use spmd_core::internal::{Round, copy_bytes, move_bytes};

use crate::large::{CopyPath, LargeRound, RECV, SEND, checked, part};
use crate::reducing::Reduction;

/// A scan under way.
#[derive(Clone, Copy)]
pub(crate) struct Prefix<'o> {
    pub(crate) reduction: Reduction<'o>,
    /// Whether a rank's own input counts (scan) or not (exscan).
    pub(crate) own: bool,
    pub(crate) send: *const u8,
    /// May be `send`.
    pub(crate) recv: *mut u8,
}

impl Prefix<'_> {
    /// How many ranks' inputs this rank's result holds.
    fn ranks(&self, rank: usize) -> usize {
        rank + usize::from(self.own)
    }

    /// Bytes of what a rank with a part works out for `ranks` ranks, where all can read it.
    pub(crate) fn results(&self, ranks: usize) -> usize {
        ranks * self.reduction.parts(ranks).longest() * self.reduction.size()
    }

    /// Bytes of the payload that [`doubling`] needs: the totals of log₂ n blocks.
    pub(crate) fn doubling_bytes(ranks: usize, bytes: usize) -> Option<usize> {
        bytes.checked_mul(levels(ranks).max(1))
    }
}

/// Sizes of blocks, from 1 on, that have a neighbour among `ranks` ranks.
fn levels(ranks: usize) -> usize {
    ranks.next_power_of_two().ilog2() as usize
}

/// Everybody shows its input, meets, and folds those of the ranks before it. One step; up to n
/// reads of the data a rank.
///
/// # Safety
/// The prefix's buffers hold the reduction's elements; they are the same or apart.
pub(crate) unsafe fn flat(round: &Round<'_>, prefix: Prefix<'_>) -> Result<()> {
    let bytes = prefix.reduction.bytes();
    // SAFETY: the payload has that many bytes, and so has `send`.
    unsafe { copy_bytes(prefix.send, round.payload(bytes), bytes) };
    round.arrive(1)?;
    match prefix.ranks(round.rank()) {
        0 => Ok(()),
        // SAFETY: all have published; `recv` has room.
        ranks => unsafe { prefix.reduction.fold_payloads(round, ranks, prefix.send, prefix.recv) },
    }
}

/// Recursive doubling (Hillis and Steele 1986, over aligned blocks): at step k, ranks that differ
/// in bit k show each other the totals of their blocks of 2ᵏ ranks. A rank whose bit k is set puts
/// the other's total on the left of its result: its blocks are then those of the canonical fold
/// over its prefix, folded from the right. log₂ n steps; as many reads of the data a rank.
///
/// # Safety
/// As [`flat`]; the totals fit into a payload.
pub(crate) unsafe fn doubling(round: &Round<'_>, prefix: Prefix<'_>) -> Result<()> {
    let Prefix { reduction, own, send, recv } = prefix;
    let (me, n, bytes) = (round.rank(), round.size(), reduction.bytes());
    let steps = levels(n);
    let space = steps.max(1) * bytes;
    // SAFETY: a payload has a place for each of the steps.
    let total_of =
        |rank: usize, step: usize| unsafe { round.payload_of(rank, space).add(step * bytes) };
    let mut has_result = own;
    let mut copy = Vec::new();
    // SAFETY: the first place of the payload has that many bytes, and so have the buffers.
    unsafe {
        copy_bytes(send, round.payload(space), bytes);
        if own {
            move_bytes(send, recv, bytes);
        }
    }
    for step in 0..steps {
        let width = 1 << step;
        let partner = me ^ width;
        let right = me & width != 0;
        // Only a full block before others has a total that somebody needs.
        let goes_on = (me | (2 * width - 1)) + 1 < n;
        let stage = step as u32 + 1;
        if partner >= n {
            continue;
        }
        round.publish_to(stage, partner);
        if !right && !goes_on {
            continue;
        }
        round.wait_for(partner, stage)?;
        let theirs = total_of(partner, step);
        // SAFETY: the partner has published this place and does not write it again. Each place
        // of this rank's own payload is written once, before it is published, and the next ones
        // are not read by then. `recv` is this rank's own.
        unsafe {
            let theirs =
                checked(round, reduction.dtype, partner, theirs, reduction.count, &mut copy)?;
            let mine = total_of(me, step);
            if goes_on {
                let next = round.payload(space).add((step + 1) * bytes);
                let (left, right) = if right { (theirs, mine) } else { (mine, theirs) };
                round.operate(reduction.op, || {
                    reduction.op.fold(next, left, right, reduction.count)
                })?;
            }
            if right && has_result {
                round.operate(reduction.op, || {
                    reduction.op.fold(recv, theirs, recv, reduction.count)
                })?;
            } else if right {
                copy_bytes(theirs, recv, bytes);
                has_result = true;
            }
        }
    }
    // Everybody sees everybody's call, and may use the slot again.
    round.arrive(steps as u32 + 1)
}

/// Ranks work out all prefixes of a [part](Reduction::parts) each of the elements, then every rank
/// reads its own prefix of these parts. Three meetings, or two a segment where data go through
/// staging; two reads of the data a rank, and (log₂ n)/2 + 1 folds.
///
/// # Safety
/// As [`flat`]. In one address space `results` has, on ranks with a part, the bytes of
/// [`Prefix::results`], and it is nobody else's until the round is dropped.
pub(crate) unsafe fn chunked(
    round: &Round<'_>,
    segment: usize,
    prefix: Prefix<'_>,
    results: &mut [u8],
) -> Result<()> {
    let Prefix { reduction, send, recv, .. } = prefix;
    let (n, me, size) = (round.size(), round.rank(), reduction.size());
    let step = (segment / size).max(1).min(reduction.count.max(1));
    let (results, payload) = (results.as_mut_ptr(), results.len());
    let (input, output) = ((send, reduction.bytes()), (results.cast_const(), payload));
    let place = step * size + n * step.div_ceil(n) * size;
    // SAFETY: the buffers outlive the round; the algorithm reads as it meets.
    let large = unsafe {
        LargeRound::meet(round, reduction.dtype, input, output, CopyPath::Staged(place), |_| ())?
    };
    if round.one_address_space() {
        let parts = reduction.parts(n);
        let (first, len) = parts.of(me);
        let mut inputs = Vec::new();
        for peer in (0..n).filter(|_| len > 0) {
            // SAFETY: the part lies within the input, whose length `reach` has checked.
            inputs.push(unsafe { large.reach(peer, SEND, reduction.bytes())?.add(first * size) });
        }
        // SAFETY: nobody writes the inputs before the next meeting; the results have room.
        unsafe { prefix.all(round, len, &inputs, results)? };
        large.arrive()?;
        let own = Some((me, first, len)).filter(|_| len > 0);
        for (owner, start, len) in own.into_iter().chain(parts.others(me)) {
            let from = large.reach(owner, RECV, prefix.results(n))?;
            // SAFETY: the owner's results are complete, and `recv` is read by nobody any more.
            unsafe { prefix.take_own(&large, owner, from, recv.add(start * size), len)? };
        }
        return large.arrive();
    }
    for (turn, start) in (0..reduction.count).step_by(step).enumerate() {
        let count = step.min(reduction.count - start);
        let (first, len) = part(count, n, me);
        // SAFETY: the place has room for a segment of input and all ranks' prefixes of its part;
        // meetings order writing and reading.
        unsafe {
            copy_bytes(send.add(start * size), large.place(turn), count * size);
            large.arrive()?;
            let mut inputs = Vec::with_capacity(n);
            for peer in 0..n {
                inputs.push(large.place_of(peer, turn)?.add(first * size));
            }
            prefix.all(round, len, &inputs, large.place(turn).add(step * size))?;
            large.arrive()?;
            for peer in 0..n {
                let (first, len) = part(count, n, peer);
                let from = large.place_of(peer, turn)?.add(step * size);
                prefix.take_own(&large, peer, from, recv.add((start + first) * size), len)?;
            }
        }
    }
    large.arrive()
}

impl Prefix<'_> {
    /// Puts the prefixes of all ranks, of `len` elements each, behind one another into `out`.
    ///
    /// # Safety
    /// All `inputs` hold `len` elements that nobody who keeps the rules writes now; `out` has
    /// room for as many from each, apart from them, and nobody else touches it now.
    unsafe fn all(
        &self,
        round: &Round<'_>,
        len: usize,
        inputs: &[*const u8],
        out: *mut u8,
    ) -> Result<()> {
        let (op, bytes) = (self.reduction.op, len * self.reduction.size());
        // Totals of blocks of 1, 2, 4.. ranks; those of the bits of `ranks` are in use.
        let mut totals = vec![0u8; bytes * (levels(inputs.len()) + 1)];
        let totals = totals.as_mut_ptr();
        let mut copy = Vec::new();
        for (rank, input) in inputs.iter().enumerate() {
            // SAFETY: `out` has room for a result of each rank, `totals` for each size of block,
            // and they are apart from each other and from the inputs.
            unsafe {
                let result = out.add(rank * bytes);
                let total = |level: usize| totals.add(level * bytes);
                let input = checked(round, self.reduction.dtype, rank, *input, len, &mut copy)?;
                if !self.own && rank > 0 {
                    round.operate(self.reduction.op, || {
                        fold_totals(&self.reduction, rank, len, total, result)
                    })?;
                }
                // Adding one to a binary number: full blocks merge while there are two of a size.
                let level = rank.trailing_ones() as usize;
                round.operate(self.reduction.op, || {
                    copy_bytes(input, total(level), bytes);
                    for below in 0..level {
                        op.fold(total(level), total(below), total(level), len);
                    }
                    if self.own {
                        fold_totals(&self.reduction, rank + 1, len, total, result);
                    }
                })?;
            }
        }
        Ok(())
    }

    /// Copies this rank's prefix out of a peer's results of `len` elements a rank.
    ///
    /// # Safety
    /// `results` are what [`Prefix::all`] of the peer has written, and nobody who keeps the rules
    /// writes them now; `into`, this rank's own and apart from them, has room for `len`.
    unsafe fn take_own(
        &self,
        large: &LargeRound<'_, '_>,
        peer: usize,
        results: *const u8,
        into: *mut u8,
        len: usize,
    ) -> Result<()> {
        let me = large.round.rank();
        if self.ranks(me) == 0 {
            return Ok(());
        }
        // SAFETY: `results` holds `len` elements for each rank, this one among them, which nobody
        // who keeps the rules writes now; `into`, this rank's own and apart from them, has room for
        // `len` (this function's contract).
        unsafe { large.take(peer, results.add(me * len * self.reduction.size()), into, len) }
    }
}

/// Folds the totals of the blocks that make up ranks `0..ranks`, from the right, into `out`.
///
/// # Safety
/// `total(level)` holds `len` values for each bit of `ranks`, which is not 0, apart from `out`,
/// which has room for as many; nobody else touches any of them now.
unsafe fn fold_totals(
    reduction: &Reduction<'_>,
    ranks: usize,
    len: usize,
    total: impl Fn(usize) -> *mut u8,
    out: *mut u8,
) {
    let lowest = ranks.trailing_zeros() as usize;
    // SAFETY: the totals of the bits of `ranks`, which is not 0, hold `len` values each, `out` has
    // room for as many, apart from them, and nobody else touches any of them now (this function's
    // contract). A fold writes over its right input, which holds values since the copy.
    unsafe {
        copy_bytes(total(lowest), out, len * reduction.size());
        for level in (lowest + 1..usize::BITS as usize).filter(|bit| ranks >> bit & 1 == 1) {
            reduction.op.fold(out, total(level), out, len);
        }
    }
}
