//! Where the ranks of one worker put small inputs of a reduction: side by side, so that the last
//! to arrive folds many at once.
//!
//! Where their number is a power of two they are a full tree of the canonical order, and lie in
//! bit-reversed order: the left partners of a level are then one array, the right ones another, and
//! log₂ n vector folds do what n − 1 single ones did.

use std::cell::UnsafeCell;

use crossbeam_utils::CachePadded;

use super::log::FEW;

/// The payloads of one worker's ranks.
pub(super) struct Payloads {
    lines: Box<[CachePadded<UnsafeCell<[u8; LINE]>>]>,
    pub(super) ranks: usize,
}

const LINE: usize = align_of::<CachePadded<()>>();

// SAFETY: what lies in it is reached by raw pointers alone; who may use it when, and on which
// thread, is part of the contracts of those who hand them out.
unsafe impl Sync for Payloads {}

impl Payloads {
    pub(super) fn new(ranks: usize) -> Payloads {
        let line = |_| CachePadded::new(UnsafeCell::new([0; LINE]));
        Payloads { lines: (0..(ranks * FEW).div_ceil(LINE)).map(line).collect(), ranks }
    }

    pub(super) fn start(&self) -> *mut u8 {
        // All lines through one pointer to the whole.
        self.lines.as_ptr().cast_mut().cast()
    }

    pub(super) fn is_tree(&self) -> bool {
        self.ranks.is_power_of_two()
    }

    #[inline]
    pub(super) fn place(&self, index: usize) -> usize {
        match self.ranks {
            1 => 0,
            n if n.is_power_of_two() => index.reverse_bits() >> (usize::BITS - n.ilog2()),
            _ => index,
        }
    }
}
