//! Meetings of processes: who has come, with what to say, and what has come of it.

use std::collections::BTreeMap;

/// What a meeting is for, among the members of a set; those that meet know it by a number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum What {
    Subset,
    Part,
    Duplicate,
    Consensus,
}

/// The set, what for, the number, and, of a subset, for whom.
pub(crate) type Key = (u64, What, u64, Vec<usize>);

/// Meetings that some member has not left.
#[derive(Default)]
pub(crate) struct Gatherings {
    pub(crate) open: BTreeMap<Key, Gathering>,
    /// How many of each kind a member has been at.
    count: BTreeMap<(u64, What, usize), u64>,
    pub(crate) sets: u64,
}

/// One meeting.
#[derive(Default)]
pub(crate) struct Gathering {
    /// What those say who have come, by their numbers in the set.
    pub(crate) said: BTreeMap<usize, (bool, Vec<usize>)>,
    /// Who has been there when nobody was awaited any more.
    pub(crate) complete: Option<Vec<usize>>,
    /// Sets that have come of it, by their members' numbers in the world.
    pub(crate) made: BTreeMap<Vec<usize>, u64>,
    pub(crate) left: usize,
}

impl Gatherings {
    /// Nobody has need of this set any more.
    pub(crate) fn forget(&mut self, set: u64) {
        self.open.retain(|(of, ..), _| *of != set);
        self.count.retain(|(of, ..), _| *of != set);
    }

    pub(crate) fn next(&mut self, set: u64, what: What, member: usize) -> u64 {
        let count = self.count.entry((set, what, member)).or_default();
        *count += 1;
        *count
    }
}
