//! Whether all processes have begun a round of the block's own communicator.
//!
//! A process that holds itself up in a native call looks after nothing meanwhile. Where it has
//! messages under way, that must not begin before all others have begun the same round: until then
//! they may need it. So its leader asks, and the detector that diagnoses passes the question on to
//! all, each of which answers once it has begun the round.

use std::sync::atomic::Ordering::*;

use super::begun::BlockRound;
use super::thread::DetectorThread;
use super::wire::DetectorMessage;

impl DetectorThread {
    /// A process, maybe this one, wants to know when all have begun a round.
    pub(super) fn pass_on_question(&mut self, asker: usize, round: BlockRound) {
        self.begun.ask(asker, self.entered.len());
        self.net.send_to_all(&DetectorMessage::TellOfRound(asker, round));
        self.begun.await_round(asker, round);
    }

    /// A process, maybe this one, has begun the round that the asker wants to know of.
    pub(super) fn one_has_begun(&mut self, asker: usize) {
        match self.begun.one_has_begun(asker) {
            true if asker == self.process => self.all_have_begun(),
            true => self.net.send(asker, &DetectorMessage::AllHaveBegun),
            false => {}
        }
    }

    /// What this process has asked for is so.
    pub(super) fn all_have_begun(&self) {
        self.shared.all_begun.store(true, Release);
    }

    /// Answers those whose rounds have begun here.
    pub(super) fn answer_for_rounds(&mut self) {
        if !self.begun.is_awaited() {
            return;
        }
        let entered = self.shared.entered.load(Acquire);
        let here = self.shared.ranks.lock().as_ref().map_or(0, |ranks| ranks.begun());
        for asker in self.begun.take_begun((entered, here)) {
            match self.diagnoses() {
                true => self.one_has_begun(asker),
                false => self.net.send(0, &DetectorMessage::HasBegun(asker)),
            }
        }
    }
}
