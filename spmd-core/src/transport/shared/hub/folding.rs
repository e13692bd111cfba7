//! Folding what the ranks of a worker have put into their rooms.

use super::log::FEW;
use super::{Hub, Seat};
use crate::op::ErasedOp;

impl Seat<'_> {
    /// The room of the rank, of `bytes` (at most [`FEW`]).
    #[inline]
    pub(crate) fn room(self, bytes: usize) -> *mut u8 {
        debug_assert!(bytes <= FEW);
        let rooms = &self.place.rooms;
        rooms.start().wrapping_add(rooms.place(self.rank - self.place.ranks.start) * bytes)
    }

    /// Folds the rooms of all ranks of the worker, `count` elements of `size` bytes each, into that
    /// of the worker's first rank.
    ///
    /// # Safety
    /// [`Hub::has_trees`]; all these ranks have put `count` values of the operation's type into
    /// their rooms, and nobody else uses these meanwhile.
    #[inline]
    pub(crate) unsafe fn fold_tree(self, op: ErasedOp<'_>, size: usize, count: usize) {
        let rooms = &self.place.rooms;
        let (start, mut half) = (rooms.start(), rooms.ranks / 2);
        while half > 0 {
            let right = start.wrapping_add(half * count * size);
            // SAFETY: the rooms of `2 * half` ranks lie side by side from the start; the lower half
            // of them are the left partners, and their places take the result.
            unsafe { op.fold(start, start, right, half * count) };
            half /= 2;
        }
    }
}

impl Hub {
    /// Where the fold of a worker's rooms lies.
    pub(crate) fn folded_by(&self, worker: usize) -> *const u8 {
        self.places[worker].rooms.start()
    }

    /// Whether the ranks of each worker are a full tree of the canonical order over all ranks, all
    /// equally large: a power of two.
    #[inline]
    pub(crate) fn has_trees(&self) -> bool {
        let ranks = self.places[0].rooms.ranks;
        self.places[0].rooms.is_tree() && ranks * self.places.len() == self.worker_of.len()
    }
}
