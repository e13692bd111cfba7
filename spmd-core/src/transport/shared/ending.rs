//! The end of a block: waiting for those who are still in it, and what can only be seen then.

use std::panic::Location;
use std::sync::atomic::Ordering::*;

use super::contexts::area_of;
use super::endpoint::Endpoint;
use super::layout::SLOTS;
use super::waiter::Waiter;
use super::world::World;
use crate::call::{Call, Kind};
use crate::error::{Error, Result};
use crate::fault::Fault;
use crate::group::{Group, Scope};

impl Endpoint {
    /// Waits until every rank that this one has not gone on without has left `block`, as it has.
    /// Whoever fails in the meantime ends the wait with an error.
    pub(crate) fn wait_for_the_end(
        &self,
        block: u32,
        site: &'static Location<'static>,
    ) -> Result<()> {
        let call = Call::new(Kind::End, site);
        let scope = self.scope_of_the_end(block);
        let waiter = self.wait_for_ends(block, &call, &scope, |waiter| waiter)?;
        if let Some(error) = waiter.stopped() {
            return Err(error);
        }
        self.miss_no_process(block, &call, &scope)?;
        if self.has_lost() { Ok(()) } else { self.world.check_calls(block, &call) }
    }

    /// Complains if the process of a member ended before it has entered the block: the ranks enter
    /// the world a different number of times.
    fn miss_no_process(&self, block: u32, call: &Call<'_>, scope: &Scope) -> Result<()> {
        let missing = |rank: &usize| self.world.block_of(*rank) < block && *rank != self.rank;
        let Some(rank) = scope.group.iter().find(missing) else { return Ok(()) };
        let waiting = format!("rank {}: {call}", self.rank);
        Err(Error::stopped(Fault::Absent { rank, waiting }, call))
    }
}

impl Endpoint {
    /// Waits until every rank that lives has ended the block before `block`, as this one has. Who
    /// has left that properly has waited for it already. What stays of that block, as it was
    /// stopped, is then dropped.
    ///
    /// The places that a block uses, areas and those for failures, serve later ones as well: so
    /// nobody is more than one block ahead of anybody.
    pub(crate) fn wait_for_the_block_before(
        &self,
        block: u32,
        site: &'static Location<'static>,
    ) -> Result<()> {
        let Some(before) = block.checked_sub(1).filter(|before| *before > 0) else { return Ok(()) };
        let call = Call::new(Kind::Start, site);
        let world = Group::World(self.world.size());
        let scope = Scope::new(before.into(), before, area_of(before), world.clone(), world);
        let scope = Scope { held: false, ..scope };
        self.wait_for_ends(before, &call, &scope, |waiter| waiter.despite_failures())?;
        self.forget_messages(block);
        Ok(())
    }

    /// Waits until the members of `scope` have ended the block.
    fn wait_for_ends<'a>(
        &'a self,
        block: u32,
        call: &'a Call<'a>,
        scope: &'a Scope,
        with: impl FnOnce(Waiter<'a>) -> Waiter<'a>,
    ) -> Result<Waiter<'a>> {
        let waiter = with(Waiter::new(self, scope, call, self.note(call)));
        let mut index = 0;
        waiter.until(|| {
            while index < scope.group.len() {
                let rank = scope.group.world(index);
                if rank != self.rank && !self.world.has_ended(rank, block) {
                    waiter.waits_on(Some(rank));
                    return None;
                }
                index += 1;
            }
            Some(())
        })?;
        Ok(waiter)
    }
}

impl Endpoint {
    /// Complains if something has stopped `block` that this rank has not gone on from.
    pub(crate) fn miss_nobody(&self, block: u32, call: &Call<'_>) -> Result<()> {
        let fault = self.first_fault(&self.scope_of_the_end(block));
        fault.map_or(Ok(()), |fault| Err(Error::stopped(fault, call)))
    }
}

impl World {
    /// Complains if the ranks, all of which have left `block`, made different collective calls
    /// on its communicator: those in which not all ranks meet may have passed each other.
    pub(crate) fn check_calls(&self, block: u32, call: &Call<'_>) -> Result<()> {
        let page = |rank: usize| self.memory.area(rank, area_of(block));
        let slot = |rank: usize, round: u64| &page(rank).slots[(round % SLOTS as u64) as usize];
        let rounds = |rank: usize| match &self.combining {
            Some(combining) => combining.begun_by(rank),
            None => page(rank).done.0.load(Acquire),
        };
        let print = |rank: usize, round| match &self.combining {
            Some(combining) => combining.fingerprint_of(rank, round).unwrap_or(0),
            None => slot(rank, round).fingerprint.load(Relaxed),
        };
        let first = self.local().start;
        let last = rounds(first);
        let alike = |rank: usize| {
            rounds(rank) == last && (last == 0 || print(rank, last) == print(first, last))
        };
        let Some(other) = self.local().find(|rank| !alike(*rank)) else { return Ok(()) };
        let common = last.min(rounds(other));
        let on_show = common.saturating_sub(SLOTS as u64 - 1).max(1)..=common;
        let differs = |round: &u64| print(first, *round) != print(other, *round);
        let (round, what) = match on_show.clone().find(differs) {
            Some(round) => (round, "different calls"),
            None => (common + 1, "one rank made more calls than another"),
        };
        let ranks = self.local().filter(|rank| rounds(*rank) >= round);
        let calls = ranks.filter_map(|rank| match &self.combining {
            Some(combining) => self.combining_call(combining, rank, round),
            None => Some((rank, self.describe(rank, &slot(rank, round).call))),
        });
        let fault = Fault::Mismatch { calls: crate::fault::by_call(calls), what: what.into() };
        Err(Error::stopped(fault, call))
    }
}
