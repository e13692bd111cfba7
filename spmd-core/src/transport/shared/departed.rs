//! What a rank has gone on without in its block, and whose messages are left.

use std::sync::Arc;

use crate::group::FIRST_CONTEXT;

/// A list of ranks, of which those of one process share one.
pub(super) type Ranks = Arc<[usize]>;

/// What a rank has gone on without in its block.
#[derive(Default)]
pub(super) struct Departed {
    /// World ranks that are not in a communicator that was shrunk, each once, in order.
    pub(super) ranks: Ranks,
    /// The newest communicator that was made by shrinking one that had lost something; 0 for none.
    pub(super) newest: u64,
    /// Its place on the areas.
    pub(super) area: usize,
    /// The block's own communicator is among those.
    pub(super) primary: bool,
    /// The least number of a communicator that the program can have made in the block.
    pub(super) first: u64,
}

/// The messages of one block, told by the numbers of their communicators.
pub(super) struct Messages {
    pub(super) block: u64,
    /// The least number of a communicator that was made in the block and not given up.
    pub(super) first: u64,
    /// The block's own communicator was not given up.
    pub(super) primary: bool,
}

impl Messages {
    pub(super) fn contain(&self, context: u64) -> bool {
        if context < FIRST_CONTEXT {
            context == self.block && self.primary
        } else {
            context >= self.first
        }
    }

    /// Whether this is the number of a later block. Communicators made in one have no messages for
    /// a rank that has not entered it.
    pub(super) fn are_later(&self, context: u64) -> bool {
        (self.block + 1..FIRST_CONTEXT).contains(&context)
    }
}
