//! Rounds of the block's own communicator that processes want all others to have begun.

use std::collections::BTreeMap;

/// A round of a block's own communicator: the block, counted from 1, and the round.
pub(super) type BlockRound = (u64, u64);

/// What processes ask for, of which none asks twice at a time: at most one entry for each.
#[derive(Default)]
pub(super) struct BegunRounds {
    /// By process: the round that this one has not begun.
    awaited: BTreeMap<usize, BlockRound>,
    /// Of the process that diagnoses, by process: how many have not begun its round.
    missing: BTreeMap<usize, usize>,
}

impl BegunRounds {
    /// So many processes are asked for this one.
    pub(super) fn ask(&mut self, asker: usize, processes: usize) {
        self.missing.insert(asker, processes);
    }

    /// One of those has begun the round. Whether all have.
    pub(super) fn one_has_begun(&mut self, asker: usize) -> bool {
        let Some(missing) = self.missing.get_mut(&asker) else { return false };
        *missing -= 1;
        let all = *missing == 0;
        if all {
            self.missing.remove(&asker);
        }
        all
    }

    /// This process is to tell when it has begun a round.
    pub(super) fn await_round(&mut self, asker: usize, round: BlockRound) {
        self.awaited.insert(asker, round);
    }

    pub(super) fn is_awaited(&self) -> bool {
        !self.awaited.is_empty()
    }

    /// Who has asked for rounds up to this one, and is to be told.
    pub(super) fn take_begun(&mut self, now: BlockRound) -> Vec<usize> {
        let has_begun =
            |&(block, round): &BlockRound| block < now.0 || block == now.0 && round <= now.1;
        let awaited = self.awaited.iter().filter(|(_, round)| has_begun(round));
        let begun = awaited.map(|(asker, _)| *asker).collect();
        self.awaited.retain(|_, round| !has_begun(round));
        begun
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_has_begun_when_each_process_has_said_so() {
        let mut rounds = BegunRounds::default();
        rounds.ask(1, 2);
        assert!(!rounds.one_has_begun(0) && !rounds.one_has_begun(1) && rounds.one_has_begun(1));
        assert!(!rounds.one_has_begun(1));
    }

    #[test]
    fn who_asks_is_told_once_the_round_is_there_or_the_block_is_over() {
        let mut rounds = BegunRounds::default();
        rounds.await_round(1, (2, 7));
        rounds.await_round(3, (1, 9));
        assert_eq!(rounds.take_begun((1, 8)), [0; 0]);
        assert_eq!(rounds.take_begun((2, 6)), [3]);
        assert!(rounds.is_awaited());
        assert_eq!(rounds.take_begun((2, 7)), [1]);
        assert!(!rounds.is_awaited());
    }
}
