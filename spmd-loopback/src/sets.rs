//! Sets of processes, and the steps that are under way among them.

use std::collections::VecDeque;
use std::time::Instant;

use crate::steps::Contribution;

/// How many steps of a set may be under way. A process that is so far ahead of another one waits in
/// its step, though that may have no need of it.
pub(crate) const UNDER_WAY: u64 = 16;

/// Some processes, by their numbers in the world, and the steps that are under way among them.
pub(crate) struct Set {
    pub(crate) members: Vec<usize>,
    pub(crate) revoked: bool,
    /// Who has ended, or has no need of it any more.
    pub(crate) left: Vec<bool>,
    /// The next step of each.
    next: Vec<u64>,
    /// The number of the first one that is under way.
    pub(crate) first: u64,
    pub(crate) steps: VecDeque<PendingCollective>,
}

/// A step that some member has not ended.
pub(crate) struct PendingCollective {
    pub(crate) brought: Vec<Option<Contribution>>,
    pub(crate) arrivals: Vec<Option<Instant>>,
    ended: Vec<bool>,
}

impl Set {
    pub(crate) fn new(members: Vec<usize>) -> Set {
        let (left, next) = (vec![false; members.len()], vec![0; members.len()]);
        Set { members, revoked: false, left, next, first: 0, steps: VecDeque::new() }
    }

    /// The number of the next step of a member, for which there is a place then.
    pub(crate) fn begin(&mut self, member: usize) -> u64 {
        let number = self.next[member];
        self.next[member] += 1;
        let size = self.members.len();
        while self.first + self.steps.len() as u64 <= number {
            let brought = (0..size).map(|_| None).collect();
            let (arrivals, ended) = (vec![None; size], vec![false; size]);
            self.steps.push_back(PendingCollective { brought, arrivals, ended });
        }
        number
    }

    pub(crate) fn step(&mut self, number: u64) -> &mut PendingCollective {
        &mut self.steps[(number - self.first) as usize]
    }

    pub(crate) fn end(&mut self, number: u64, member: usize) {
        self.step(number).ended[member] = true;
        self.forget_ended();
    }

    /// A process has no need of it any more.
    pub(crate) fn leave(&mut self, process: usize) {
        if let Some(member) = self.members.iter().position(|member| *member == process) {
            self.left[member] = true;
            self.forget_ended();
        }
    }

    fn forget_ended(&mut self) {
        let over = |step: &PendingCollective| {
            step.ended.iter().zip(&self.left).all(|(ended, left)| *ended || *left)
        };
        while self.steps.front().is_some_and(over) {
            self.steps.pop_front();
            self.first += 1;
        }
    }
}
