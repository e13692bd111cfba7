//! Rounds of ranks that have a combining barrier: how far each is stands in the combining barrier's
//! log, not on its page.

use super::round::Round;
use crate::error::Result;
use crate::transport::shared::combining::{CombiningBarrier, RoundStart};
use crate::wait::Bell;

impl Round<'_> {
    /// Compares this rank's call with those of the ranks that were here before.
    #[inline]
    pub(super) fn begin_in(&self, combining: &CombiningBarrier) -> Result<()> {
        let call = self.waiter.call;
        match combining.rank_slot(self.me).begin(self.round, self.fingerprint, call.site) {
            RoundStart::Same => Ok(()),
            RoundStart::First if combining.has_room(self.round) => {
                combining.rank_slot(self.me).write_down(
                    self.round,
                    self.fingerprint,
                    call,
                    self.waiter.noted,
                );
                Ok(())
            }
            RoundStart::First => {
                let space = || combining.has_room(self.round).then_some(());
                self.wait_in(combining, combining.oldest(self.round), space)?;
                self.begin_in(combining)
            }
            RoundStart::Mismatch(peer) => Err(self.mismatch(peer)),
        }
    }

    /// The bell on which this rank sleeps while it waits for what its peers do in the combining
    /// barrier.
    #[inline]
    pub(super) fn bell_in<'h>(&self, combining: &'h CombiningBarrier) -> Bell<'h> {
        Bell::common(combining.rank_slot(self.me).bell(), None).unasked(combining.has_one_worker())
    }

    /// Waits for `poll`, until which some ranks must come to `round`.
    pub(super) fn wait_in(
        &self,
        combining: &CombiningBarrier,
        round: u64,
        poll: impl FnMut() -> Option<()>,
    ) -> Result<()> {
        let late = || {
            if let Some(other) = self.in_other_call() {
                return Err(self.mismatch(other));
            }
            self.waiter.waits_on(combining.behind(round));
            Ok(())
        };
        self.waiter.until_at(|| self.bell_in(combining), late, poll)
    }

    /// A rank that has made other calls, where a combining barrier knows of one.
    pub(super) fn in_other_call(&self) -> Option<usize> {
        self.combining?.other_call(self.me)
    }

    /// Says that this rank has left the round.
    pub(super) fn leave(&self, combining: &CombiningBarrier) {
        let rank_slot = combining.rank_slot(self.me);
        rank_slot.mark_left(self.round);
        if rank_slot.leave(self.round) {
            self.endpoint.world.ring_combining(combining);
        }
        // A peer may have taken its buffers back, and wait until nobody uses them.
        if self.endpoint.world.faults_seen() != self.scope.faults_seen.get() {
            self.endpoint.world.publish();
            self.help_take_back();
        }
    }
}
