//! What a failure detector has heard of the other processes, for the ranks of its own.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// How long the failure detector has to miss a process that the library misses.
pub(super) const NOTICE: Duration = Duration::from_secs(5);

/// An agreement: the block, the communicator, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct AgreementKey {
    pub(super) block: u64,
    pub(super) context: u64,
    pub(super) number: u64,
}

/// What a failure detector has heard of the other processes, for the ranks of its own.
pub(super) struct PeerStatus {
    dead: Box<[AtomicBool]>,
    /// The last block that the ranks of each process have left.
    left: Box<[AtomicU64]>,
    ready: Mutex<BTreeSet<(AgreementKey, usize)>>,
}

impl PeerStatus {
    pub(super) fn new(processes: usize) -> PeerStatus {
        let dead = (0..processes).map(|_| AtomicBool::new(false)).collect();
        let left = (0..processes).map(|_| AtomicU64::new(0)).collect();
        PeerStatus { dead, left, ready: Mutex::default() }
    }

    /// How many there are.
    pub(super) fn processes(&self) -> usize {
        self.dead.len()
    }

    pub(super) fn is_dead(&self, process: usize) -> bool {
        self.dead[process].load(Acquire)
    }

    pub(super) fn dies(&self, process: usize) {
        self.dead[process].store(true, Release);
    }

    pub(super) fn has_left(&self, process: usize, block: u64) -> bool {
        self.left[process].load(Acquire) >= block
    }

    pub(super) fn leaves(&self, process: usize, block: u64) {
        self.left[process].store(block, Release);
    }

    pub(super) fn arrives(&self, process: usize, meeting: AgreementKey) {
        self.ready.lock().insert((meeting, process));
    }

    /// Whether a process is at a meeting, or will not come.
    pub(super) fn has_arrived(&self, process: usize, meeting: AgreementKey) -> bool {
        self.ready.lock().contains(&(meeting, process)) || self.is_dead(process)
    }

    /// A meeting is over, and with it all before it.
    pub(super) fn forget(&self, meeting: AgreementKey) {
        let past = |at: &AgreementKey| {
            at.block < meeting.block
                || (at.context == meeting.context && at.number <= meeting.number)
        };
        self.ready.lock().retain(|(at, _)| !past(at));
    }
}
