//! The fault log of an arena: what stopped whom, in the order in which it happened.
//!
//! Any rank and the launcher append; the first entry that concerns a communicator is the cause
//! that all its ranks see. Entries are claimed by one `fetch_add` and never change once complete.

use std::sync::atomic::Ordering::*;

use super::World;
use super::layout::{FAULT_BYTES, FaultEntry};
use crate::fault::Fault;

/// Whom a fault stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Every communicator of this block that holds the rank. `block` 0: of every block.
    Rank { rank: usize, block: u32 },
    /// One communicator.
    Context(u64),
    /// Every communicator: the log is full.
    All,
}

/// What stands for [`Reach::All`] among the numbers of communicators.
const ALL: u64 = u64::MAX;

impl World {
    /// Appends a fault and wakes everybody. The fault that takes the last place of the log stops
    /// all communicators: later ones could not be told, and somebody would wait for ever.
    pub(crate) fn raise(&self, reach: Reach, fault: &Fault) {
        let count = &self.memory.header().faults;
        let last = self.memory.layout.faults() - 1;
        let index = count.claimed.fetch_add(1, AcqRel) as usize;
        if index > last {
            count.claimed.store(last as u32 + 1, Release);
            return;
        }
        let reach = if index == last { Reach::All } else { reach };
        let entry = self.memory.fault(index);
        entry.state.store(1, Relaxed);
        let mut bytes = postcard::to_allocvec(fault).unwrap_or_default();
        if bytes.len() > FAULT_BYTES {
            bytes = postcard::to_allocvec(&fault.shortened(FAULT_BYTES / 2)).unwrap_or_default();
        }
        for (cell, byte) in entry.text.iter().zip(&bytes) {
            cell.store(*byte, Relaxed);
        }
        entry.len.store(bytes.len() as u32, Relaxed);
        let (context, rank, block) = match reach {
            Reach::Rank { rank, block } => (0, rank as u32, block),
            Reach::Context(context) => (context, u32::MAX, 0),
            Reach::All => (ALL, u32::MAX, 0),
        };
        entry.context.store(context, Relaxed);
        entry.rank.store(rank, Relaxed);
        entry.block.store(block, Relaxed);
        entry.state.store(2, Release);
        count.ready.fetch_add(1, AcqRel);
        self.ring_all();
    }

    /// Moves on whenever a fault is complete.
    #[inline]
    pub(crate) fn faults_seen(&self) -> u32 {
        self.memory.header().faults.ready.load(Acquire)
    }

    /// The first fault for which `concerns` holds.
    pub(crate) fn first_fault(&self, concerns: impl Fn(Reach) -> bool) -> Option<Fault> {
        self.log().filter(|(reach, _)| concerns(*reach)).find_map(|(_, entry)| self.read(entry))
    }

    /// Whether this fault is in the log.
    pub(crate) fn has_recorded(&self, fault: &Fault) -> bool {
        self.faults().any(|recorded| recorded == *fault)
    }

    /// All faults.
    pub(crate) fn faults(&self) -> impl Iterator<Item = Fault> {
        self.log().filter_map(|(_, entry)| self.read(entry))
    }

    /// The complete entries of the log.
    fn log(&self) -> impl Iterator<Item = (Reach, &FaultEntry)> {
        let claimed = self.memory.header().faults.claimed.load(Acquire) as usize;
        let mut patience = 100_000;
        (0..claimed.min(self.memory.layout.faults())).filter_map(move |entry| {
            let entry = self.memory.fault(entry);
            // Its writer is between two stores; unless it died there, this is over at once.
            while entry.state.load(Acquire) != 2 && patience > 0 {
                patience -= 1;
                std::hint::spin_loop();
            }
            if entry.state.load(Acquire) != 2 {
                return None;
            }
            let reach = match entry.context.load(Relaxed) {
                0 => Reach::Rank {
                    rank: entry.rank.load(Relaxed) as usize,
                    block: entry.block.load(Relaxed),
                },
                ALL => Reach::All,
                context => Reach::Context(context),
            };
            Some((reach, entry))
        })
    }

    /// What an entry tells: nothing, where it is not what a rank of this world would write.
    fn read(&self, entry: &FaultEntry) -> Option<Fault> {
        let len = (entry.len.load(Relaxed) as usize).min(FAULT_BYTES);
        let bytes: Vec<u8> = entry.text[..len].iter().map(|b| b.load(Relaxed)).collect();
        let fault: Fault = postcard::from_bytes(&bytes).ok()?;
        fault.rank().is_none_or(|rank| rank < self.size()).then_some(fault)
    }
}
