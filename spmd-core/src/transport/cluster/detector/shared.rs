//! What the thread of a detector and the ranks of its process share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::time::Duration;

use parking_lot::Mutex;

use super::super::peer_status::PeerStatus;
use super::net::Waker;
use super::observed::Observed;
use super::wire::DetectorMessage;

/// How often a detector looks at its ranks.
pub(super) const LOOK: Duration = Duration::from_millis(500);

/// What the thread and the ranks of its process share.
pub(super) struct DetectorShared {
    /// The ranks, as long as they are in a block.
    pub(super) ranks: Mutex<Option<Arc<dyn Observed>>>,
    /// The last block that they have entered, and the last that those of all processes have left.
    pub(super) entered: AtomicU64,
    pub(super) left: AtomicU64,
    /// What the ranks want to be said.
    pub(super) outbox: Mutex<Vec<DetectorMessage>>,
    /// How much of what they have wanted to be said has not been.
    pub(super) unsent: AtomicUsize,
    pub(super) waker: Waker,
    pub(super) known: PeerStatus,
    /// Nobody has need of the detector any more.
    pub(super) over: AtomicBool,
    /// All processes have begun the round that was asked for last.
    pub(super) all_begun: AtomicBool,
}
