//! Telling the first process of a communicator what the others have called on it (`ledger.rs`).

use std::sync::atomic::Ordering::*;

use super::compare::cut_calls;
use super::first_report::nonsense;
use super::joined::Cluster;
use super::leader_group::Leaders;
use super::ledger::Ledger;
use super::packet::Packet;
use super::rounds::Rounds;
use crate::error::Result;
use crate::fault::Fault;
use crate::transport::shared::World;
use crate::transport::shared::layout::SLOTS;

impl Cluster {
    /// The leader of a communicator besides the block's own is through with it.
    pub(crate) fn close_account(&self, world: &World, leaders: &Leaders) {
        let mut ledger = self.ledger.lock();
        if !ledger.closed {
            self.send_calls(&mut ledger, world, leaders);
        }
    }

    /// The ranks of this process have left the block: the same for the communicators that are left.
    pub(super) fn close_ledger(&self, world: &World) {
        let all = self.all_leaders();
        let mut ledger = self.ledger.lock();
        ledger.closed = true;
        for leaders in all.iter().filter(|it| !it.is_primary()) {
            self.send_calls(&mut ledger, world, leaders);
        }
    }

    /// The block has ended, however: what is told now would come into the next one.
    pub(super) fn shut_ledger(&self) {
        self.ledger.lock().closed = true;
    }

    fn send_calls(&self, ledger: &mut Ledger, world: &World, leaders: &Leaders) {
        let now = leaders.now();
        if leaders.told.swap(true, AcqRel) || self.has_lost_some(leaders) {
            return;
        }
        let last = world.memory.area(now.leader(), now.area()).done.0.load(Acquire);
        let mut rounds = Rounds::of(world, now.leader(), now.area(), last, SLOTS);
        let (leader, ranks) = (now.leader() as u32, now.leaders());
        if ranks.first() == Some(&leader) {
            ledger.close(now.context(), leader, rounds, ranks.len() - 1);
            return;
        }
        cut_calls(&mut rounds);
        // What cannot be told is not compared.
        if let (Some(first), Ok(rounds)) = (ranks.first(), postcard::to_allocvec(&rounds)) {
            let packet = Packet::Calls { leader, context: now.context(), rounds: &rounds };
            let _ = self.send(self.process_of(*first as usize), &packet);
        }
    }

    /// Another process tells what its leader has called.
    pub(super) fn receive_calls(
        &self,
        from: usize,
        leader: u32,
        context: u64,
        told: &[u8],
    ) -> Result<()> {
        let rounds = postcard::from_bytes(told).ok();
        let theirs = (leader as usize) < self.size() && self.process_of(leader as usize) == from;
        let Some(rounds) = rounds.filter(|_| theirs) else {
            return Err(nonsense(from, "calls that make no sense"));
        };
        self.ledger.lock().receive(context, leader, rounds);
        Ok(())
    }

    /// The first difference that was found here.
    pub(super) fn found_in_ledger(&self) -> Option<Fault> {
        self.ledger.lock().found.clone()
    }
}
