//! Rounds of ranks that have a hub: how far each is stands in the hub's log, not on its page.

use super::round::Round;
use crate::error::Result;
use crate::transport::shared::hub::{Begun, Hub};
use crate::wait::Bell;

impl Round<'_> {
    /// Compares this rank's call with those of the ranks that were here before.
    #[inline]
    pub(super) fn begin_in(&self, hub: &Hub) -> Result<()> {
        let call = self.waiter.call;
        match hub.seat(self.me).begin(self.round, self.fingerprint, call.site) {
            Begun::Same => Ok(()),
            Begun::First if hub.has_room(self.round) => {
                hub.seat(self.me).write_down(self.round, self.fingerprint, call, self.waiter.noted);
                Ok(())
            }
            Begun::First => {
                let room = || hub.has_room(self.round).then_some(());
                self.wait_in(hub, hub.oldest(self.round), room)?;
                self.begin_in(hub)
            }
            Begun::Mismatch(peer) => Err(self.mismatch(peer)),
        }
    }

    /// The bell on which this rank sleeps while it waits for what its peers do in the hub.
    #[inline]
    pub(super) fn bell_in<'h>(&self, hub: &'h Hub) -> Bell<'h> {
        Bell::common(hub.seat(self.me).bell(), None).unasked(hub.has_one_worker())
    }

    /// Waits for `poll`, until which some ranks must come to `round`.
    pub(super) fn wait_in(
        &self,
        hub: &Hub,
        round: u64,
        poll: impl FnMut() -> Option<()>,
    ) -> Result<()> {
        let late = || {
            if let Some(other) = self.in_other_call() {
                return Err(self.mismatch(other));
            }
            self.waiter.waits_on(hub.behind(round));
            Ok(())
        };
        self.waiter.until_at(self.bell_in(hub), late, poll)
    }

    /// A rank that has made other calls, where a hub knows of one.
    pub(super) fn in_other_call(&self) -> Option<usize> {
        self.hub?.other_call(self.me)
    }

    /// Says that this rank has left the round.
    pub(super) fn leave(&self, hub: &Hub) {
        let seat = hub.seat(self.me);
        seat.say_left(self.round);
        if seat.leave(self.round) {
            self.endpoint.world.ring_hub(hub);
        }
        // A peer may have taken its buffers back, and wait until nobody uses them.
        if self.endpoint.world.faults_seen() != self.scope.faults_seen.get() {
            self.endpoint.world.publish();
            self.help_take_back();
        }
    }
}
