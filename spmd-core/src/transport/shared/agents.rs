//! Waiting agents of a rank, on record for peers, for deadlock detection and for the launcher.
//!
//! An agent is a thread or coroutine that uses a communicator of the rank. Its record is written
//! when a wait has lasted some time, not before, so that calls that go well pay nothing.

use std::sync::atomic::{AtomicU32, Ordering::*};

use super::layout::AGENTS;

/// A wait on record: the world rank, the record, its epoch.
pub(super) type Wait = (usize, usize, u64);

/// Who besides the agents on record may use a communicator of a rank
/// ([`idle_agents`](super::layout::Head::idle_agents)).
pub(crate) mod idle {
    pub(crate) const NOBODY: u32 = 0;
    /// Ranks of this process and world.
    pub(crate) const RANKS: u32 = 1;
    pub(crate) const ANYBODY: u32 = 2;
}

/// Which of the records are in use, and who uses the rank's communicators besides its own agent.
pub(super) struct Agents {
    used: AtomicU32,
    /// Agents without a record, because too many wait at once, and started calls that are under way
    /// and have none.
    unrecorded: AtomicU32,
    /// Agents on record that wait on a communicator besides the block's own.
    on_extra: AtomicU32,
}

impl Agents {
    pub(super) fn new() -> Agents {
        Agents {
            used: AtomicU32::new(0),
            unrecorded: AtomicU32::new(0),
            on_extra: AtomicU32::new(0),
        }
    }

    pub(super) fn has_unrecorded(&self) -> bool {
        self.unrecorded.load(Relaxed) != 0
    }

    pub(super) fn on_extra(&self) -> usize {
        self.on_extra.load(Relaxed) as usize
    }

    pub(super) fn claim(&self, extra: bool) -> Option<usize> {
        let mut used = self.used.load(Relaxed);
        loop {
            let free = (!used).trailing_zeros() as usize;
            if free >= AGENTS {
                self.leave_off_record();
                return None;
            }
            match self.used.compare_exchange_weak(used, used | 1 << free, AcqRel, Relaxed) {
                Ok(_) => {
                    self.on_extra.fetch_add(u32::from(extra), Relaxed);
                    return Some(free);
                }
                Err(now) => used = now,
            }
        }
    }

    /// One waits that has no record, or goes on: what it waits for is not told.
    pub(super) fn leave_off_record(&self) {
        self.unrecorded.fetch_add(1, Relaxed);
    }

    /// One of these is on record now, or over.
    pub(super) fn is_told(&self) {
        self.unrecorded.fetch_sub(1, Relaxed);
    }

    pub(super) fn give_back(&self, slot: Option<usize>, extra: bool) {
        match slot {
            Some(slot) => {
                self.on_extra.fetch_sub(u32::from(extra), Relaxed);
                self.used.fetch_and(!(1 << slot), AcqRel);
            }
            None => self.is_told(),
        }
    }
}
