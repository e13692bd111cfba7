//! What the lead of a process is doing in a communicator that spans processes, for the watch.

use std::sync::atomic::{AtomicU64, Ordering::*};

use super::rounds::Rounds;
use super::watch::state::{On, Progress, Wait};
use crate::transport::shared::World;
use crate::transport::shared::layout::SLOTS;

/// The rounds of one communicator in one process. Written by its lead, two words a round; the rest
/// is in the lead's slots.
pub(crate) struct Now {
    context: u64,
    /// The rank that leads, and its board of the communicator.
    lead: usize,
    board: usize,
    /// The leads of all processes.
    leads: Vec<u32>,
    /// The last round that was begun.
    begun: AtomicU64,
    /// The round that the lead waits in, or 0.
    inside: AtomicU64,
}

impl Now {
    pub(super) fn new(context: u64, board: usize, lead: usize, leads: Vec<u32>) -> Now {
        let (begun, inside) = Default::default();
        Now { context, lead, board, leads, begun, inside }
    }

    /// The lead is about to wait for the others in this round, which its slot shows.
    #[inline]
    pub(crate) fn begin(&self, round: u64) {
        self.begun.store(round, Release);
        self.inside.store(round, Release);
    }

    #[inline]
    pub(crate) fn end(&self) {
        self.inside.store(0, Release);
    }

    /// The calls so far, as the lead sees them.
    pub(super) fn rounds(&self, world: &World) -> Rounds {
        Rounds::of(world, self.lead, self.board, self.begun.load(Relaxed), SLOTS)
    }

    /// The rank that leads, and its board.
    pub(crate) fn lead(&self) -> usize {
        self.lead
    }

    pub(super) fn board(&self) -> usize {
        self.board
    }

    /// The communicator's number.
    pub(super) fn context(&self) -> u64 {
        self.context
    }

    /// The leads of all processes.
    pub(super) fn leads(&self) -> &[u32] {
        &self.leads
    }

    /// How far it is, and its wait, if it waits.
    pub(super) fn look(&self, world: &World) -> (Progress, Option<Wait>) {
        let mut patience = 100;
        let (progress, inside) = loop {
            let round = self.begun.load(Acquire);
            let progress = self.progress(world, round);
            let inside = self.inside.load(Acquire) == round;
            patience -= 1;
            // Slots are written again while the lead goes on.
            std::sync::atomic::fence(SeqCst);
            if self.begun.load(Acquire) == round {
                break (progress, inside);
            }
            if patience == 0 {
                break (
                    {
                        let rounds = Rounds { last: progress.rounds.last, ..Rounds::default() };
                        Progress { rounds, ..progress }
                    },
                    false,
                );
            }
        };
        let round = progress.rounds.last;
        let wait = (inside && round > 0).then(|| Wait {
            rank: self.lead as u32,
            which: (self.context, round),
            own: true,
            on: On::Round { context: self.context, round },
            takes: false,
            polls: false,
            confirmed: Wait::SURE,
            call: progress.rounds.call(round).unwrap_or_default(),
        });
        (progress, wait)
    }

    fn progress(&self, world: &World, round: u64) -> Progress {
        // Of the slots, the next round may be about to use the oldest.
        let rounds = Rounds::of(world, self.lead, self.board, round, SLOTS - 1);
        let (context, lead, leads) = (self.context, self.lead as u32, self.leads.clone());
        Progress { context, lead, rounds, leads }
    }
}
