//! Loops that poll for a message which can never come: all who could send it have gone.
//!
//! To ask once more is no mistake: a rank may look for an optional message between steps of its
//! work, or let others run until a thread of its own has finished. So it is an error only for a
//! rank that has done nothing else for long, while nobody else could act in its process.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use super::communicator::Comm;
use crate::call::Call;
use crate::error::Result;
use crate::mode::Mode;
use crate::transport::message::MatchPattern;
use crate::transport::shared::polls::Found;
use crate::wait;

/// How many polls in vain lie between two looks at who has gone.
const RARELY: u32 = 64;
impl Comm {
    /// A poll that began at `begin` (`Hopeless::begins`) has found nothing: lets others run, so
    /// that something may come. An error if nothing can come any more, and the rank does nothing
    /// but poll.
    pub(super) fn polled_in_vain(
        &self,
        begin: Option<Instant>,
        call: &Call<'_>,
        pattern: &MatchPattern,
    ) -> Result<()> {
        // A sender that waits for room in its ring may be the one for whom the awaited one waits.
        self.endpoint.make_room();
        let polls = self.polling.polls.get().wrapping_add(1);
        self.polling.polls.set(polls);
        if begin.is_none() && !polls.is_multiple_of(RARELY) {
            self.let_others_run();
            return Ok(());
        }
        let (hopeless, end) = (&self.endpoint.hopeless, Instant::now());
        let waiter = self.waiter(call)?;
        let elsewhere = waiter.is_for_elsewhere(pattern.source);
        let mut ready = || self.route.transport.peek(pattern).map_or(true, |it| it.is_some());
        if !elsewhere && waiter.gone(pattern.source).is_none() {
            self.endpoint.acts();
        } else {
            let alone = || self.nobody_else_can_act();
            let (mut polls, found) = hopeless.polled((begin, end), elsewhere, alone);
            match found {
                None => {}
                Some(Found::Hopeless) => {
                    drop(polls);
                    self.endpoint.acts();
                    waiter.give_up_on(pattern.source, &mut ready)?;
                    return Ok(());
                }
                Some(Found::LeftToOthers) if polls.poller.is_none() => {
                    polls.poller = self.endpoint.starts_to_poll(&waiter, pattern.source);
                }
                Some(Found::LeftToOthers) => {}
                Some(Found::Alive) => {
                    let poller = polls.poller.take();
                    poller.into_iter().for_each(|poller| self.endpoint.stops_to_poll(poller));
                }
            }
            let poller = polls.poller.iter_mut();
            poller.for_each(|it| self.endpoint.still_polls(it, pattern.source, &mut ready));
            drop(polls);
            hopeless.polled_until(Instant::now(), end);
        }
        self.let_others_run();
        hopeless.goes_on(Instant::now());
        Ok(())
    }

    /// Whether no thread of this process can do what the rank may be waiting for besides messages:
    /// none runs but ranks, of which no other one can have a communicator of this rank.
    fn nobody_else_can_act(&self) -> bool {
        let (endpoint, world) = (&self.endpoint, &self.endpoint.world);
        let others = endpoint.extra_comms.load(Relaxed) > usize::from(!self.primary);
        let gone = |rank| rank == endpoint.rank || world.has_ended(rank, self.scope.block);
        let held = others && world.mode != Mode::Processes && !world.local().all(gone);
        !held && world.nobody_else_runs()
    }

    /// A poll has found something.
    #[inline]
    pub(super) fn polled_well(&self) {
        self.polling.in_a_row.set(0);
        self.endpoint.acts();
    }

    /// To let others run costs a thread more than many polls, and a coroutine hardly more than one.
    fn let_others_run(&self) {
        let polling = &self.polling;
        let in_a_row = polling.in_a_row.get() + 1;
        if wait::scheduler::in_coroutine() || in_a_row >= self.endpoint.world.policy.polls() {
            polling.in_a_row.set(0);
            wait::relax();
        } else {
            polling.in_a_row.set(in_a_row);
        }
    }
}

#[cfg(test)]
mod tests;
