//! Areas and numbers for new communicators.

use std::sync::atomic::{AtomicUsize, Ordering::*};

use super::layout::FAILURES;
use crate::group::{CommRecord, FIRST_CONTEXT, Scope};

/// The first areas belong to the blocks themselves, in turn: the one of a block is cleared at the
/// end of the block before it, when some rank may still compare the calls of the one before that,
/// or ask how that has ended.
pub(crate) const BLOCK_AREAS: usize = FAILURES;

/// The area of a block.
pub(crate) fn area_of(block: u32) -> usize {
    block as usize % BLOCK_AREAS
}

/// Low bits of a communicator's number: its lowest world rank.
pub(crate) const RANK_BITS: u32 = 20;
/// From one base of numbers to the next: room for the rank, and above it for an area.
pub(crate) const CONTEXT_STEP: u64 = 1 << 30;

/// An area whose communicator is gone here while peers may still read it.
pub(crate) struct Retiring {
    pub(super) area: usize,
    /// With whether this rank has stopped it, which peers read on its page.
    pub(super) account: CommRecord,
    pub(super) scope: Scope,
}

/// What a rank has to give to new communicators.
pub(crate) struct Contexts {
    /// Bit set: the area is free.
    pub(super) free: Vec<u64>,
    /// Bit set: the tracks of the communicator on this area are in use, or have been.
    pub(super) tracks: Vec<u64>,
    pub(super) retiring: Vec<Retiring>,
    pub(super) next: u64,
}

impl Contexts {
    pub(super) fn new(areas: usize) -> Contexts {
        let mut free = vec![u64::MAX; areas / 64];
        free[0] &= !((1 << BLOCK_AREAS) - 1);
        let tracks = vec![0; areas / 64];
        Contexts { free, tracks, retiring: Vec::new(), next: FIRST_CONTEXT }
    }
}

/// Live communicators of this process besides the blocks' own.
pub(super) static EXTRA_COMMS: AtomicUsize = AtomicUsize::new(0);

/// How many communicators besides the blocks' own are alive in this process.
pub(crate) fn extra_comms() -> usize {
    EXTRA_COMMS.load(Relaxed)
}
