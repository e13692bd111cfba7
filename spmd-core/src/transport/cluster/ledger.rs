//! What the ranks of different processes have called on communicators besides the block's own, of
//! which not all calls make them meet.
//!
//! The leader of each process tells the first of them its last calls when it drops the
//! communicator, or else at the end of the block; that one compares them with its own. It keeps
//! what it is told as long as it has the communicator itself, and its own as long as others have
//! it: as much as there are communicators that some process holds.

use std::collections::BTreeMap;

use super::compare::differences;
use super::rounds::Rounds;
use crate::fault::Fault;

/// Of one communicator, at its first leader.
#[derive(Default)]
struct Account {
    /// That leader and its own calls, and how many others have not been heard, once it is through.
    own: Option<(u32, Rounds, usize)>,
    /// What others have told.
    told: Vec<(u32, Rounds)>,
}

/// How many communicators may be open at once, so that their calls are compared.
const ACCOUNTS: usize = 1 << 16;

/// The communicators of which not all leaders are through.
#[derive(Default)]
pub(super) struct Ledger {
    accounts: BTreeMap<u64, Account>,
    /// The first difference that was found.
    pub(super) found: Option<Fault>,
    /// The block is over: nothing is told any more.
    pub(super) closed: bool,
}

impl Ledger {
    /// The first leader is through with a communicator that has so many others.
    pub(super) fn close(&mut self, context: u64, leader: u32, rounds: Rounds, others: usize) {
        let account = self.accounts.entry(context).or_default();
        account.own = Some((leader, rounds, others));
        self.compare(context);
    }

    /// Another leader is. Of communicators that nobody has here, no more is kept than [`ACCOUNTS`].
    pub(super) fn receive(&mut self, context: u64, leader: u32, rounds: Rounds) {
        if self.accounts.len() >= ACCOUNTS && !self.accounts.contains_key(&context) {
            return;
        }
        self.accounts.entry(context).or_default().told.push((leader, rounds));
        self.compare(context);
    }

    /// Compares what can be compared.
    fn compare(&mut self, context: u64) {
        let Some(Account { own: Some((leader, own, others)), told }) =
            self.accounts.get_mut(&context)
        else {
            return;
        };
        for (other, rounds) in told.drain(..) {
            *others = others.saturating_sub(1);
            if self.found.is_none() {
                let both = [(*leader as usize, own.clone()), (other as usize, rounds)];
                self.found = differences(both.into_iter(), true);
            }
        }
        if *others == 0 {
            self.accounts.remove(&context);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(prints: [u64; 2]) -> Rounds {
        let calls = prints.iter().map(|print| format!("call {print}")).collect();
        Rounds { last: 2, prints: [prints[0], prints[1], 0, 0], calls }
    }

    #[test]
    fn calls_are_compared_whoever_is_through_first_and_then_forgotten() {
        let mut ledger = Ledger::default();
        ledger.receive(7, 2, rounds([5, 4]));
        ledger.close(7, 0, rounds([5, 4]), 2);
        assert!(ledger.found.is_none() && ledger.accounts.len() == 1);
        ledger.receive(7, 1, rounds([5, 4]));
        assert!(ledger.found.is_none() && ledger.accounts.is_empty());
        ledger.close(8, 0, rounds([5, 4]), 1);
        ledger.receive(8, 1, rounds([6, 4]));
        let Some(Fault::Mismatch { calls, .. }) = &ledger.found else { panic!("none") };
        assert_eq!(calls, &["rank 0: call 5", "rank 1: call 6"]);
        assert!(ledger.accounts.is_empty());
    }

    #[test]
    fn a_lead_that_has_made_fewer_calls_is_found() {
        let mut ledger = Ledger::default();
        ledger.close(7, 0, rounds([5, 4]), 1);
        ledger.receive(
            7,
            1,
            Rounds { last: 1, prints: [4, 0, 0, 0], calls: vec!["call 4".into()] },
        );
        let Some(Fault::Mismatch { what, .. }) = &ledger.found else { panic!("none") };
        assert_eq!(what, "one rank made more calls than another");
    }
}
