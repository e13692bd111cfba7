//! What goes wrong in a round, and how it is told.

use std::sync::atomic::Ordering::*;

use super::round::Round;
use super::stage::{STAGE_BITS, slot_of};
use crate::call::Call;
use crate::error::Error;
use crate::fault::Fault;
use crate::transport::shared::layout::SLOTS;

impl Round<'_> {
    /// Gives up with this error: the others are stopped by it as well. For errors that only this
    /// rank can know of.
    pub fn fail(&self, error: Error) -> Error {
        self.waiter.give_up(&error);
        error
    }

    /// What has stopped the communicator, if something has.
    pub(crate) fn stopped(&self) -> Option<Error> {
        self.waiter.stopped()
    }

    /// All ranks of the communicator here are stopped by this.
    #[cold]
    pub(crate) fn stopped_with(&self, fault: &Fault) -> Error {
        self.waiter.stop(fault)
    }

    /// The ranks do not agree in `what`; all are stopped, and the report shows their calls.
    #[cold]
    pub fn disagree(&self, what: &str) -> Error {
        self.disagreed(self.round, what)
    }

    #[cold]
    pub(super) fn disagreed(&self, round: u64, what: &str) -> Error {
        self.show();
        if let Some(combining) = self.combining {
            let calls = self.endpoint.world.combining_calls(combining, self.here(), round);
            return self.waiter.stop(&Fault::Mismatch { calls, what: what.into() });
        }
        let here = (0..self.size()).filter(|peer| self.shows(*peer, round));
        let calls = here.map(|peer| {
            let world = self.scope.here.world(peer);
            let call = &slot_of(self.page_of(peer), round).call;
            (world, self.endpoint.world.describe(world, call))
        });
        let calls = crate::fault::by_call(calls);
        self.waiter.stop(&Fault::Mismatch { calls, what: what.into() })
    }

    /// This rank, its round and its call.
    fn here(&self) -> (usize, u64, &Call<'_>) {
        (self.me, self.round, self.waiter.call)
    }

    /// Whether the slots of `rank` show its call of `round`.
    pub(super) fn shows(&self, rank: usize, round: u64) -> bool {
        slot_of(self.page_of(rank), round).stamp.load(Acquire) >> STAGE_BITS == round
    }

    /// The fingerprints differ: reports the first round that is still on show in which they do.
    #[cold]
    pub(super) fn mismatch(&self, peer: usize) -> Error {
        if let Some(combining) = self.combining {
            let fault = self.endpoint.world.combining_mismatch(combining, self.here(), peer);
            return self.waiter.stop(&fault);
        }
        let first = self.round.saturating_sub(SLOTS as u64 - 1).max(1);
        let differs = |round: &u64| {
            let fingerprint = |rank| slot_of(self.page_of(rank), *round).fingerprint.load(Relaxed);
            let both = self.shows(self.me, *round) && self.shows(peer, *round);
            both && fingerprint(self.me) != fingerprint(peer)
        };
        let round = (first..self.round).find(differs).unwrap_or(self.round);
        let mine = &slot_of(self.page, round).call;
        let theirs = &slot_of(self.page_of(peer), round).call;
        let what = mine
            .difference(theirs)
            .unwrap_or("element types, operations or places of memory, here or earlier");
        self.disagreed(round, &format!("different {what}"))
    }

    #[cold]
    pub(super) fn corrupt(&self, peer: usize, what: &'static str) -> Error {
        self.fail(Error::corrupt(self.scope.here.world(peer), what))
    }

    #[cold]
    pub(super) fn withdrawn(&self, peer: usize) -> Error {
        let rank = self.scope.here.world(peer);
        let waiter = &self.waiter;
        waiter.stopped().unwrap_or_else(|| {
            self.fail(Error::corrupt(rank, "it took a buffer back without a reason"))
        })
    }

    /// A peer that must have exposed memory has not.
    #[cold]
    pub fn lied(&self, peer: usize) -> Error {
        self.corrupt(peer, "it does not expose what it must")
    }

    /// A peer's data are no values of their type.
    #[cold]
    pub fn invalid(&self, peer: usize) -> Error {
        self.corrupt(peer, "it sent bytes that are no values of their type")
    }
}
