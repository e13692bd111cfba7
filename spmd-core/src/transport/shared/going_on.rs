//! Entering and leaving blocks, and what a rank has gone on without meanwhile: ranks that it need
//! not wait for at the end of the block, and communicators of which it need not miss anything.

use std::sync::atomic::Ordering::*;
use std::sync::{Arc, OnceLock};

use super::contexts::area_of;
use super::departed::{Departed, Messages, Ranks};
use super::endpoint::Endpoint;
use super::world::{World, state};
use crate::call::Call;
use crate::error::{Error, Result};
use crate::group::{Group, Scope};

/// Ranks that ended before others shrank a communicator: one list for all ranks of a process.
pub(crate) struct EndedRanks {
    /// World ranks, in order.
    ranks: Ranks,
    /// A list to which these have been added, and what came of it.
    added: OnceLock<(Ranks, Ranks)>,
}

impl EndedRanks {
    /// Of ranks in any order, without which this process goes on.
    pub(crate) fn new(world: &World, mut ranks: Vec<usize>) -> EndedRanks {
        ranks.sort_unstable();
        for rank in &ranks {
            world.memory.bell(*rank).departed.store(1, Relaxed);
        }
        EndedRanks { ranks: ranks.into(), added: OnceLock::new() }
    }

    /// These and those `before`.
    fn added_to(&self, before: &Ranks) -> Ranks {
        if before.is_empty() {
            return self.ranks.clone();
        }
        let both = || {
            let mut both = [&**before, &*self.ranks].concat();
            both.sort_unstable();
            both.dedup();
            Arc::from(both)
        };
        let (to, made) = self.added.get_or_init(|| (before.clone(), both()));
        if Arc::ptr_eq(to, before) { made.clone() } else { both() }
    }
}

impl Endpoint {
    /// The rank enters a block.
    pub(crate) fn enter(&self, block: u32) {
        let mut departed = self.departed.lock();
        // Those whose processes are gone stay so.
        let Departed { ranks, .. } = std::mem::take(&mut *departed);
        departed.ranks = ranks.iter().copied().filter(|rank| self.world.is_dead(*rank)).collect();
        departed.first = self.next_context();
        self.world.memory.bell(self.rank).departed.store(0, Relaxed);
        self.world.set_state(self.rank, block, state::INSIDE);
    }

    /// The rank leaves the block, properly or not. From then on it takes part in no agreement.
    pub(crate) fn leave(&self, block: u32, state: u64) {
        self.acts();
        let _nobody_proposes = self.departed.lock();
        self.world.memory.head(self.rank).goes_on.store(0, Relaxed);
        self.world.set_state(self.rank, block, state);
    }

    /// Does something that the rank must not do any more once others see that it has left the
    /// block.
    pub(super) fn while_inside(
        &self,
        block: u32,
        call: &Call<'_>,
        act: impl FnOnce(),
    ) -> Result<()> {
        let _stays = self.departed.lock();
        if self.world.has_ended(self.rank, block) {
            let why = "the rank has left the block to which this communicator belongs";
            return Err(Error::argument(format!("{call}: {why}")));
        }
        act();
        Ok(())
    }

    /// The rank goes on with communicator `next`, in which these members of `scope` are not.
    pub(crate) fn go_on(&self, scope: &Scope, next: &Scope, without: &EndedRanks) {
        if without.ranks.is_empty() && self.first_fault(scope).is_none() {
            return;
        }
        let mut departed = self.departed.lock();
        departed.ranks = without.added_to(&departed.ranks);
        if next.context > departed.newest {
            (departed.newest, departed.area) = (next.context, next.area);
        }
        departed.primary |= scope.is_primary();
    }

    /// Whether something has been lost in this block: the calls of its ranks need not match.
    pub(crate) fn has_lost(&self) -> bool {
        let departed = self.departed.lock();
        departed.newest != 0 || !departed.ranks.is_empty()
    }

    /// The messages that must have been received by the end of this block: not those in
    /// communicators that were given up.
    pub(super) fn messages_of(&self, block: u32) -> Messages {
        let departed = self.departed.lock();
        let first = departed.newest.max(departed.first);
        Messages { block: u64::from(block), first, primary: departed.newest == 0 }
    }

    /// Whom this rank waits for at the end of a block, and whose failure it must tell then.
    pub(super) fn scope_of_the_end(&self, block: u32) -> Scope {
        let departed = self.departed.lock();
        let size = self.world.size();
        let group = if departed.ranks.is_empty() {
            Group::World(size)
        } else {
            let stays = |rank: &usize| departed.ranks.binary_search(rank).is_err();
            Group::of((0..size).filter(stays))
        };
        let (context, area) = match departed.primary {
            true => (departed.newest, departed.area),
            false => (u64::from(block), area_of(block)),
        };
        let scope = Scope::new(context, block, area, group.clone(), group);
        Scope { held: false, ..scope }
    }
}
