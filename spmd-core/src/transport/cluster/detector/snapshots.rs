//! Looks at all processes, one after the other, and what they show.

use std::time::{Duration, Instant};

use super::diagnose::{self, Verdict};
use super::state::ProcessState;
use crate::fault::Fault;

/// How long packets may be on their way while all ranks wait.
pub(super) const DELIVERY: Duration = Duration::from_secs(60);

/// What is wrong.
#[derive(Debug, PartialEq)]
pub(super) enum Found {
    Wrong(Fault),
    /// So many packets do not come.
    Lost(u64),
}

/// What the looks so far have shown.
pub(super) struct Snapshots {
    /// Ranks of each process.
    each: usize,
    /// The look before, or the first since which nothing has changed: waits have the longer to be
    /// seen to go on, which is rare on busy cores.
    before: Option<Vec<ProcessState>>,
    /// The ranks that the last pair of looks has shown to be stuck.
    suspected: Option<Vec<bool>>,
    /// When packets were last seen to arrive, or none to be missing.
    flowing: Instant,
}

impl Snapshots {
    /// None yet, at processes of `each` ranks.
    pub(super) fn new(each: usize) -> Snapshots {
        Snapshots { each, before: None, suspected: None, flowing: Instant::now() }
    }

    /// What is wrong, if the next look, at all processes, and those before show that something is.
    pub(super) fn diagnose(&mut self, now: Vec<ProcessState>) -> Option<Found> {
        let before = self.before.as_deref();
        let same =
            |before: &[ProcessState]| now.iter().zip(before).all(|(now, before)| now.is_as(before));
        let unchanged = before.is_some_and(same);
        let stalled = before.and_then(|before| diagnose::stalled(self.each, before, &now));
        match diagnose::verdict(self.each, before, &now) {
            Some(Verdict::Different(fault)) => return Some(Found::Wrong(fault)),
            Some(Verdict::Stuck(ranks, fault)) => {
                let before = self.suspected.replace(ranks);
                if before == self.suspected {
                    return Some(Found::Wrong(fault));
                }
                self.before = Some(now);
            }
            None if unchanged => {}
            None => {
                self.suspected = None;
                self.before = Some(now);
            }
        }
        let Some(packets) = stalled else {
            self.flowing = Instant::now();
            return None;
        };
        (self.flowing.elapsed() >= DELIVERY).then_some(Found::Lost(packets))
    }
}

#[cfg(test)]
mod tests {
    use super::super::state::{Wait, WaitTarget};
    use super::*;

    /// Two ranks that receive from each other, at this time, seen to go on at that one.
    fn snapshot(clock: u64, confirmed: u64, taken: u64) -> Vec<ProcessState> {
        let state = |rank: u32| {
            let (own, takes, locks, polls) = (true, true, false, false);
            let call = format!("recv by {rank}");
            let on = WaitTarget::Rank(1 - rank);
            let which = (0, 1);
            let wait = Wait { rank, which, own, on, takes, locks, polls, confirmed, call };
            let sent = vec![(1 - rank, taken)];
            ProcessState { waits: vec![wait], sent, taken, clock, ..ProcessState::default() }
        };
        vec![state(0), state(1)]
    }

    fn found(snapshots: impl IntoIterator<Item = Vec<ProcessState>>) -> Option<usize> {
        let mut all = Snapshots::new(1);
        snapshots.into_iter().position(|snapshot| all.diagnose(snapshot).is_some())
    }

    #[test]
    fn waits_are_stuck_after_two_pairs_of_looks() {
        assert_eq!(found((1..9).map(|at| snapshot(at * 500, at * 500 - 10, 7))), Some(2));
    }

    #[test]
    fn waits_that_are_rarely_seen_to_go_on_are_stuck_too() {
        let rarely = |at: u64| snapshot(at * 500, at / 4 * 2000, 7);
        assert_eq!(found((1..20).map(rarely)), Some(7));
        let moving = |at: u64| snapshot(at * 500, at / 4 * 2000, at);
        assert_eq!(found((1..20).map(moving)), None);
        assert_eq!(found((1..20).map(|at| snapshot(at * 500, 0, 7))), None);
    }
}
