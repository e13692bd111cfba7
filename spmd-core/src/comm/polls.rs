//! The polls in vain of one communicator.

use std::cell::Cell;

/// The polls in vain of one communicator.
#[derive(Default)]
pub(super) struct Polling {
    pub(super) polls: Cell<u32>,
    /// Polls in vain since one found something, or others were let run.
    pub(super) in_a_row: Cell<u32>,
}
