//! The last rounds of a rank in a communicator, by which processes compare their calls.

use std::sync::atomic::Ordering::*;

use serde::{Deserialize, Serialize};

use crate::transport::shared::World;
use crate::transport::shared::layout::SLOTS;

/// The last rounds of a rank on one of its areas: their fingerprints and calls, the last first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Rounds {
    pub(super) last: u64,
    pub(super) prints: [u64; SLOTS],
    pub(super) calls: Vec<String>,
}

impl Rounds {
    /// So many at most.
    pub(super) fn of(world: &World, rank: usize, area: usize, last: u64, most: usize) -> Rounds {
        let page = world.memory.area(rank, area);
        let mut rounds = Rounds { last, ..Rounds::default() };
        for (back, print) in rounds.prints.iter_mut().enumerate().take(most) {
            let Some(round) = last.checked_sub(back as u64).filter(|round| *round > 0) else {
                break;
            };
            let slot = &page.slots[(round % SLOTS as u64) as usize];
            *print = slot.fingerprint.load(Relaxed);
            rounds.calls.push(world.describe(rank, &slot.call));
        }
        rounds
    }

    /// The first round that both have begun, and still have on record, in which their calls differ.
    pub(super) fn first_difference(&self, other: &Rounds) -> Option<u64> {
        let last = self.last.min(other.last);
        let first = self.last.max(other.last).saturating_sub(SLOTS as u64 - 1).max(1);
        let print = |it: &Rounds, round: u64| it.prints[(it.last - round) as usize];
        (first..=last).find(|round| {
            let (one, other) = (print(self, *round), print(other, *round));
            one != 0 && other != 0 && one != other
        })
    }

    /// The call of a round.
    pub(super) fn call(&self, round: u64) -> Option<String> {
        self.calls.get(self.last.checked_sub(round)? as usize).cloned()
    }
}
