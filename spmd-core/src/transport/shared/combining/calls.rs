//! How a rank goes through its worker's log, and what others read there.

use std::panic::Location;
use std::sync::atomic::{Ordering::*, fence};

use super::log::{ROUNDS, RankProgress, RoundStart, SITES};
use super::{CombiningBarrier, RankSlot};
use crate::call::Call;
use crate::transport::shared::record::{CallRecord, Noted};

impl RankSlot<'_> {
    #[inline]
    fn passage(&self) -> &RankProgress {
        &self.place.log.ranks[self.rank - self.place.ranks.start]
    }

    /// The rank begins a round with a call of this fingerprint.
    #[inline]
    pub(crate) fn begin(
        self,
        round: u64,
        fingerprint: u64,
        site: &'static Location<'static>,
    ) -> RoundStart {
        let entry = self.place.log.entry(round);
        let first = entry.round.load(Relaxed) != round;
        if !first && entry.fingerprint.load(Relaxed) != fingerprint {
            return RoundStart::Mismatch(entry.first.load(Relaxed) as usize);
        }
        let passage = self.passage();
        let site = std::ptr::from_ref(site).cast_mut();
        passage.sites[(round % SITES) as usize].store(site, Relaxed);
        passage.at.store(round << 1, Release);
        if first { RoundStart::First } else { RoundStart::Same }
    }

    /// Writes down the call with which the rank, as the first of its worker, begins a round.
    pub(crate) fn write_down(self, round: u64, fingerprint: u64, call: &Call<'_>, noted: Noted) {
        let entry = self.place.log.entry(round);
        // Reports of other workers look at old entries while this one is written anew.
        entry.round.store(0, Relaxed);
        fence(Release);
        entry.fingerprint.store(fingerprint, Relaxed);
        entry.first.store(self.rank as u32, Relaxed);
        entry.left.store(0, Relaxed);
        entry.call.write(call, noted);
        entry.round.store(round, Release);
    }

    /// The rank has left a round; said by every rank, or by none if all met in the round. Whether
    /// it was the last of its worker.
    #[inline]
    pub(crate) fn leave(self, round: u64) -> bool {
        let entry = self.place.log.entry(round);
        let left = entry.left.load(Relaxed) + 1;
        entry.left.store(left, Relaxed);
        let last = left as usize == self.place.ranks.len();
        if last {
            self.place.log.done.store(round, Release);
        }
        last
    }

    /// Says that the rank has left a round, in which its peers may ask for it
    /// ([`CombiningBarrier::left_by`]).
    #[inline]
    pub(crate) fn mark_left(self, round: u64) {
        self.passage().at.store(round << 1 | 1, Release);
    }

    /// The payload in which the rank can show [`FEW`] bytes to all, in a round that it has begun.
    #[inline]
    pub(crate) fn to_show(self, round: u64) -> *mut u8 {
        self.place.log.shown(round).data.as_ptr().cast_mut().cast()
    }

    /// Shows what the rank has put into that payload.
    #[inline]
    pub(crate) fn show(self, round: u64, fingerprint: u64) {
        let shown = self.place.log.shown(round);
        shown.fingerprint.store(fingerprint, Relaxed);
        shown.round.store(round, Release);
    }
}

impl CombiningBarrier {
    /// Whether the entry of `round` can be written down: all ranks have left the round that used it
    /// last.
    #[inline]
    pub(crate) fn has_room(&self, round: u64) -> bool {
        round <= ROUNDS || self.all_left(round - ROUNDS)
    }

    /// To which round all ranks must have come before [`CombiningBarrier::has_room`].
    pub(crate) fn oldest(&self, round: u64) -> u64 {
        (round + 1).saturating_sub(ROUNDS)
    }

    /// The last round that `rank` is known to have left.
    pub(crate) fn left_by(&self, rank: usize) -> u64 {
        let at = self.rank_slot(rank).passage().at.load(Acquire);
        if at % 2 == 1 { at >> 1 } else { (at >> 1).saturating_sub(1) }
    }

    /// The last round that `rank` has begun.
    pub(crate) fn begun_by(&self, rank: usize) -> u64 {
        self.rank_slot(rank).passage().at.load(Acquire) >> 1
    }

    /// What `rank` shows in a round, and the fingerprint of its call: once it does, and until the
    /// asking rank leaves the round.
    #[inline]
    pub(crate) fn shown_by(&self, rank: usize, round: u64) -> Option<(u64, *const u8)> {
        let shown = self.place(rank).log.shown(round);
        (shown.round.load(Acquire) == round)
            .then(|| (shown.fingerprint.load(Relaxed), shown.data.as_ptr().cast()))
    }
}

/// What reports need: for when something is wrong, or late.
impl CombiningBarrier {
    /// A rank of another worker whose log differs from that of the worker of `rank`.
    pub(crate) fn other_call(&self, rank: usize) -> Option<usize> {
        self.firsts().find(|other| self.first_difference(rank, *other).is_some())
    }

    /// The fingerprint that the worker of `rank` has on record for a round.
    pub(crate) fn fingerprint_of(&self, rank: usize, round: u64) -> Option<u64> {
        self.place(rank).log.fingerprint(round)
    }

    /// Of the rounds that `rank` has begun, the first in which the calls differ that its worker and
    /// that of `other` have on record.
    pub(crate) fn first_difference(&self, rank: usize, other: usize) -> Option<u64> {
        let last = self.begun_by(rank);
        let first = (last + 1).saturating_sub(ROUNDS).max(1);
        (first..=last).find(|round| {
            let fingerprint = |rank| self.fingerprint_of(rank, *round);
            fingerprint(rank).zip(fingerprint(other)).is_some_and(|(a, b)| a != b)
        })
    }

    /// The call of a round as the worker of `rank` has it on record, and who wrote it down.
    pub(crate) fn call_of(&self, rank: usize, round: u64) -> Option<(usize, &CallRecord)> {
        let entry = self.place(rank).log.known(round)?;
        Some((entry.first.load(Relaxed) as usize, &entry.call))
    }

    /// Where `rank` made its call of a round that it has begun, if that is still known.
    pub(crate) fn site_of(&self, rank: usize, round: u64) -> Option<&'static Location<'static>> {
        let rank_slot = self.rank_slot(rank);
        let passage = rank_slot.passage();
        let site = passage.sites[(round % SITES) as usize].load(Relaxed);
        let known = (round..round + SITES).contains(&(passage.at.load(Acquire) >> 1));
        // SAFETY: only `begin` writes it, and what is not null came from such a reference.
        (known && !site.is_null()).then(|| unsafe { &*site })
    }
}

impl CombiningBarrier {
    /// A rank that has not come to `round`.
    pub(crate) fn behind(&self, round: u64) -> Option<usize> {
        let ranks = self.worker_of.len();
        self.behind[0].find(ranks, round, |rank| self.begun_by(rank) >= round)
    }

    /// A rank that has not come to the stage of this stamp, as `has_come` tells.
    pub(crate) fn behind_stage(
        &self,
        stamp: u64,
        has_come: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        self.behind[1].find(self.worker_of.len(), stamp, has_come)
    }
}
