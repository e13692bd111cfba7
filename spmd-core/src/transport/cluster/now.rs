//! What the leader of a process is doing in a communicator that spans processes, for the failure
//! detector.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};

use super::detector::state::{Progress, Wait, WaitTarget};
use super::rounds::Rounds;
use crate::transport::shared::World;
use crate::transport::shared::layout::SLOTS;

/// From which bit on the number of rounds tells their track: no program makes so many communicators
/// that their numbers come to that.
const TRACK_SHIFT: u32 = 61;

/// The rounds of one communicator in one process. Written by its leader, two words a round; the
/// rest is in the leader's slots.
pub(crate) struct Now {
    context: u64,
    /// Which track of its started calls this is; 0 for all other calls.
    track: usize,
    /// The rank that leads, and its area of the communicator.
    leader: usize,
    area: usize,
    /// The leaders of all processes.
    leaders: Arc<[u32]>,
    /// The last round that was begun.
    begun: AtomicU64,
    /// The round that the leader waits in, or 0.
    inside: AtomicU64,
}

impl Now {
    pub(super) fn new(context: u64, area: usize, leader: usize, leaders: Arc<[u32]>) -> Now {
        let (track, begun, inside) = Default::default();
        Now { context, track, leader, area, leaders, begun, inside }
    }

    /// What the same leader does on a track, on this area.
    pub(super) fn on_track(&self, track: usize, area: usize) -> Now {
        Now { track, ..Now::new(self.context, area, self.leader, self.leaders.clone()) }
    }

    /// The leader is about to wait for the others in this round, which its slot shows.
    #[inline]
    pub(crate) fn begin(&self, round: u64) {
        self.begun.store(round, Release);
        self.inside.store(round, Release);
    }

    #[inline]
    pub(crate) fn end(&self) {
        self.inside.store(0, Release);
    }

    /// The last round that was begun.
    pub(super) fn begun(&self) -> u64 {
        self.begun.load(Acquire)
    }

    /// The calls so far, as the leader sees them.
    pub(super) fn rounds(&self, world: &World) -> Rounds {
        Rounds::of(world, self.leader, self.area, self.begun.load(Relaxed), SLOTS)
    }

    /// The rank that leads, and its area.
    pub(crate) fn leader(&self) -> usize {
        self.leader
    }

    pub(super) fn area(&self) -> usize {
        self.area
    }

    /// The communicator's number, and which of its tracks this is.
    pub(super) fn place(&self) -> (u64, usize) {
        (self.context, self.track)
    }

    /// A number for these rounds: the communicator's, with the track above it.
    pub(super) fn context(&self) -> u64 {
        self.context | (self.track as u64) << TRACK_SHIFT
    }

    /// The leaders of all processes.
    pub(super) fn leaders(&self) -> &[u32] {
        &self.leaders
    }

    /// How far it is, and its wait, if it waits.
    pub(super) fn snapshot(&self, world: &World) -> (Progress, Option<Wait>) {
        let mut patience = 100;
        let (progress, inside) = loop {
            let round = self.begun.load(Acquire);
            let progress = self.progress(world, round);
            let inside = self.inside.load(Acquire) == round;
            patience -= 1;
            // Slots are written again while the leader goes on.
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
            rank: self.leader as u32,
            which: (self.context(), round),
            own: self.track == 0,
            on: WaitTarget::Round { context: self.context(), round },
            takes: false,
            locks: false,
            polls: false,
            confirmed: Wait::SURE,
            call: progress.rounds.call(round).unwrap_or_default(),
        });
        (progress, wait)
    }

    fn progress(&self, world: &World, round: u64) -> Progress {
        // Of the slots, the next round may be about to use the oldest.
        let rounds = Rounds::of(world, self.leader, self.area, round, SLOTS - 1);
        let (context, leader) = (self.context(), self.leader as u32);
        let leaders = self.leaders.to_vec();
        Progress { context, leader, rounds, leaders }
    }
}
