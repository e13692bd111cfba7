//! A loop of polls on record, from one poll to the next: for the failure detector of a job over
//! MPI, which learns whether those have left whom the loop waits for.

use std::sync::atomic::Ordering::*;

use super::endpoint::Endpoint;
use super::layout::Agent;
use super::polls::Poller;
use super::waiter::Waiter;

/// After how many milliseconds the record says again that the loop goes on.
const CONFIRM: u64 = 100;

impl Endpoint {
    /// Puts on record that the rank polls for a message from the world rank `on` (`None`: from any
    /// one), in this call and others like it; unless too many of its agents wait already.
    ///
    /// Where another communicator is in use than the block's own, it counts as one that any rank
    /// here may use: the record may outlive it.
    pub(crate) fn starts_to_poll(&self, waiter: &Waiter<'_>, on: Option<usize>) -> Option<Poller> {
        let Some(slot) = self.agents.claim(false) else {
            self.agents.give_back(None, false);
            return None;
        };
        waiter.ended_by(Agent::POLL);
        waiter.waits_on(on);
        waiter.write_to(slot);
        let agent = &self.world.memory.head(self.rank).agents[slot];
        let (on, now) = (agent.on.load(Relaxed), self.world.now_ms());
        agent.since.store(now, Relaxed);
        Some(Poller { slot, on, confirmed: now })
    }

    /// The rank has polled for a message from the world rank `on`, in vain.
    pub(crate) fn still_polls(
        &self,
        poller: &mut Poller,
        on: Option<usize>,
        mut ready: impl FnMut() -> bool,
    ) {
        let agent = &self.world.memory.head(self.rank).agents[poller.slot];
        // A loop for several ranks ends by any.
        if on.is_none_or(|on| on as u32 + 1 != poller.on) {
            poller.on = Agent::ANY;
            agent.on.store(Agent::ANY, Release);
        }
        let now = self.world.now_ms();
        if now < poller.confirmed + CONFIRM || ready() {
            return;
        }
        self.show_idle_agents();
        poller.confirmed = now;
        agent.confirmed.store(now, Release);
    }

    /// The rank does something else.
    pub(crate) fn stops_to_poll(&self, poller: Poller) {
        self.take_off_record(poller.slot);
        self.agents.give_back(Some(poller.slot), false);
    }

    /// The rank does something else than to poll for those who have gone, or may have.
    #[inline]
    pub(crate) fn acts(&self) {
        if self.hopeless.some.load(Relaxed) {
            self.leaves_its_loop();
        }
    }

    #[cold]
    fn leaves_its_loop(&self) {
        self.hopeless.some.store(false, Relaxed);
        let poller = self.hopeless.loops.lock().take().and_then(|polls| polls.poller);
        poller.into_iter().for_each(|poller| self.stops_to_poll(poller));
    }
}
