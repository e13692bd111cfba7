//! Telling the first process of a communicator what the others have called on it (`ledger.rs`).

use std::sync::atomic::Ordering::*;

use super::compare::cut_calls;
use super::joined::Across;
use super::leaders::Leaders;
use super::ledger::Ledger;
use super::packet::Packet;
use super::rounds::Rounds;
use super::said::nonsense;
use crate::error::Result;
use crate::fault::Fault;
use crate::transport::shared::World;
use crate::transport::shared::layout::SLOTS;

impl Across {
    /// The lead of a communicator besides the block's own is through with it.
    pub(crate) fn close_account(&self, world: &World, leaders: &Leaders) {
        let mut ledger = self.ledger.lock();
        if !ledger.closed {
            self.tell_calls(&mut ledger, world, leaders);
        }
    }

    /// The ranks of this process have left the block: the same for the communicators that are left.
    pub(super) fn close_ledger(&self, world: &World) {
        let all = self.all_leaders();
        let mut ledger = self.ledger.lock();
        ledger.closed = true;
        for leaders in all.iter().filter(|it| !it.is_primary()) {
            self.tell_calls(&mut ledger, world, leaders);
        }
    }

    /// The block has ended, however: what is told now would come into the next one.
    pub(super) fn shut_ledger(&self) {
        self.ledger.lock().closed = true;
    }

    fn tell_calls(&self, ledger: &mut Ledger, world: &World, leaders: &Leaders) {
        let now = leaders.now();
        if leaders.told.swap(true, AcqRel) || self.has_lost_some(leaders) {
            return;
        }
        let last = world.memory.board(now.lead(), now.board()).done.0.load(Acquire);
        let mut rounds = Rounds::of(world, now.lead(), now.board(), last, SLOTS);
        let (lead, leads) = (now.lead() as u32, now.leads());
        if leads.first() == Some(&lead) {
            ledger.close(now.context(), lead, rounds, leads.len() - 1);
            return;
        }
        cut_calls(&mut rounds);
        // What cannot be told is not compared.
        if let (Some(first), Ok(rounds)) = (leads.first(), postcard::to_allocvec(&rounds)) {
            let packet = Packet::Calls { lead, context: now.context(), rounds: &rounds };
            let _ = self.send(self.process_of(*first as usize), &packet);
        }
    }

    /// Another process tells what its lead has called.
    pub(super) fn hear_calls(
        &self,
        from: usize,
        lead: u32,
        context: u64,
        told: &[u8],
    ) -> Result<()> {
        let rounds = postcard::from_bytes(told).ok();
        let theirs = (lead as usize) < self.size() && self.process_of(lead as usize) == from;
        let Some(rounds) = rounds.filter(|_| theirs) else {
            return Err(nonsense(from, "calls that make no sense"));
        };
        self.ledger.lock().hear(context, lead, rounds);
        Ok(())
    }

    /// The first difference that was found here.
    pub(super) fn found_in_ledger(&self) -> Option<Fault> {
        self.ledger.lock().found.clone()
    }
}
