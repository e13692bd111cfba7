//! The record of a wait, for peers that look for deadlocks and for the launcher.

use std::sync::atomic::Ordering::*;
use std::time::Duration;

use super::Waiter;
use crate::current;
use crate::transport::shared::agents::{Wait, idle};
use crate::transport::shared::{Endpoint, World};
use crate::wait;

impl Waiter<'_> {
    /// Puts this wait on record.
    pub(super) fn record(&self) {
        if self.off_record {
            return;
        }
        let endpoint = self.endpoint;
        // Until it has been looked who else may act: what was found before does not hold any more.
        endpoint.world.memory.head(endpoint.rank).idle_agents.store(idle::ANYBODY, Relaxed);
        let slot = endpoint.agents.claim(self.is_extra());
        self.slot.set(Some(slot));
        slot.into_iter().for_each(|slot| self.write_to(slot));
        if wait::is_started() {
            slot.iter().for_each(|_| endpoint.agents.is_told());
        } else if self.untold.get() {
            if slot.is_some() {
                self.untold.set(false);
                endpoint.agents.is_told();
            }
        } else if !wait::scheduler::in_coroutine()
            && current::rank().is_none()
            && !wait::threads::helps()
        {
            self.outsider.set(Some(wait::Outsider::new()));
        }
    }

    /// Takes it off, if it is on record.
    pub(super) fn unrecord(&self) {
        let Some(slot) = self.slot.take() else { return };
        let endpoint = self.endpoint;
        if slot.is_some() && wait::is_started() {
            endpoint.agents.leave_off_record();
        } else if slot.is_some() && wait::is_task() {
            self.untold.set(true);
            endpoint.agents.leave_off_record();
        }
        slot.into_iter().for_each(|slot| endpoint.take_off_record(slot));
        endpoint.agents.give_back(slot, self.is_extra());
        self.suspicion.set(None);
        self.outsider.set(None);
    }

    /// Whether the agent that waits has, by that, one of the rank's communicators besides the
    /// block's own in its hands. Several started calls may be under way on one.
    fn is_extra(&self) -> bool {
        !self.scope.is_primary() && !self.scope.confined && !wait::is_started()
    }

    pub(in crate::transport::shared) fn write_to(&self, slot: usize) {
        let endpoint = self.endpoint;
        self.faults_at_start.set(endpoint.world.faults_claimed());
        let agent = &endpoint.world.memory.head(endpoint.rank).agents[slot];
        agent.on.store(self.on.get(), Relaxed);
        agent.block.store(self.scope.block, Relaxed);
        agent.context.store(self.scope.context, Relaxed);
        agent.track.store(self.scope.track as u32, Relaxed);
        // A started call waits beside the agent that has started it.
        let own = || current::with(|rank| rank.is_some_and(|it| it.is_of(endpoint)));
        agent.own.store(u32::from(!wait::is_started() && own()), Relaxed);
        agent.ended_by.store(self.ended_by.get(), Relaxed);
        agent.steadfast.store(u32::from(self.steadfast), Relaxed);
        agent.confirmed.store(0, Relaxed);
        agent.since.store(0, Relaxed);
        agent.call.write(self.call, self.noted);
        if self.beyond_window.get() {
            agent.call.note_window();
        }
        agent.epoch.store(agent.epoch.load(Relaxed) | 1, Release);
    }

    /// Says for deadlock searches of others that the condition was false after this time, and whom
    /// the wait is for by now; the place of its record, if it has one and has to go on.
    pub(super) fn confirm(
        &self,
        waited: Duration,
        ready: &mut dyn FnMut() -> bool,
    ) -> Option<usize> {
        let slot = self.slot.get()??;
        let world = &self.endpoint.world;
        let agent = &world.memory.head(self.endpoint.rank).agents[slot];
        let now = world.now_ms();
        if ready() {
            return None;
        }
        agent.on.store(self.on.get(), Relaxed);
        if agent.since.load(Relaxed) == 0 {
            agent.since.store(now.saturating_sub(waited.as_millis() as u64), Relaxed);
        }
        self.endpoint.show_idle_agents();
        agent.confirmed.store(now, Release);
        Some(slot)
    }
}

impl Endpoint {
    /// The wait that is in this place is over.
    pub(in crate::transport::shared) fn take_off_record(&self, slot: usize) {
        let agent = &self.world.memory.head(self.rank).agents[slot];
        agent.epoch.store((agent.epoch.load(Relaxed) | 1) + 1, Release);
    }
}

impl World {
    /// Whether the rank has a wait in this communicator on record; `None` if it has none of its
    /// own, so that it can act.
    pub(in crate::transport::shared) fn waits_in(&self, rank: usize, context: u64) -> Option<bool> {
        let (mut own, mut here) = (false, false);
        for agent in &self.memory.head(rank).agents {
            if !agent.epoch.load(Acquire).is_multiple_of(2) {
                own |= agent.own.load(Relaxed) != 0;
                here |= agent.context.load(Relaxed) == context;
            }
        }
        own.then_some(here)
    }

    /// Whether this wait still goes on.
    pub(in crate::transport::shared) fn lasts(&self, (rank, slot, epoch): Wait) -> bool {
        let agent = &self.memory.head(rank).agents[slot];
        agent.epoch.load(Acquire) == epoch && !self.is_dead(rank)
    }
}
