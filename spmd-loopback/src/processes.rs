//! The steps that processes make together.

use std::sync::Arc;
use std::time::Instant;

use spmd_core::Result;
use spmd_core::transport::fabric::{FabricRequest, NativeCollective};

use crate::net::{Net, State};
use crate::plan::wrong;
use crate::sets::{Set, UNDER_WAY};
use crate::steps::{brought, deliver, kind, needs};

/// A set as one of its processes has it.
pub(crate) struct LoopbackGroup {
    pub(crate) net: Arc<Net>,
    pub(crate) process: usize,
    pub(crate) set: u64,
    /// This process among them, and how many there are.
    pub(crate) rank: usize,
    pub(crate) size: usize,
}

impl LoopbackGroup {
    /// The set of this number, as `process` has it, which belongs to it.
    pub(crate) fn new(net: &Arc<Net>, state: &State, process: usize, set: u64) -> LoopbackGroup {
        let members = &state.sets[&set].members;
        let rank = members.iter().position(|member| *member == process);
        let (rank, size) = (rank.expect("it belongs to the set"), members.len());
        LoopbackGroup { net: net.clone(), process, set, rank, size }
    }

    /// Makes a step, and waits for it.
    ///
    /// # Safety
    /// As [`run`](spmd_core::transport::fabric::ProcessGroup::run).
    pub(crate) unsafe fn make(&self, step: NativeCollective<'_>) -> Result<()> {
        // SAFETY: the caller's contract.
        let mut begun = unsafe { self.begin(step) };
        // SAFETY: the caller's contract.
        self.net.until(self.process, |state| unsafe { begun.look(state, &step) })
    }

    /// Begins a step.
    ///
    /// # Safety
    /// As [`start`](spmd_core::transport::fabric::ProcessGroup::start).
    pub(crate) unsafe fn begin_polled<'a>(
        &'a self,
        step: NativeCollective<'a>,
    ) -> Box<dyn FabricRequest + 'a> {
        // SAFETY: the caller's contract.
        Box::new(CollectiveRequest { begun: unsafe { self.begin(step) }, step })
    }

    /// # Safety
    /// What the step names as readable is, during this call.
    unsafe fn begin(&self, step: NativeCollective<'_>) -> StartedCollective<'_> {
        // SAFETY: this function's contract is that of `brought`.
        let brought = unsafe { brought(&step, self.rank, self.size) };
        let mut state = self.net.begin(self.process);
        let arrival = state.arrival();
        let set = state.set(self.set);
        let number = set.begin(self.rank);
        let place = set.step(number);
        (place.brought[self.rank], place.arrivals[self.rank]) = (Some(brought), Some(arrival));
        drop(state);
        self.net.notify();
        StartedCollective { members: self, number, ended: false }
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
        members: &LoopbackGroup,
        number: u64,
        step: &NativeCollective<'_>,
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
            let joined = self.joins(members.process, process);
            let arrived = place.arrivals[other].is_some_and(|arrival| arrival <= now);
            match &place.brought[other] {
                // Messages of one kind of step are not taken for those of another one.
                Some(brought) if arrived && brought.kind == what && joined => {}
                // Nor does what one has sent that was cut off before it died.
                other if (other.is_none() || !joined) && survives && !self.lives(process) => {
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
struct StartedCollective<'a> {
    members: &'a LoopbackGroup,
    number: u64,
    ended: bool,
}

impl StartedCollective<'_> {
    /// # Safety
    /// As [`deliver`].
    unsafe fn look(
        &mut self,
        state: &mut State,
        step: &NativeCollective<'_>,
    ) -> Option<Result<()>> {
        // SAFETY: the caller's contract.
        let outcome = unsafe { state.look(self.members, self.number, step)? };
        self.ended = true;
        state.set(self.members.set).end(self.number, self.members.rank);
        self.members.net.notify();
        Some(outcome)
    }
}

/// A library takes no step back.
impl Drop for StartedCollective<'_> {
    fn drop(&mut self) {
        if !self.ended {
            let (net, process) = (&self.members.net, self.members.process);
            net.print(process, format_args!("a collective step was given up"));
            net.abort(process, 1)
        }
    }
}

/// One that its starter polls.
struct CollectiveRequest<'a> {
    begun: StartedCollective<'a>,
    step: NativeCollective<'a>,
}

impl FabricRequest for CollectiveRequest<'_> {
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

impl Drop for LoopbackGroup {
    fn drop(&mut self) {
        let mut state = self.net.lock();
        let Some(set) = state.sets.get_mut(&self.set) else { return };
        set.leave(self.process);
        // That of all is the fabric's.
        if self.set != 0 && set.left.iter().all(|left| *left) {
            state.sets.remove(&self.set);
            state.meetings.forget(self.set);
        }
    }
}
