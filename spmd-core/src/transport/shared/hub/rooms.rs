//! Where the ranks of one worker put small inputs of a reduction: side by side, so that the last
//! to arrive folds many at once.
//!
//! Where their number is a power of two they are a full tree of the canonical order, and lie in
//! bit-reversed order: the left partners of a level are then one array, the right ones another, and
//! log₂ n vector folds do what n − 1 single ones did.

use std::cell::UnsafeCell;

use super::{FEW, Hub, Line, Seat};
use crate::op::ErasedOp;

/// The rooms of one worker's ranks.
pub(super) struct Rooms {
    lines: Box<[Line<UnsafeCell<[u8; LINE]>>]>,
    ranks: usize,
}

const LINE: usize = align_of::<Line<()>>();

// SAFETY: what lies in it is reached by raw pointers alone; who may use it when, and on which
// thread, is part of the contracts of those who hand them out.
unsafe impl Sync for Rooms {}

impl Rooms {
    pub(super) fn new(ranks: usize) -> Rooms {
        let line = |_| Line(UnsafeCell::new([0; LINE]));
        Rooms { lines: (0..(ranks * FEW).div_ceil(LINE)).map(line).collect(), ranks }
    }

    fn start(&self) -> *mut u8 {
        // All lines through one pointer to the whole.
        self.lines.as_ptr().cast_mut().cast()
    }

    fn is_tree(&self) -> bool {
        self.ranks.is_power_of_two()
    }

    #[inline]
    fn place(&self, index: usize) -> usize {
        match self.ranks {
            1 => 0,
            n if n.is_power_of_two() => index.reverse_bits() >> (usize::BITS - n.ilog2()),
            _ => index,
        }
    }
}

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
