//! Faults: what stopped whom, in the order in which it happened.
//!
//! A fault is written where it belongs, by whom it belongs to, so that there is always a place for
//! it, and no rank can spoil what another one has said:
//!
//! | what | where | the place is used again |
//! | --- | --- | --- |
//! | a rank's process is gone | `Memory::death` of the rank, by the launcher | never |
//! | everything stops | the last of these | never |
//! | a rank has failed in a block | its `Memory::failure` of the block | three blocks later |
//! | a rank stops a block's own communicator | its page of that area | three blocks later |
//! | a rank stops another communicator | its page of that area | with the area |
//! | a rank ends a cycle of waits | its `Memory::verdict` | when these waits are over |
//!
//! **Who still needs it.** Only ranks that are in the block, or have the communicator, look for a
//! fault, and each keeps what it has found (`Scope::fault`). A rank enters a block when all that
//! live have ended the block before, and clears the places of the next one when it leaves: those of
//! the block before the last, from which all have returned, as they have entered the last
//! (`ending.rs`). It uses the area of a communicator again when each other member has dropped the
//! communicator, or has left its last round and says on its own page that it knows the fault, or is
//! dead (`contexts.rs`): a
//! member that is half a second late, or computes for an hour, holds one area, no more. A verdict
//! names waits, which their owners end (`deadlock.rs`). So a place that somebody may look for is
//! never cleared, and there is one for every fault: of a rank in a block, and of a rank in a
//! communicator, there is one that counts.
//!
//! **Order.** Each fault gets a number. The first that concerns a communicator is the cause that
//! all its ranks see. *Notices* say by the number whose fault it is, so that a rank looks at each
//! fault once, not at all ranks for each; the newest are kept, more than two a rank. Who has missed
//! more looks at all members once. A notice is a hint: it only counts with the place that it leads
//! to, and a process that spoils notices delays others, who then learn from each other's states
//! that somebody has ended.
//!
//! **A late writer.** Its number is taken before its fault can be read. A reader that meets such a
//! number waits for it for a moment, as it may be the first cause, then leaves it open
//! (`Scope::examined` stays before it): when the fault is complete, `ready` moves on, and all
//! look again.

mod notices;
mod place;
mod stops;
pub(super) mod told;

use super::contexts::{BLOCK_AREAS, area_of};
use super::layout::{FAULT_BYTES, FaultPlace};
use super::world::World;
use crate::fault::Fault;
use crate::sync::atomic::Ordering::*;
use notices::{EVERYBODY, announce};
use place::next_number;

/// Whom a fault stops, whoever raises it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultScope {
    /// Every communicator of this block that holds the rank. `block` 0: of every block.
    Rank { rank: usize, block: u32 },
    /// Every communicator.
    All,
}

impl World {
    /// Records a fault and wakes everybody.
    pub(crate) fn raise(&self, reach: FaultScope, fault: &Fault) {
        let memory = &self.memory;
        let (place, stops, by) = match reach {
            FaultScope::Rank { rank, block: 0 } => (memory.death(rank), 0, rank as u32),
            FaultScope::Rank { rank, block } => {
                (memory.failure(rank, block), block.into(), rank as u32)
            }
            FaultScope::All => (memory.death(self.size()), 0, EVERYBODY),
        };
        if self.record(place, stops, by, fault) {
            self.ring_all();
        }
    }

    /// Whether the fault was recorded: none was there.
    fn record(&self, place: &FaultPlace, stops: u64, by: u32, fault: &Fault) -> bool {
        let mut text = postcard::to_allocvec(fault).unwrap_or_default();
        if text.len() > FAULT_BYTES {
            text = postcard::to_allocvec(&fault.shortened(FAULT_BYTES / 2)).unwrap_or_default();
        }
        self.record_text(place, stops, by, &text, |_| {})
    }

    /// `known` is given its number before anybody is told of it.
    fn record_text(
        &self,
        place: &FaultPlace,
        stops: u64,
        by: u32,
        text: &[u8],
        known: impl FnOnce(u32),
    ) -> bool {
        let count = &self.memory.header().faults;
        let number = place.put(stops, text, || next_number(&count.claimed));
        let Some(number) = number else { return false };
        known(number);
        announce(self.memory.notice(number), number, by);
        count.ready.fetch_add(1, AcqRel);
        true
    }

    /// Moves on whenever a fault is complete.
    #[inline]
    pub(crate) fn faults_seen(&self) -> u32 {
        self.memory.header().faults.ready.load(Acquire)
    }

    /// The number of the last fault, which may not be complete.
    pub(super) fn faults_claimed(&self) -> u32 {
        self.memory.header().faults.claimed.load(Acquire)
    }

    /// What stops everything.
    pub(crate) fn fault_of_all(&self) -> Option<Fault> {
        self.read(self.memory.death(self.size())).map(|(_, _, fault)| fault)
    }

    /// How a rank has failed in a block.
    pub(crate) fn failure_of(&self, rank: usize, block: u32) -> Option<Fault> {
        let its = |(_, stops): (u32, u64)| stops == 0 || stops == u64::from(block);
        let places = [self.memory.death(rank), self.memory.failure(rank, block)];
        let places = places.into_iter().filter(|place| place.label().is_some_and(its));
        let first = places.filter_map(|place| self.read(place)).min_by_key(|(number, ..)| *number);
        first.map(|(_, _, fault)| fault)
    }

    /// All faults of ranks, and those that stop a block's own communicator, in their order, with
    /// the block that each stops, 0 for all. For reports: it looks at all ranks.
    pub(crate) fn faults(&self) -> Vec<(u32, Fault)> {
        let of_rank = |rank: usize| {
            let blocks = 0..BLOCK_AREAS as u32;
            let failures = blocks.clone().map(move |block| self.memory.failure(rank, block));
            let own = blocks.map(move |block| &self.memory.area(rank, area_of(block)).fault);
            failures.chain(own).chain([self.memory.death(rank)])
        };
        let places = (0..self.size()).flat_map(of_rank).chain([self.memory.death(self.size())]);
        let mut faults: Vec<_> = places.filter_map(|place| self.read(place)).collect();
        faults.sort_by_key(|(number, ..)| *number);
        faults.into_iter().map(|(_, stops, fault)| (stops as u32, fault)).collect()
    }

    /// A fault, its number, and what it stops.
    fn read(&self, place: &FaultPlace) -> Option<(u32, u64, Fault)> {
        let written = place.get()?;
        let fault: Fault = postcard::from_bytes(&written.text).ok()?;
        // Whoever wrote this may lie, not name a rank that there is not.
        let sound = fault.rank().is_none_or(|rank| rank < self.size());
        sound.then_some((written.number, written.stops, fault))
    }
}
