//! How ranks tell each other how far they are, and meet.

use std::sync::atomic::Ordering::*;

use super::round::Round;
use super::stage::{FLAT, LAST_STAGE, STAGE_BITS, slot_of, stamp};
use crate::error::{Error, Result};
use crate::mode::Mode;
use crate::transport::shared::combining::{Arrival, CombiningBarrier};
use crate::transport::shared::layout::Slot;
use crate::wait::Fences;

/// Children of a tree node. Virtual ranks, whose children have mostly arrived before them, look
/// at many at once.
const RADIX: usize = 4;
const VIRTUAL_RADIX: usize = 32;

impl Round<'_> {
    /// Says that this rank has reached `stage` (1 and up) of the round; wakes nobody.
    #[inline]
    pub(super) fn reach_stage(&self, stage: u32) {
        self.stamp(stage);
        self.fence();
    }

    #[inline]
    fn stamp(&self, stage: u32) {
        debug_assert!(stage <= LAST_STAGE);
        let stamp = stamp(self.round, stage);
        if self.shown.replace(stamp) == 0 {
            self.slot.fingerprint.store(self.fingerprint, Relaxed);
        }
        self.slot.stamp.store(stamp, Release);
    }

    /// Shows that this rank is in the round, before it waits in it.
    #[inline]
    pub(super) fn show(&self) {
        if self.shown.get() == 0 {
            self.stamp(0);
        }
    }

    /// The fence between a change and the look at who sleeps. Ranks that share a thread need none.
    #[inline]
    fn fence(&self) {
        if !self.combining.is_some_and(CombiningBarrier::has_one_worker) {
            self.endpoint.world.publish();
        }
    }

    /// Says that this rank has reached `stage` (1 and up) of the round, to all peers.
    #[inline]
    pub fn publish(&self, stage: u32) {
        self.reach_stage(stage);
        self.ring_peers();
    }

    /// Says that this rank has reached `stage`, to `peer`, who alone may wait for it.
    #[inline]
    pub fn publish_to(&self, stage: u32, peer: usize) {
        self.reach_stage(stage);
        self.ring(peer);
    }

    /// Wakes `peer` after a publish.
    #[inline]
    pub(super) fn ring(&self, peer: usize) {
        self.endpoint.world.bell(self.scope.here.world(peer)).ring_after_fence();
    }

    pub(super) fn ring_peers(&self) {
        (0..self.size()).filter(|peer| *peer != self.me).for_each(|peer| self.ring(peer));
    }

    /// Looks whether `peer` has reached `stage`, and that it makes the same call.
    #[inline]
    pub(super) fn arrived(&self, peer: usize, slot: &Slot, stage: u32) -> Option<Result<()>> {
        let seen = slot.stamp.load(Acquire);
        if seen >> STAGE_BITS > self.round {
            return Some(Err(self.corrupt(peer, "its round number is ahead of what it can be")));
        }
        // A peer that is in this round, if only in an earlier stage, must be in the same call.
        if seen >> STAGE_BITS == self.round && slot.fingerprint.load(Relaxed) != self.fingerprint {
            return Some(Err(self.mismatch(peer)));
        }
        if seen < stamp(self.round, stage) {
            return self.waiter.lasts().then(|| self.passed_by(peer, stage)).flatten().map(Err);
        }
        Some(Ok(()))
    }

    /// A peer that has left the round without reaching `stage` never will: one of the two was
    /// told lies about the other ranks' data, by a process that writes what it should not.
    #[cold]
    fn passed_by(&self, peer: usize, stage: u32) -> Option<Error> {
        if let Some(other) = self.in_other_call() {
            return Some(self.mismatch(other));
        }
        let gone = self.left_by(peer) >= self.round;
        let seen = self.slot_of(peer).stamp.load(Acquire);
        let here = seen < stamp(self.round, stage);
        (gone && here).then(|| self.disagree("ranks took different ways through one call"))
    }

    /// Shows this call to the failure detector, before the leader waits for other processes.
    #[inline]
    pub(crate) fn enter_cluster(&self) {
        self.show();
    }

    /// Waits for what comes from another process.
    pub(crate) fn wait_on_cluster<T>(&self, poll: impl FnMut() -> Option<Result<T>>) -> Result<T> {
        self.show();
        let bell = || self.endpoint.bell().polled(true);
        self.waiter.waits_on(None);
        self.waiter.until_at(bell, || Ok(()), poll)?
    }

    /// Says that this rank has reached `stage`, to these peers, who alone may wait for it.
    pub fn publish_to_each(&self, stage: u32, peers: impl Iterator<Item = usize>) {
        self.reach_stage(stage);
        peers.for_each(|peer| self.ring(peer));
    }

    /// Says that the algorithm has shown that every rank has entered this round.
    ///
    /// # Safety
    /// That is so: from a stage of each peer, acquired directly or from peer to peer, this rank
    /// knows that all peers have entered. It then uses its slots again without another look.
    pub unsafe fn all_met(&self) {
        self.met.set(true);
    }

    /// Waits until `peer` has reached `stage`.
    #[inline]
    pub fn wait_for(&self, peer: usize, stage: u32) -> Result<()> {
        self.show();
        if self.endpoint.world.mode != Mode::Virtual {
            self.ask_for_next();
        }
        let (on, slot) = (self.scope.here.world(peer), self.slot_of(peer));
        self.waiter.until_by(Some(on), || self.arrived(peer, slot, stage))??;
        if self.size() == 2 {
            self.heard.set(true);
        }
        Ok(())
    }

    /// Waits until every other rank has reached `stage`.
    #[inline]
    pub fn wait_for_all(&self, stage: u32) -> Result<()> {
        let mut peers = (0..self.size()).filter(|peer| *peer != self.me);
        peers.try_for_each(|peer| self.wait_for(peer, stage))?;
        self.heard.set(true);
        Ok(())
    }

    /// Publishes `stage` and waits until all have. Flat, up to 16 ranks: n loads a rank. Over a
    /// tree above that: about 2 log₄ n steps. Virtual ranks: in their combining barrier, two steps,
    /// or, on communicators that the program has made, over a tree of log₃₂ n steps.
    #[inline]
    pub fn arrive(&self, stage: u32) -> Result<()> {
        if self.size() <= FLAT && self.endpoint.world.mode != Mode::Virtual {
            self.arrive_flat(stage)?;
        } else {
            self.arrive_among_many(stage)?;
        }
        self.met.set(true);
        Ok(())
    }

    fn arrive_among_many(&self, stage: u32) -> Result<()> {
        match self.combining {
            Some(combining) => self.arrive_combining(combining, stage, || Ok(())),
            None if self.endpoint.world.mode == Mode::Virtual => {
                self.arrive_over_tree(stage, VIRTUAL_RADIX)
            }
            None => self.arrive_over_tree(stage, RADIX),
        }
    }

    /// [`Round::arrive`]; before all go on, the last rank to arrive runs `work`. Gives that rank.
    ///
    /// Panics where ranks have no combining barrier ([`Comm::has_combining`](crate::Comm::has_combining)).
    #[inline]
    pub fn arrive_and(&self, stage: u32, work: impl FnOnce() -> Result<()>) -> Result<usize> {
        let combining = self.combining.expect("the ranks have a combining barrier");
        self.arrive_combining(combining, stage, work)?;
        self.met.set(true);
        Ok(combining.last())
    }

    #[inline]
    fn arrive_combining(
        &self,
        combining: &CombiningBarrier,
        stage: u32,
        work: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let (want, world) = (stamp(self.round, stage), &self.endpoint.world);
        self.stamp(stage);
        let wake = |rank| world.wake_worker_of(rank);
        let rank_slot = combining.rank_slot(self.me);
        match combining.meet(rank_slot, (want, self.fingerprint), || Ok(()), work, wake)? {
            Arrival::Early => {}
            Arrival::Last => return Ok(()),
            Arrival::Mismatch(peer) => return Err(self.mismatch(peer)),
        }
        let bell = || self.bell_in(combining).unasked(true);
        let over = || combining.is_over(want).then_some(());
        self.waiter.until_at(bell, || self.who_is_late(combining, stage), over)
    }

    /// Looks, when a meeting lasts, at the calls of all, and whom to wait for.
    #[cold]
    fn who_is_late(&self, combining: &CombiningBarrier, stage: u32) -> Result<()> {
        if let Some(other) = self.in_other_call() {
            return Err(self.mismatch(other));
        }
        let want = stamp(self.round, stage);
        let late = combining
            .behind_stage(want, |peer| self.slot_of(peer).stamp.load(Acquire) >= want)
            .filter(|peer| *peer != self.me);
        if let Some(peer) = late {
            self.arrived(peer, self.slot_of(peer), stage).transpose()?;
        }
        self.waiter.waits_on(late.map(|peer| self.scope.here.world(peer)));
        Ok(())
    }

    fn arrive_flat(&self, stage: u32) -> Result<()> {
        self.reach_stage(stage);
        // Of all that arrive at once, the last by the order of their full fences sees everybody at
        // its first look. Only that one has somebody to wake. Where arrivals execute no fence,
        // two that arrive at once may both miss the other: each looks, while it has to wait.
        let symmetric = self.endpoint.world.policy.fences == Fences::Symmetric;
        if !symmetric {
            self.ring_peers();
        }
        self.ask_for_next();
        // A look at a line that its owner is about to write makes the owner ask for it once more.
        std::hint::spin_loop();
        let waited = self.await_arrivals(stage)?;
        if symmetric && !waited {
            self.ring_peers();
        }
        Ok(())
    }

    /// Waits until all peers have reached `stage`; whether there was something to wait for.
    #[inline(always)]
    pub(super) fn await_arrivals(&self, stage: u32) -> Result<bool> {
        let mut waited = false;
        for peer in (0..self.size()).filter(|peer| *peer != self.me) {
            let (on, slot) = (self.scope.here.world(peer), self.slot_of(peer));
            self.waiter.until_by(Some(on), || {
                let arrived = self.arrived(peer, slot, stage);
                waited |= arrived.is_none();
                arrived
            })??;
        }
        Ok(waited)
    }

    fn arrive_over_tree(&self, stage: u32, radix: usize) -> Result<()> {
        // Node v is rank n-1-v: where ranks share a thread and run in order, children then come
        // before their parent, which finds them arrived.
        let (n, v) = (self.size(), self.size() - 1 - self.me);
        let want = stamp(self.round, stage);
        let rank = |v: usize| n - 1 - v;
        let children = (radix * v + 1..n.min(radix * v + 1 + radix)).map(rank);
        self.stamp(stage);
        for child in children.clone() {
            let on = self.scope.here.world(child);
            let page = self.page_of(child);
            let slot = slot_of(page, self.round);
            self.waiter.until_by(Some(on), || {
                if page.arrive.0.load(Acquire) >= want {
                    return self.arrived(child, slot, stage);
                }
                // A child that makes another call never comes to this stage.
                self.arrived(child, slot, stage)?.err().map(Err)
            })??;
        }
        self.page.arrive.0.store(want, Release);
        if v > 0 {
            let parent = rank((v - 1) / radix);
            self.endpoint.world.publish();
            self.ring(parent);
            let (above, root) = (self.page_of(parent), self.page_of(rank(0)));
            let (on, slot) = (self.scope.here.world(parent), slot_of(above, self.round));
            self.waiter.until_by(Some(on), || {
                if above.release.0.load(Acquire) >= want {
                    return Some(Ok(()));
                }
                // Where the root has said it, all have arrived. A rank that has heard of it, and
                // failed since, must not stop those who have not.
                let failures = self.endpoint.world.faults_seen() != 0;
                if failures && root.release.0.load(Acquire) >= want {
                    return Some(Ok(()));
                }
                self.arrived(parent, slot, stage)?.err().map(Err)
            })??;
        }
        self.page.release.0.store(want, Release);
        if children.len() > 0 {
            self.endpoint.world.publish();
            children.for_each(|child| self.ring(child));
        }
        Ok(())
    }
}
