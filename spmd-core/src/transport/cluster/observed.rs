//! The ranks of this process in their block, as the failure detector sees them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::time::Duration;

use super::detector::Observed;
use super::detector::state::{ProcessState, Wait, WaitTarget};
use super::first_report::BLOCK;
use super::joined::Cluster;
use crate::fault::Fault;
use crate::transport::shared::agents::idle;
use crate::transport::shared::layout::{AGENTS, Agent};
use crate::transport::shared::{FaultScope, World};

/// After how many milliseconds without a poll a loop that polls is over.
const LEFT: u64 = 1000;

/// The ranks of this process, in this world.
struct Ranks {
    world: Arc<World>,
    cluster: Arc<Cluster>,
}

impl Cluster {
    /// The ranks of this process are about to enter their block.
    pub(crate) fn enter(self: &Arc<Cluster>, world: &Arc<World>) {
        self.at_exit.enter();
        let ranks = || Arc::new(Ranks { world: world.clone(), cluster: self.clone() });
        self.detector.iter().for_each(|detector| detector.enter(ranks()));
    }
}

impl Observed for Ranks {
    /// As the records in this process's arena say.
    fn state(&self) -> ProcessState {
        let Ranks { world, cluster } = self;
        // What failed processes have not sent or taken counts no more, and communicators that hold
        // some are stopped.
        let lives = |process: &usize| !cluster.has_lost(*process);
        let living = || (0..cluster.fabric.processes()).filter(lives);
        let number = |it: usize| it as u32;
        let mut state = ProcessState {
            ended: cluster.ended.load(Acquire),
            left: cluster
                .local()
                .filter(|rank| world.has_ended(*rank, BLOCK))
                .map(number)
                .collect(),
            sent: living().map(|it| (number(it), cluster.sent[it].load(Relaxed))).collect(),
            taken: living().map(|it| cluster.taken[it].load(Acquire)).sum(),
            ..ProcessState::default()
        };
        state.sent.retain(|(_, packets)| *packets > 0);
        let all = cluster.all_leaders();
        let going_on = all.iter().filter(|leaders| !cluster.has_lost_some(leaders));
        let mut led = BTreeSet::new();
        for leaders in going_on {
            let (progress, wait) = leaders.now().snapshot(world);
            let place = leaders.now().place();
            led.extend(wait.iter().map(|wait| (wait.rank, place)));
            state.waits.extend(wait);
            state.comms.push(progress);
        }
        let mut shared = Vec::new();
        for rank in cluster.local() {
            let head = world.memory.head(rank);
            match head.idle_agents.load(Relaxed) {
                idle::NOBODY => {}
                idle::RANKS => shared.push(rank as u32),
                _ => state.idle.push(rank as u32),
            }
            for slot in 0..AGENTS {
                let agent = &head.agents[slot];
                let epoch = agent.epoch.load(Acquire);
                // The leader of a round is on record already.
                let place = (agent.context.load(Relaxed), agent.track.load(Relaxed) as usize);
                let leads = led.contains(&(rank as u32, place));
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
                            (Agent::DATA, _) => WaitTarget::Nobody,
                            (_, Agent::ANY | 0) => WaitTarget::Any,
                            (_, on) => WaitTarget::Rank(on - 1),
                        },
                        takes: [Agent::MESSAGE, Agent::POLL].contains(&ended_by),
                        locks: ended_by == Agent::LOCK,
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
        if !shared.is_empty() && !cluster.local().all(waits) {
            state.idle.append(&mut shared);
        }
        state
    }

    fn begun(&self) -> u64 {
        let all = self.cluster.all_leaders();
        let own = all.iter().find(|leaders| leaders.is_primary());
        own.map_or(0, |leaders| leaders.now().begun())
    }

    fn have_ended(&self) -> bool {
        self.cluster.ended.load(Acquire)
    }

    fn timeout(&self) -> Option<Duration> {
        self.world.timeout
    }

    fn stop(&self, fault: &Fault) {
        self.world.raise(FaultScope::All, fault);
    }

    fn have_lost(&self, process: usize) -> bool {
        self.cluster.has_lost(process)
    }

    fn lose(&self, process: usize, fault: &Fault) {
        self.cluster.lose(&self.world, process, Some(fault));
    }

    fn mark_dead(&self, process: usize) {
        self.cluster.mark_dead(&self.world, process);
    }
}
