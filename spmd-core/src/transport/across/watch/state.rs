//! How things stand in one process, as its watch tells the others.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::*;

use serde::{Deserialize, Serialize};

use super::super::BLOCK;
use super::super::now::Rounds;
use super::wire::MOST;
use crate::transport::shared::World;
use crate::transport::shared::agents::idle;
use crate::transport::shared::layout::{AGENTS, Agent};

/// After how many milliseconds without a poll a loop that polls is over.
const LEFT: u64 = 1000;

/// What waits in a process, and how far it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(in super::super) struct State {
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
    pub(in super::super) on: On,
    /// A message may end it: it looks for one, and so takes what comes to the process.
    pub(in super::super) takes: bool,
    /// It is a loop that polls, which the rank may leave: only if nobody is left who could send what
    /// it polls for does it wait.
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
    pub(in super::super) fn identity(&self) -> (u32, (u64, u64), On) {
        (self.rank, self.which, self.on)
    }
}

/// Whom a wait is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(in super::super) enum On {
    Rank(u32),
    /// Any rank of the world.
    Any,
    /// Nobody: what it waits for is on its way.
    Nobody,
    /// The leads of other processes, in this round of the communicator of this number.
    Round {
        context: u64,
        round: u64,
    },
}

/// How far the lead of a process is in a communicator that spans processes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in super::super) struct Progress {
    pub(in super::super) context: u64,
    /// The rank that leads here.
    pub(in super::super) lead: u32,
    /// Those that it has begun.
    pub(in super::super) rounds: Rounds,
    /// The leads of all its processes.
    pub(in super::super) leads: Vec<u32>,
}

impl State {
    /// The same, or without its waits and communicators where it would be too long to be told: then
    /// no rank of this process counts as one that only waits.
    pub(in super::super) fn cut(self) -> State {
        let bytes = postcard::to_allocvec(&self).map_or(usize::MAX, |bytes| bytes.len());
        match bytes < MOST / 2 {
            true => self,
            false => State { waits: Vec::new(), comms: Vec::new(), ..self },
        }
    }

    /// As the records in this process's arena say.
    pub(in super::super) fn of(world: &World) -> State {
        let Some(across) = &world.across else { return State::default() };
        // What failed processes have not sent or taken counts no more, and communicators that hold
        // some are stopped.
        let lives = |process: &usize| !across.has_lost(*process);
        let living = || (0..across.fabric.processes()).filter(lives);
        let number = |it: usize| it as u32;
        let mut state = State {
            ended: across.ended.load(Acquire),
            left: across.local().filter(|rank| world.has_ended(*rank, BLOCK)).map(number).collect(),
            sent: living().map(|it| (number(it), across.sent[it].load(Relaxed))).collect(),
            taken: living().map(|it| across.taken[it].load(Acquire)).sum(),
            ..State::default()
        };
        state.sent.retain(|(_, packets)| *packets > 0);
        let comms: Vec<_> = across.comms.lock().iter().filter_map(|comm| comm.upgrade()).collect();
        let comms = comms.into_iter().filter(|comm| !comm.is_stopped());
        let mut led = BTreeSet::new();
        for comm in comms {
            let (progress, wait) = comm.now().look(world);
            led.extend(wait.iter().map(|wait| (wait.rank, progress.context)));
            state.waits.extend(wait);
            state.comms.push(progress);
        }
        let mut shared = Vec::new();
        for rank in across.local() {
            let head = world.memory.head(rank);
            match head.idle_agents.load(Relaxed) {
                idle::NOBODY => {}
                idle::RANKS => shared.push(rank as u32),
                _ => state.idle.push(rank as u32),
            }
            for slot in 0..AGENTS {
                let agent = &head.agents[slot];
                let epoch = agent.epoch.load(Acquire);
                // The lead of a round is on record already.
                let leads = led.contains(&(rank as u32, agent.context.load(Relaxed)));
                let ended_by = agent.ended_by.load(Relaxed);
                let confirmed = agent.confirmed.load(Acquire);
                // A loop that was left without a call.
                let over = ended_by == Agent::POLL && confirmed + LEFT < world.now_ms();
                if !epoch.is_multiple_of(2) && !leads && !over {
                    state.waits.push(Wait {
                        rank: rank as u32,
                        which: (slot as u64, epoch),
                        own: agent.own.load(Relaxed) != 0,
                        on: match (ended_by, agent.on.load(Relaxed)) {
                            (Agent::DATA, _) => On::Nobody,
                            (_, Agent::ANY | 0) => On::Any,
                            (_, on) => On::Rank(on - 1),
                        },
                        takes: [Agent::MESSAGE, Agent::POLL].contains(&ended_by),
                        polls: ended_by == Agent::POLL,
                        confirmed,
                        call: world.describe(rank, &agent.call),
                    });
                }
            }
        }
        state.clock = world.now_ms();
        // What any rank of this process may use, nobody does where all of them wait.
        let waits = |rank: usize| {
            let its = |wait: &Wait| wait.own && wait.rank as usize == rank;
            state.waits.iter().any(its) || world.has_ended(rank, world.block_of(rank))
        };
        if !shared.is_empty() && !across.local().all(waits) {
            state.idle.append(&mut shared);
        }
        state
    }

    /// Whether nothing has changed since `before`, however often waits were seen to go on.
    pub(in super::super) fn is_as(&self, before: &State) -> bool {
        let waits = self.waits.iter().map(Wait::identity);
        waits.eq(before.waits.iter().map(Wait::identity)) && self.others() == before.others()
    }

    fn others(&self) -> impl PartialEq {
        (self.ended, &self.left, &self.idle, &self.comms, &self.sent, self.taken)
    }

    /// Whether something waits here that waited in the same way in `before`.
    pub(in super::super) fn has_waited_since(&self, before: &State) -> bool {
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
            on: On::Any,
            takes: false,
            polls: false,
            confirmed: 1,
            call: "barrier at some/long/path/of/a/source/file.rs:100".into(),
        };
        let few = State { waits: (0..10).map(wait).collect(), taken: 7, ..State::default() };
        assert_eq!(few.clone().cut(), few);
        let many = State { waits: (0..100_000).map(wait).collect(), ..few };
        let cut = many.cut();
        assert!(cut.waits.is_empty() && cut.taken == 7);
    }
}
