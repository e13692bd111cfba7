//! Folding what the ranks of a worker have put into their payloads.

use super::log::FEW;
use super::{CombiningBarrier, RankSlot};
use crate::op::ErasedOp;

impl RankSlot<'_> {
    /// The payload of the rank, of `bytes` (at most [`FEW`]).
    #[inline]
    pub(crate) fn payload(self, bytes: usize) -> *mut u8 {
        debug_assert!(bytes <= FEW);
        let payloads = &self.place.payloads;
        payloads.start().wrapping_add(payloads.place(self.rank - self.place.ranks.start) * bytes)
    }

    /// Folds the payloads of all ranks of the worker, `count` elements of `size` bytes each, into
    /// that of the worker's first rank.
    ///
    /// # Safety
    /// [`CombiningBarrier::has_trees`]; all these ranks have put `count` values of the operation's
    /// type into their payloads, and nobody else uses these meanwhile.
    #[inline]
    pub(crate) unsafe fn fold_tree(self, op: &ErasedOp<'_>, size: usize, count: usize) {
        let payloads = &self.place.payloads;
        let (start, mut half) = (payloads.start(), payloads.ranks / 2);
        while half > 0 {
            let right = start.wrapping_add(half * count * size);
            // SAFETY: the payloads of `2 * half` ranks lie side by side from the start; the lower
            // half of them are the left partners, and their places take the result.
            unsafe { op.fold(start, start, right, half * count) };
            half /= 2;
        }
    }
}

impl CombiningBarrier {
    /// Where the fold of a worker's payloads lies.
    pub(crate) fn folded_by(&self, worker: usize) -> *const u8 {
        self.places[worker].payloads.start()
    }

    /// Whether the ranks of each worker are a full tree of the canonical order over all ranks, all
    /// equally large: a power of two.
    #[inline]
    pub(crate) fn has_trees(&self) -> bool {
        let ranks = self.places[0].payloads.ranks;
        self.places[0].payloads.is_tree() && ranks * self.places.len() == self.worker_of.len()
    }
}
