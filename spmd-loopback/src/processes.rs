//! Sets of processes, and the steps that they make together.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use spmd_core::element::DType;
use spmd_core::op::ErasedOp;
use spmd_core::transport::fabric::{Processes, Started, Step};
use spmd_core::{Error, Result};

use crate::net::{Net, State};
use crate::steps::{Brought, brought, deliver, kind, needs};
use crate::wrong;

/// How many steps of a set may be under way. A process that is so far ahead of another one waits in
/// its step, though that may have no need of it.
const UNDER_WAY: u64 = 16;

/// Some processes, by their numbers in the world, and the steps that are under way among them.
pub(crate) struct Set {
    pub(crate) members: Vec<usize>,
    pub(crate) revoked: bool,
    /// Who has ended, or has no need of it any more.
    left: Vec<bool>,
    /// The next step of each.
    next: Vec<u64>,
    /// The number of the first one that is under way.
    first: u64,
    steps: VecDeque<Underway>,
}

/// A step that some member has not ended.
struct Underway {
    brought: Vec<Option<Brought>>,
    arrivals: Vec<Option<Instant>>,
    ended: Vec<bool>,
}

impl Set {
    pub(crate) fn new(members: Vec<usize>) -> Set {
        let (left, next) = (vec![false; members.len()], vec![0; members.len()]);
        Set { members, revoked: false, left, next, first: 0, steps: VecDeque::new() }
    }

    /// The number of the next step of a member, for which there is a place then.
    fn begin(&mut self, member: usize) -> u64 {
        let number = self.next[member];
        self.next[member] += 1;
        let size = self.members.len();
        while self.first + self.steps.len() as u64 <= number {
            let brought = (0..size).map(|_| None).collect();
            let (arrivals, ended) = (vec![None; size], vec![false; size]);
            self.steps.push_back(Underway { brought, arrivals, ended });
        }
        number
    }

    fn step(&mut self, number: u64) -> &mut Underway {
        &mut self.steps[(number - self.first) as usize]
    }

    fn end(&mut self, number: u64, member: usize) {
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
        let over = |step: &Underway| {
            step.ended.iter().zip(&self.left).all(|(ended, left)| *ended || *left)
        };
        while self.steps.front().is_some_and(over) {
            self.steps.pop_front();
            self.first += 1;
        }
    }
}

/// A set as one of its processes has it.
pub(crate) struct Members {
    pub(crate) net: Arc<Net>,
    pub(crate) process: usize,
    pub(crate) set: u64,
    /// This process among them, and how many there are.
    pub(crate) rank: usize,
    pub(crate) size: usize,
}

impl Members {
    /// The set of this number, as `process` has it, which belongs to it.
    pub(crate) fn new(net: &Arc<Net>, state: &State, process: usize, set: u64) -> Members {
        let members = &state.sets[&set].members;
        let rank = members.iter().position(|member| *member == process);
        let (rank, size) = (rank.expect("it belongs to the set"), members.len());
        Members { net: net.clone(), process, set, rank, size }
    }

    fn begin(&self, step: Step<'_>) -> Begun<'_> {
        // SAFETY: what is readable for the step is until it is complete, by the contract of `start`.
        let brought = unsafe { brought(&step, self.rank, self.size) };
        let mut state = self.net.begin(self.process);
        let arrival = state.arrival(self.net.plan.delay);
        let set = state.set(self.set);
        let number = set.begin(self.rank);
        let place = set.step(number);
        (place.brought[self.rank], place.arrivals[self.rank]) = (Some(brought), Some(arrival));
        drop(state);
        self.net.notify();
        Begun { members: self, number, ended: false }
    }
}

impl State {
    pub(crate) fn set(&mut self, set: u64) -> &mut Set {
        self.sets.get_mut(&set).expect("it is there while a member has it")
    }

    /// Whether the step of this number is complete for the member whose it is, which has been given
    /// then what it is to get.
    ///
    /// # Safety
    /// As [`deliver`].
    unsafe fn look(
        &mut self,
        members: &Members,
        number: u64,
        step: &Step<'_>,
    ) -> Option<Result<()>> {
        let (me, survives) = (members.rank, members.net.plan.survives);
        let set = &self.sets[&members.set];
        let place = &set.steps[(number - set.first) as usize];
        let what = kind(step);
        if set.revoked {
            return Some(Err(wrong(what.0, "the set was revoked".into())));
        }
        let (now, mut waits) = (Instant::now(), number - set.first >= UNDER_WAY);
        for other in (0..set.members.len()).filter(|other| needs(step, me, *other)) {
            let process = set.members[other];
            let arrived = place.arrivals[other].is_some_and(|arrival| arrival <= now);
            match &place.brought[other] {
                // Messages of one kind of step are not taken for those of another one.
                Some(brought) if arrived && brought.kind == what => {
                    waits |= !self.joins(members.process, process);
                }
                None if survives && !self.lives(process) => {
                    return Some(Err(wrong(what.0, format!("process {process} has failed"))));
                }
                _ => waits = true,
            }
        }
        // SAFETY: the caller's contract.
        (!waits).then(|| unsafe { deliver(step, me, &place.brought) })
    }
}

/// A step that was begun.
struct Begun<'a> {
    members: &'a Members,
    number: u64,
    ended: bool,
}

impl Begun<'_> {
    /// # Safety
    /// As [`deliver`].
    unsafe fn look(&mut self, state: &mut State, step: &Step<'_>) -> Option<Result<()>> {
        // SAFETY: the caller's contract.
        let outcome = unsafe { state.look(self.members, self.number, step)? };
        self.ended = true;
        state.set(self.members.set).end(self.number, self.members.rank);
        self.members.net.notify();
        Some(outcome)
    }
}

/// A library takes no step back.
impl Drop for Begun<'_> {
    fn drop(&mut self) {
        if !self.ended {
            let (net, process) = (&self.members.net, self.members.process);
            net.say(process, format_args!("a collective step was given up"));
            net.abort(process, 1)
        }
    }
}

/// One that its starter polls.
struct Polled<'a> {
    begun: Begun<'a>,
    step: Step<'a>,
}

impl Started for Polled<'_> {
    fn test(&mut self) -> Result<bool> {
        let members = self.begun.members;
        let mut state = members.net.enter(members.process);
        if self.begun.ended {
            return Ok(true);
        }
        // SAFETY: the contract of `start`, until this is complete or dropped.
        let outcome = unsafe { self.begun.look(&mut state, &self.step) };
        outcome.map_or(Ok(false), |outcome| outcome.map(|()| true))
    }
}

impl Processes for Members {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn subset(&self, members: &[usize], key: u32) -> Result<Arc<dyn Processes>> {
        if !members.contains(&self.rank) || members.iter().any(|member| *member >= self.size) {
            let (me, size) = (self.rank, self.size);
            let why = format!("process {me} of {size} cannot make the set {members:?}");
            return Err(Error::Argument(why));
        }
        self.make_subset(members, key)
    }

    fn folds(&self, dtype: &DType, op: &ErasedOp<'_>) -> bool {
        self.net.plan.folds && op.trusted() && dtype.valid.is_none()
    }

    unsafe fn run(&self, step: Step<'_>) -> Result<()> {
        let mut begun = self.begin(step);
        // SAFETY: the caller's contract.
        self.net.until(self.process, |state| unsafe { begun.look(state, &step) })
    }

    unsafe fn start<'a>(&'a self, step: Step<'a>) -> Result<Box<dyn Started + 'a>> {
        Ok(Box::new(Polled { begun: self.begin(step), step }))
    }

    fn handle(&self) -> usize {
        self.set as usize
    }

    fn revoke(&self) {
        self.net.enter(self.process).set(self.set).revoked = true;
        self.net.notify();
    }

    fn part(&self, members: &[usize]) -> Result<Option<Arc<dyn Processes>>> {
        self.make_part(members)
    }

    fn shrink(&self) -> Result<(Arc<dyn Processes>, Vec<usize>)> {
        self.make_shrunk()
    }

    fn agree(&self, yes: bool) -> Result<bool> {
        self.consent(yes)
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        let mut state = self.net.lock();
        let set = state.set(self.set);
        set.leave(self.process);
        // That of all is the fabric's.
        if self.set != 0 && set.left.iter().all(|left| *left) {
            state.sets.remove(&self.set);
            state.meetings.forget(self.set);
        }
    }
}
