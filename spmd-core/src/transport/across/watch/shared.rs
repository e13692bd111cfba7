//! What the thread of a watch and the ranks of its process share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use parking_lot::Mutex;

use super::super::known::Known;
use super::net::Waker;
use super::watched::Watched;
use super::wire::Word;

/// How often a watch looks at its ranks.
pub(super) const LOOK: Duration = Duration::from_millis(500);

/// What the thread and the ranks of its process share.
pub(super) struct Shared {
    /// The ranks, as long as they are in a block.
    pub(super) ranks: Mutex<Option<Arc<dyn Watched>>>,
    /// The last block that they have entered, and the last that those of all processes have left.
    pub(super) entered: AtomicU64,
    pub(super) left: AtomicU64,
    /// What the ranks want to be said.
    pub(super) outbox: Mutex<Vec<Word>>,
    pub(super) waker: Waker,
    pub(super) known: Known,
    /// Nobody has need of the watch any more.
    pub(super) over: AtomicBool,
}
