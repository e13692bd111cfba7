//! Finds ranks that wait for each other in a cycle.
//!
//! From one sleeper, the ranks that could release it are followed through the records of
//! [`super::layout::Agent`]. If every rank reached sleeps or has ended, none of them can act: the
//! set is a suspicion. It becomes a verdict when a later search finds the same waits (same
//! epochs) and every member has, after the first search, looked at its own condition once more
//! and found it false. Nothing is in flight then: whatever a member had sent, it sent before it
//! went to sleep, so before the first search, and the receiver has looked since. A member that
//! was released in between would have another epoch.
//!
//! Of the ranks that wait for each other one searches for all, the one that is *first* in an order
//! by a hash of the ranks: a search that comes to a rank before its own leaves the rest to that
//! one, if that waits in the same communicator. Then it sees all that it depends on itself, and no
//! more: what an [`Agent::ANY`] stands for depends on the communicator of who searches. In a cycle
//! of n, a search so comes to some log n ranks, where each of thousands that looked at all would
//! take longer than the program. A search that must come to all ranks of the process, whatever
//! these wait for, is one for all of them ([`Turn`]): they take turns, in a small part of the time,
//! and go on from what the one before has found.

use std::cell::Cell;
use std::collections::HashSet;
use std::sync::atomic::Ordering::*;

use super::agents::{Wait, idle};
use super::endpoint::Endpoint;
use super::layout::{AGENTS, Agent};
use super::suspicion::{Suspicion, Turn};
use crate::fault::Fault;
use crate::group::Scope;
use crate::hash::mix;
use crate::mode::Mode;

/// A rank's place among those that could search.
fn order(rank: usize) -> u64 {
    mix(rank as u64)
}

/// A cycle of waits.
pub(super) struct Cycle {
    pub(super) fault: Fault,
    /// Waits of others that must be told, as what stops the communicator of this rank's wait does
    /// not end them. One for each communicator: its owner stops that.
    pub(super) others: Vec<Wait>,
}

/// How many waits a verdict can name. Who is not named is told with others of its communicator, or
/// learns that a rank has ended, or finds what is left of the cycle.
const NAMED: usize = 60;

impl Endpoint {
    /// Looks for a cycle that the wait in this record of the rank is in. Gives a suspicion to bring
    /// along next time.
    pub(super) fn search_deadlock(
        &self,
        scope: &Scope,
        slot: usize,
        earlier: Option<Suspicion>,
    ) -> Result<Option<Suspicion>, Cycle> {
        let Some((waits, mut turn)) = self.closed_set(scope) else { return Ok(None) };
        let earlier = turn.as_mut().map_or(earlier, |turn| turn.wide.earlier.take());
        let mut keep = |suspicion| match &mut turn {
            Some(turn) => {
                turn.wide.earlier = Some(suspicion);
                Ok(None)
            }
            None => Ok(Some(suspicion)),
        };
        let Some(earlier) = earlier.filter(|earlier| earlier.waits == waits) else {
            return keep(Suspicion { since: self.world.now_ms(), waits });
        };
        let head = |rank: usize| self.world.memory.head(rank);
        let confirmed = waits.iter().all(|&(rank, slot, epoch)| {
            let agent = &head(rank).agents[slot];
            // Of who else may act it has shown with that what was so since.
            agent.confirmed.load(Acquire) > earlier.since
                && agent.epoch.load(Acquire) == epoch
                && head(rank).idle_agents.load(Relaxed) != idle::ANYBODY
        });
        if !confirmed {
            return keep(earlier);
        }
        turn.iter_mut().for_each(|turn| turn.found = true);
        // What waits for the end of a started call is told with that, and ends with it.
        let mut waits = waits;
        waits.retain(|&(rank, slot, _)| {
            head(rank).agents[slot].ended_by.load(Relaxed) != Agent::STARTED
        });
        // Those who listen for tasks wait for nothing of the program's.
        let listens = self.tasks.get().and_then(|tasks| tasks.listens_on());
        let named = waits.iter().filter(|&&(rank, slot, _)| {
            Some(head(rank).agents[slot].context.load(Relaxed)) != listens
        });
        let calls = named.map(|&(rank, slot, _)| {
            let agent = &head(rank).agents[slot];
            (rank, self.world.describe(rank, &agent.call))
        });
        let fault = Fault::Deadlock { calls: crate::fault::by_call(calls) };
        let mut told = vec![scope.context];
        let mut others = waits;
        others.retain(|&(rank, at, _)| {
            let agent = &head(rank).agents[at];
            let context = agent.context.load(Relaxed);
            let known = told.contains(&context);
            if !known {
                told.push(context);
            }
            (rank, at) != (self.rank, slot) && (!known || agent.steadfast.load(Relaxed) != 0)
        });
        others.truncate(NAMED);
        Err(Cycle { fault, others })
    }

    /// All waits that the waits of this rank depend on, sorted, with the turn that this took if
    /// these are the waits of all ranks; `None` if a rank among them can still act, or searches for
    /// all.
    fn closed_set(&self, scope: &Scope) -> Option<(Vec<Wait>, Option<Turn<'_>>)> {
        let world = &self.world;
        let mut turn: Option<Turn<'_>> = None;
        let acts = Cell::new(self.rank);
        let mut waits = Vec::new();
        let mut reached = HashSet::from([self.rank]);
        let mut open = vec![self.rank];
        // Whether all members of the communicator, or of the world, or all ranks of this process,
        // have been followed already.
        let (mut members, mut everybody, mut neighbours) = (false, false, false);
        while let Some(rank) = open.pop() {
            let head = world.memory.head(rank);
            // Whether the search goes on.
            let mut follow = |next: usize| {
                let new = next < world.size() && reached.insert(next);
                if !new || world.has_ended(next, scope.block) {
                    return true;
                }
                open.push(next);
                let Some(here) = world.waits_in(next, scope.context) else {
                    acts.set(next);
                    return false;
                };
                order(next) >= order(self.rank) || !here
            };
            match head.idle_agents.load(Relaxed) {
                idle::NOBODY => {}
                // Other processes cannot have it.
                idle::RANKS if world.mode == Mode::Processes => {}
                idle::RANKS if std::mem::replace(&mut neighbours, true) => {}
                idle::RANKS => {
                    turn = Some(turn.or_else(|| Turn::now(&world.wide))?);
                    let turn = turn.as_mut()?;
                    let acted = Some(turn.wide.acted).filter(|rank| world.local().contains(rank));
                    if !acted.into_iter().chain(world.local()).all(&mut follow) {
                        turn.wide.acted = acts.get();
                        return None;
                    }
                }
                _ => return None,
            }
            let mut own = false;
            for slot in 0..AGENTS {
                let agent = &head.agents[slot];
                let epoch = agent.epoch.load(Acquire);
                if epoch.is_multiple_of(2) {
                    continue;
                }
                waits.push((rank, slot, epoch));
                own |= agent.own.load(Relaxed) != 0;
                let alone = match agent.on.load(Acquire) {
                    0 => return None,
                    // Any member: the group of another communicator is not known here, so any
                    // rank of the world counts as a possible sender.
                    Agent::ANY if agent.context.load(Acquire) != scope.context => {
                        turn = Some(turn.or_else(|| Turn::now(&world.wide))?);
                        std::mem::replace(&mut everybody, true)
                            || (0..world.size()).all(&mut follow)
                    }
                    Agent::ANY => {
                        std::mem::replace(&mut members, true) || scope.group.iter().all(&mut follow)
                    }
                    on => follow(on as usize - 1),
                };
                if !alone {
                    return None;
                }
            }
            // The rank's own agent computes, or waits for a block of its own to end.
            if !own {
                return None;
            }
        }
        waits.sort_unstable();
        Some((waits, turn))
    }

    /// Shows who besides the waits on record may use a communicator of this rank: one that the
    /// program made, on which nobody waits, may be in the hands of any thread of this process.
    /// Where all of these run ranks of this world, or wait for a block to end, these ranks are
    /// asked. A task that waits for another one is not on record: where none can go on, any thread may
    /// still have its handle.
    pub(super) fn show_idle_agents(&self) {
        let world = &self.world;
        // What it waits for tasks of other ranks of this process may do as well as its own.
        let fetches = self.fetches.load(Relaxed) != 0;
        let tasks = self.tasks.get().filter(|tasks| fetches || !tasks.all_over());
        // Without any of its own, it knows nothing of others.
        let may_act = tasks.map_or(fetches, |tasks| tasks.may_act());
        // Who listens for tasks has something to do while it is not on record.
        let listens = self.tasks.get().and_then(|tasks| tasks.listens_on());
        let serves = listens.is_some_and(|context| {
            let waits = |agent: &Agent| {
                !agent.epoch.load(Acquire).is_multiple_of(2)
                    && agent.context.load(Relaxed) == context
            };
            !world.memory.head(self.rank).agents.iter().any(waits)
        });
        let who = if self.agents.has_unrecorded() || may_act || serves {
            idle::ANYBODY
        } else if tasks.is_none() && self.extra_comms.load(Relaxed) <= self.agents.on_extra() {
            idle::NOBODY
        } else if world.nobody_else_runs() {
            idle::RANKS
        } else {
            idle::ANYBODY
        };
        world.memory.head(self.rank).idle_agents.store(who, Relaxed);
    }
}
