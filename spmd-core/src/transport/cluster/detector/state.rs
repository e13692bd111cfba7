//! How things stand in one process, as its detector tells the others.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::super::rounds::Rounds;

/// Most bytes of a word; [`ProcessState::cut`] keeps to it.
pub(super) const MOST: usize = 8 << 20;

/// What waits in a process, and how far it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(in super::super) struct ProcessState {
    /// No rank of it is in the block any more.
    pub(in super::super) ended: bool,
    /// Ranks that have left the block, where others of the process are still in it.
    pub(in super::super) left: Vec<u32>,
    /// Ranks that may act though their waits are on record.
    pub(in super::super) idle: Vec<u32>,
    pub(in super::super) waits: Vec<Wait>,
    /// Communicators that span processes.
    pub(in super::super) comms: Vec<Progress>,
    /// Packets that it has sent in this block: to which process, and how many.
    pub(in super::super) sent: Vec<(u32, u64)>,
    /// Packets that it has taken in this block.
    pub(in super::super) taken: u64,
    /// The time on the process's clock, in milliseconds, after all of this was looked at.
    pub(in super::super) clock: u64,
}

/// One wait of a rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in super::super) struct Wait {
    pub(in super::super) rank: u32,
    /// The same as long as it is the same wait.
    pub(in super::super) which: (u64, u64),
    /// It is the rank's own agent that waits, not one to which it gave a communicator.
    pub(in super::super) own: bool,
    pub(in super::super) on: WaitTarget,
    /// A message may end it: it looks for one, and so takes what comes to the process.
    pub(in super::super) takes: bool,
    /// A packet to any process may end it, as locks are left by packets.
    pub(in super::super) locks: bool,
    /// It is a loop that polls, which the rank may leave: only if nobody is left who could send
    /// what it polls for does it wait.
    pub(in super::super) polls: bool,
    /// When it was last seen to have to go on, on the process's clock; [`Wait::SURE`] if its rounds
    /// say so at any time.
    pub(in super::super) confirmed: u64,
    /// The call, in words.
    pub(in super::super) call: String,
}

impl Wait {
    pub(in super::super) const SURE: u64 = u64::MAX;

    /// The same as long as it is the same wait, for the same.
    pub(in super::super) fn identity(&self) -> (u32, (u64, u64), WaitTarget) {
        (self.rank, self.which, self.on)
    }
}

/// Whom a wait is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(in super::super) enum WaitTarget {
    Rank(u32),
    /// Any rank of the world.
    Any,
    /// Nobody: what it waits for is on its way.
    Nobody,
    /// The leaders of other processes, in this round of the communicator of this number.
    Round {
        context: u64,
        round: u64,
    },
}

/// How far the leader of a process is in a communicator that spans processes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in super::super) struct Progress {
    pub(in super::super) context: u64,
    /// The rank that leads here.
    pub(in super::super) leader: u32,
    /// Those that it has begun.
    pub(in super::super) rounds: Rounds,
    /// The leaders of all its processes.
    pub(in super::super) leaders: Vec<u32>,
}

impl ProcessState {
    /// The same, or without its waits and communicators where it would be too long to be told: then
    /// no rank of this process counts as one that only waits.
    pub(in super::super) fn cut(self) -> ProcessState {
        let bytes = postcard::to_allocvec(&self).map_or(usize::MAX, |bytes| bytes.len());
        match bytes < MOST / 2 {
            true => self,
            false => ProcessState { waits: Vec::new(), comms: Vec::new(), ..self },
        }
    }

    /// Whether nothing has changed since `before`, however often waits were seen to go on.
    pub(in super::super) fn is_as(&self, before: &ProcessState) -> bool {
        let waits = self.waits.iter().map(Wait::identity);
        waits.eq(before.waits.iter().map(Wait::identity)) && self.others() == before.others()
    }

    fn others(&self) -> impl PartialEq {
        (self.ended, &self.left, &self.idle, &self.comms, &self.sent, self.taken)
    }

    /// Whether something waits here that waited in the same way in `before`.
    pub(in super::super) fn has_waited_since(&self, before: &ProcessState) -> bool {
        let known: BTreeSet<_> = before.waits.iter().map(|wait| (wait.rank, wait.which)).collect();
        self.waits.iter().any(|wait| known.contains(&(wait.rank, wait.which)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_of_very_many_waits_can_be_told() {
        let wait = |rank| Wait {
            rank,
            which: (0, 1),
            own: true,
            on: WaitTarget::Any,
            takes: false,
            locks: false,
            polls: false,
            confirmed: 1,
            call: "barrier at some/long/path/of/a/source/file.rs:100".into(),
        };
        let few = ProcessState {
            waits: (0..10).map(wait).collect(),
            taken: 7,
            ..ProcessState::default()
        };
        assert_eq!(few.clone().cut(), few);
        let many = ProcessState { waits: (0..100_000).map(wait).collect(), ..few };
        let cut = many.cut();
        assert!(cut.waits.is_empty() && cut.taken == 7);
    }
}
