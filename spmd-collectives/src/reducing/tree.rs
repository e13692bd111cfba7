//! Folding up a binomial tree of ranks, and telling the end of it down.

use spmd_core::Result;
use spmd_core::internal::Round;

use super::Reduction;
use crate::large::checked;

impl Reduction<'_> {
    /// Folds up a tree in which the block of ranks `lo..hi` is accumulated by rank `hi - 1`, in
    /// whose payload the result lies: log₂ n steps. Rank n - 1 ends with the result of all. (Where
    /// ranks share a thread and run in order, nobody waits on the way up.)
    ///
    /// # Safety
    /// This rank's payload of [`Reduction::bytes`] holds its input, and it has not published yet.
    pub(crate) unsafe fn fold_up_tree(&self, round: &Round<'_>) -> Result<()> {
        let (me, n) = (round.rank(), round.size());
        let mine = round.payload(self.bytes());
        let mut width = 1;
        while width < n {
            let start = me / (2 * width) * (2 * width);
            let middle = start + width;
            let end = n.min(start + 2 * width);
            if middle < end && me == middle - 1 {
                break;
            }
            if middle < end && me == end - 1 {
                let left = middle - 1;
                round.wait_for(left, 1)?;
                let mut scratch = Vec::new();
                let from = round.payload_of(left, self.bytes());
                // SAFETY: the left peer has published its payload, and does not write it after.
                let from =
                    unsafe { checked(round, self.dtype, left, from, self.count, &mut scratch)? };
                // SAFETY: both payloads hold `count` values; `mine` is only this rank's to write.
                round.operate(self.op, || unsafe { self.op.fold(mine, from, mine, self.count) })?;
            }
            width *= 2;
        }
        match parent(me, n) {
            Some(parent) => round.publish_to(1, parent),
            None => round.publish_to_each(1, std::iter::empty()),
        }
        Ok(())
    }
}

/// The rank that waits for this one in [`Reduction::fold_up_tree`].
pub(crate) fn parent(me: usize, n: usize) -> Option<usize> {
    let mut width = 1;
    while width < n {
        let start = me / (2 * width) * (2 * width);
        let (middle, end) = (start + width, n.min(start + 2 * width));
        if middle < end && me == middle - 1 {
            return Some(end - 1);
        }
        width *= 2;
    }
    None
}

/// The ranks for which this one is [`parent`].
fn children(me: usize, n: usize) -> impl Iterator<Item = usize> {
    let widths = std::iter::successors(Some(1), |width| Some(width * 2));
    widths
        .take_while(move |width| *width < n)
        .take_while(move |width| {
            let start = me / (2 * width) * (2 * width);
            !(start + width < n && me == start + width - 1)
        })
        .filter_map(move |width| {
            let start = me / (2 * width) * (2 * width);
            let (middle, end) = (start + width, n.min(start + 2 * width));
            (middle < end && me == end - 1).then(|| middle - 1)
        })
}

/// After [`Reduction::fold_up_tree`]: tells everybody, down the same tree, that rank n - 1 is
/// done. log₂ n steps.
pub(crate) fn tell_down_tree(round: &Round<'_>) -> Result<()> {
    let (me, n) = (round.rank(), round.size());
    if let Some(parent) = parent(me, n) {
        round.wait_for(parent, 2)?;
    }
    round.publish_to_each(2, children(me, n));
    // SAFETY: rank n - 1 has reached stage 2 when all have published stage 1, up the tree, and
    // this rank has learnt of that stage, down the tree.
    unsafe { round.all_met() };
    Ok(())
}
