//! What a rank has been told of.

use std::collections::VecDeque;

use crate::fault::Fault;

/// How many faults a rank remembers.
const TOLD: usize = 16;

/// The last faults that a rank has been told of: the last first.
#[derive(Debug, Default)]
pub(in crate::transport::shared) struct Told {
    faults: VecDeque<Fault>,
    /// How many cycles of waits there were among all.
    cycles: u64,
}

impl Told {
    pub(super) fn add(&mut self, fault: &Fault) {
        if !self.contains(fault) {
            self.cycles += u64::from(is_cycle(fault));
            self.faults.truncate(TOLD - 1);
            self.faults.push_front(fault.clone());
        }
    }

    pub(super) fn contains(&self, fault: &Fault) -> bool {
        self.faults.contains(fault)
    }

    /// How many cycles there were, and the last one.
    pub(super) fn cycles(&self) -> (u64, Option<Fault>) {
        (self.cycles, self.faults.iter().find(|fault| is_cycle(fault)).cloned())
    }
}

/// Whether it says that ranks wait for each other.
pub(super) fn is_cycle(fault: &Fault) -> bool {
    matches!(fault, Fault::Deadlock { .. })
}
