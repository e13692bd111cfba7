//! Areas of a rank: taken for a communicator, cleared, and free again.

use std::sync::atomic::Ordering::*;

use super::collective::CollectiveArea;
use super::contexts::{Contexts, EXTRA_COMMS, Retiring, area_of};
use super::endpoint::Endpoint;
use crate::group::{CommRecord, Scope, TRACKS};

impl Endpoint {
    /// The rank has one more communicator besides its block's own.
    pub(crate) fn opens_comm(&self) {
        self.extra_comms.fetch_add(1, Relaxed);
        EXTRA_COMMS.fetch_add(1, Relaxed);
    }

    /// The rank has dropped one of those.
    pub(crate) fn closes_comm(&self) {
        self.extra_comms.fetch_sub(1, Relaxed);
        EXTRA_COMMS.fetch_sub(1, Relaxed);
    }

    /// Areas that this rank could use for a new communicator, as a bit mask.
    pub(crate) fn free_areas(&self) -> Vec<u64> {
        let mut contexts = self.contexts.lock();
        let Contexts { free, retiring, .. } = &mut *contexts;
        retiring.retain(|old| {
            let CommRecord { rounds, agreements, stopped } = old.account;
            let memory = &self.world.memory;
            // Where no call was started there is nothing to read.
            let left_track = |rank: usize, track: usize| {
                let page = || memory.area(rank, memory.layout.area_of_track(old.area, track));
                rounds[track] == 0 || page().done.0.load(Acquire) >= rounds[track]
            };
            let left = |rank: usize| {
                let page = memory.area(rank, old.area);
                rank == self.rank
                    || (page.agreed.0.load(Acquire) >= agreements
                        && (0..rounds.len()).all(|track| left_track(rank, track))
                        && (!stopped || page.told.0.load(Acquire) != 0))
                    || page.context.0.load(Acquire) != old.scope.context
                    || self.world.is_dead(rank)
            };
            let here = &old.scope.here;
            let settled = match &old.scope.together {
                Some(together) => together.is_over(old.account, here, left),
                None => here.iter().all(left),
            };
            if settled {
                free[old.area / 64] |= 1 << (old.area % 64);
            }
            !settled
        });
        free.clone()
    }

    /// The least number that this rank can give to a new communicator.
    pub(crate) fn next_context(&self) -> u64 {
        self.contexts.lock().next
    }

    pub(crate) fn skip_contexts(&self, next: u64) {
        let mut contexts = self.contexts.lock();
        contexts.next = contexts.next.max(next);
    }

    /// Takes an area for a new communicator and clears this rank's page of it, if it is free.
    pub(crate) fn take_area(&self, area: usize, context: u64) -> bool {
        let (word, bit) = (area / 64, 1 << (area % 64));
        let mut contexts = self.contexts.lock();
        let free = contexts.free.get_mut(word).filter(|word| **word & bit != 0);
        let Some(word) = free else { return false };
        *word &= !bit;
        self.clear_areas(&mut contexts, area);
        self.world.memory.area(self.rank, area).context.0.store(context, Release);
        true
    }

    /// The rank starts its first call on the communicator of this area.
    pub(crate) fn use_tracks(&self, area: usize) {
        self.contexts.lock().tracks[area / 64] |= 1 << (area % 64);
    }

    /// Clears this rank's pages for a communicator; those for started calls only if they were used,
    /// as few are, and each page takes memory from the first touch on.
    fn clear_areas(&self, contexts: &mut Contexts, area: usize) {
        self.clear_area(area);
        let (word, bit) = (&mut contexts.tracks[area / 64], 1 << (area % 64));
        if *word & bit != 0 {
            *word &= !bit;
            let layout = &self.world.memory.layout;
            (1..=TRACKS).for_each(|track| self.clear_area(layout.area_of_track(area, track)));
        }
    }

    fn clear_area(&self, area: usize) {
        let page = self.world.memory.area(self.rank, area);
        page.slots.iter().for_each(|slot| slot.stamp.store(0, Release));
        page.proposals.iter().for_each(|proposal| proposal.clear());
        let words = [&page.done, &page.arrive, &page.release, &page.agreed, &page.told];
        words.iter().for_each(|word| word.0.store(0, Release));
        page.fault.clear();
    }

    /// Clears what this rank shows of a block, before any rank can enter it.
    pub(crate) fn clear_for(&self, block: u32) {
        self.clear_areas(&mut self.contexts.lock(), area_of(block));
        self.world.memory.failure(self.rank, block).clear();
    }

    /// The communicator on this area is gone; the area is free when no peer reads it any more.
    /// `started`: the rounds on its tracks.
    pub(crate) fn retire_area(&self, area: &CollectiveArea, scope: &Scope, started: [u64; TRACKS]) {
        let page = self.world.memory.area(self.rank, area.index);
        page.context.0.store(0, Release);
        let stopped = page.fault.holds(scope.context);
        let mut rounds = [area.rounds(); 1 + TRACKS];
        rounds[1..].copy_from_slice(&started);
        let account = CommRecord { rounds, agreements: area.agreements(), stopped };
        let retiring = Retiring { area: area.index, account, scope: scope.clone() };
        self.contexts.lock().retiring.push(retiring);
    }
}
