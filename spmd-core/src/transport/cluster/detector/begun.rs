//! Whether all processes have begun a round of the block's own communicator.
//!
//! A process that holds itself up in a native call looks after nothing meanwhile. Where it has
//! messages under way, that must not begin before all others have begun the same round: until then
//! they may need it. So its leader asks, and the detector that diagnoses passes the question on to
//! all, each of which answers once it has begun the round.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::*;

use super::FailureDetector;
use super::thread::DetectorThread;
use super::wire::DetectorMessage;

/// A round of a block's own communicator: the block, counted from 1, and the round.
pub(super) type BlockRound = (u64, u64);

/// What processes ask for, of which none asks twice at a time.
#[derive(Default)]
pub(super) struct BegunRounds {
    /// By process: the round that this one has not begun.
    awaited: BTreeMap<usize, BlockRound>,
    /// Of the process that diagnoses, by process: how many have not begun its round.
    missing: BTreeMap<usize, usize>,
}

impl BegunRounds {
    pub(super) fn is_awaited(&self) -> bool {
        !self.awaited.is_empty()
    }
}

impl FailureDetector {
    /// Asks whether all processes have begun this round of the block's own communicator, as this
    /// one has.
    pub(in super::super) fn ask_for_round(&self, round: u64) {
        self.shared.all_begun.store(false, Release);
        self.send(DetectorMessage::AskForRound((self.block(), round)));
    }

    /// Whether they have, as far as is known.
    pub(in super::super) fn all_have_begun(&self) -> bool {
        self.shared.all_begun.load(Acquire)
    }
}

impl DetectorThread {
    /// A process, maybe this one, wants to know when all have begun a round.
    pub(super) fn pass_on_question(&mut self, asker: usize, round: BlockRound) {
        self.begun.missing.insert(asker, self.entered.len());
        self.net.send_to_all(&DetectorMessage::TellOfRound(asker, round));
        self.begun.awaited.insert(asker, round);
    }

    /// This process is asked to tell when it has begun a round.
    pub(super) fn is_asked(&mut self, asker: usize, round: BlockRound) {
        self.begun.awaited.insert(asker, round);
    }

    /// A process, maybe this one, has begun the round that the asker wants to know of.
    pub(super) fn one_has_begun(&mut self, asker: usize) {
        let Some(missing) = self.begun.missing.get_mut(&asker) else { return };
        *missing -= 1;
        if *missing > 0 {
            return;
        }
        self.begun.missing.remove(&asker);
        match asker == self.process {
            true => self.all_have_begun(),
            false => self.net.send(asker, &DetectorMessage::AllHaveBegun),
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
        let has_begun =
            |&(block, round): &BlockRound| block < entered || block == entered && round <= here;
        let awaited = self.begun.awaited.iter().filter(|(_, round)| has_begun(round));
        let begun: Vec<usize> = awaited.map(|(asker, _)| *asker).collect();
        self.begun.awaited.retain(|_, round| !has_begun(round));
        for asker in begun {
            match self.diagnoses() {
                true => self.one_has_begun(asker),
                false => self.net.send(0, &DetectorMessage::HasBegun(asker)),
            }
        }
    }
}
