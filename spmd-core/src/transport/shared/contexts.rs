//! Boards and numbers for new communicators.

use std::sync::atomic::{AtomicUsize, Ordering::*};

use super::layout::FAILURES;
use crate::group::{Account, FIRST_CONTEXT, Scope};

/// The first boards belong to the blocks themselves, in turn: the one of a block is cleared at the
/// end of the block before it, when some rank may still compare the calls of the one before that,
/// or ask how that has ended.
pub(crate) const BLOCK_BOARDS: usize = FAILURES;

/// The board of a block.
pub(crate) fn board_of(block: u32) -> usize {
    block as usize % BLOCK_BOARDS
}

/// Low bits of a communicator's number: its lowest world rank.
pub(crate) const RANK_BITS: u32 = 20;
/// From one base of numbers to the next: room for the rank, and above it for a board.
pub(crate) const CONTEXT_STEP: u64 = 1 << 30;

/// A board whose communicator is gone here while peers may still read it.
pub(crate) struct Retiring {
    pub(super) board: usize,
    /// With whether this rank has stopped it, which peers read on its page.
    pub(super) account: Account,
    pub(super) scope: Scope,
}

/// What a rank has to give to new communicators.
pub(crate) struct Contexts {
    /// Bit set: the board is free.
    pub(super) free: Vec<u64>,
    /// Bit set: the tracks of the communicator on this board are in use, or have been.
    pub(super) tracks: Vec<u64>,
    pub(super) retiring: Vec<Retiring>,
    pub(super) next: u64,
}

impl Contexts {
    pub(super) fn new(boards: usize) -> Contexts {
        let mut free = vec![u64::MAX; boards / 64];
        free[0] &= !((1 << BLOCK_BOARDS) - 1);
        let tracks = vec![0; boards / 64];
        Contexts { free, tracks, retiring: Vec::new(), next: FIRST_CONTEXT }
    }
}

/// Live communicators of this process besides the blocks' own.
pub(super) static EXTRA_COMMS: AtomicUsize = AtomicUsize::new(0);

/// How many communicators besides the blocks' own are alive in this process.
pub(crate) fn extra_comms() -> usize {
    EXTRA_COMMS.load(Relaxed)
}
