//! Processes as the library knows them: steps, and what they make or decide together.

use std::sync::Arc;

use spmd_core::element::DType;
use spmd_core::op::ErasedOp;
use spmd_core::transport::fabric::{
    FabricDuplicate, FabricRequest, NativeCollective, ProcessGroup,
};
use spmd_core::{Error, Result};

use crate::meetings::{Key, What};
use crate::net::{Net, State};
use crate::plan::wrong;
use crate::processes::LoopbackGroup;
use crate::sets::Set;
use crate::steps::{kind, memory};

impl State {
    /// The set of these processes that comes of a meeting.
    fn make(&mut self, key: &Key, members: Vec<usize>) -> u64 {
        let meeting = self.meetings.open.get_mut(key).expect("this process has not left it");
        if let Some(made) = meeting.made.get(&members) {
            return *made;
        }
        self.meetings.sets += 1;
        let set = self.meetings.sets;
        meeting.made.insert(members.clone(), set);
        let mut made = Set::new(members);
        let gone = (0..self.processes()).filter(|process| !self.lives(*process));
        gone.for_each(|process| made.leave(process));
        self.sets.insert(set, made);
        set
    }

    /// This process is through with a meeting.
    fn leave(&mut self, key: &Key) {
        let Some(meeting) = self.meetings.open.get_mut(key) else { return };
        meeting.left += 1;
        if meeting.complete.as_ref().is_some_and(|all| all.len() == meeting.left) {
            self.meetings.open.remove(key);
        }
    }
}

impl LoopbackGroup {
    /// Meets `awaited`, some members of the set, and gives what `decide` makes of those that have
    /// come: all of them, or, if `living` are enough, those that live.
    fn meet<T>(
        &self,
        key: Key,
        (awaited, living): (&[usize], bool),
        said: (bool, Vec<usize>),
        decide: impl Fn(&mut State, &Key, &[usize]) -> T,
    ) -> Result<T> {
        let mut state = self.net.begin(self.process);
        let meeting = state.meetings.open.entry(key.clone()).or_default();
        meeting.said.insert(self.rank, said);
        drop(state);
        self.net.notify();
        let met = self.net.until(self.process, |state| {
            let set = &state.sets[&self.set];
            let lives = |member: &usize| state.lives(set.members[*member]);
            let meeting = &state.meetings.open[&key];
            let there = |member: &usize| meeting.said.contains_key(member);
            if meeting.complete.is_none() {
                if !living && set.revoked {
                    return Some(Err("the set was revoked".to_owned()));
                }
                let mut missing = awaited.iter().filter(|member| !there(member));
                if living {
                    missing.find(|member| lives(member)).is_none().then_some(())?;
                } else if let Some(first) = missing.next() {
                    let survives = self.net.plan.survives && !lives(first);
                    return survives
                        .then(|| Err(format!("process {} has failed", set.members[*first])));
                }
            }
            let came = |member: &&usize| there(member) && (!living || lives(member));
            let came: Vec<usize> = awaited.iter().filter(came).copied().collect();
            let meeting = state.meetings.open.get_mut(&key).expect("it is there");
            let came = meeting.complete.get_or_insert(came).clone();
            self.net.notify();
            let decided = decide(state, &key, &came);
            state.leave(&key);
            Some(Ok(decided))
        });
        met.map_err(|why| wrong("a meeting", why))
    }

    /// The set of these members of this one.
    fn of(&self, state: &mut State, key: &Key, members: &[usize]) -> LoopbackGroup {
        let all = &state.sets[&self.set].members;
        let members = members.iter().map(|member| all[*member]).collect();
        let set = state.make(key, members);
        LoopbackGroup::new(&self.net, state, self.process, set)
    }

    fn next(&self, what: What) -> u64 {
        self.net.enter(self.process).meetings.next(self.set, what, self.rank)
    }

    fn make_subset(&self, members: &[usize], key: u32) -> Result<Arc<dyn ProcessGroup>> {
        let key = (self.set, What::Subset, key.into(), members.to_vec());
        let said = (true, Vec::new());
        let made = |state: &mut State, key: &Key, _: &[usize]| self.of(state, key, members);
        Ok(Arc::new(self.meet(key, (members, false), said, made)?))
    }

    fn make_part(&self, members: &[usize]) -> Result<Option<Arc<dyn ProcessGroup>>> {
        let key = (self.set, What::Part, self.next(What::Part), Vec::new());
        let all: Vec<usize> = (0..self.size).collect();
        let made = |state: &mut State, key: &Key, _: &[usize]| {
            let some = !members.is_empty();
            some.then(|| Arc::new(self.of(state, key, members)) as Arc<dyn ProcessGroup>)
        };
        self.meet(key, (&all, false), (true, members.to_vec()), made)
    }

    /// Comes to the next meeting that duplicates the set.
    fn begin_duplicate(&self) -> Duplicate {
        let key = (self.set, What::Duplicate, self.next(What::Duplicate), Vec::new());
        let mut state = self.net.begin(self.process);
        let meeting = state.meetings.open.entry(key.clone()).or_default();
        meeting.said.insert(self.rank, (true, Vec::new()));
        drop(state);
        self.net.notify();
        let (net, process) = (self.net.clone(), self.process);
        Duplicate { net, process, key }
    }

    fn make_shrunk(&self) -> Result<(Arc<dyn ProcessGroup>, Vec<usize>)> {
        let key = (self.set, What::Consensus, self.next(What::Consensus), Vec::new());
        let all: Vec<usize> = (0..self.size).collect();
        let made = |state: &mut State, key: &Key, left: &[usize]| {
            (Arc::new(self.of(state, key, left)) as Arc<dyn ProcessGroup>, left.to_vec())
        };
        self.meet(key, (&all, true), (true, Vec::new()), made)
    }

    fn consent(&self, yes: bool) -> Result<bool> {
        let key = (self.set, What::Consensus, self.next(What::Consensus), Vec::new());
        let all: Vec<usize> = (0..self.size).collect();
        let decided = |state: &mut State, key: &Key, there: &[usize]| {
            let said = &state.meetings.open[key].said;
            there.iter().all(|member| said[member].0)
        };
        self.meet(key, (&all, true), (yes, Vec::new()), decided)
    }
}

/// A set that is being duplicated, as one of its processes has it.
struct Duplicate {
    net: Arc<Net>,
    process: usize,
    key: Key,
}

impl FabricDuplicate for Duplicate {
    fn test(&mut self) -> Result<Option<Arc<dyn ProcessGroup>>> {
        let mut state = self.net.enter(self.process);
        let members = state.set(self.key.0).members.clone();
        if state.meetings.open[&self.key].said.len() < members.len() {
            return Ok(None);
        }
        let all = (0..members.len()).collect();
        let meeting = state.meetings.open.get_mut(&self.key).expect("this process has not left it");
        meeting.complete.get_or_insert(all);
        let set = state.make(&self.key, members);
        state.leave(&self.key);
        Ok(Some(Arc::new(LoopbackGroup::new(&self.net, &state, self.process, set))))
    }
}

impl ProcessGroup for LoopbackGroup {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn subset(&self, members: &[usize], key: u32) -> Result<Arc<dyn ProcessGroup>> {
        if !members.contains(&self.rank) || members.iter().any(|member| *member >= self.size) {
            let (me, size) = (self.rank, self.size);
            let why = format!("process {me} of {size} cannot make the set {members:?}");
            return Err(Error::argument(why));
        }
        self.make_subset(members, key)
    }

    fn duplicate(&self) -> Result<Box<dyn FabricDuplicate>> {
        Ok(Box::new(self.begin_duplicate()))
    }

    fn folds(&self, dtype: &DType, op: &ErasedOp<'_>) -> bool {
        self.net.plan.folds && op.trusted() && dtype.valid.is_none()
    }

    unsafe fn run(&self, step: NativeCollective<'_>) -> Result<()> {
        // SAFETY: the caller's contract.
        unsafe { self.make(step) }
    }

    unsafe fn start<'a>(
        &'a self,
        step: NativeCollective<'a>,
    ) -> Result<Box<dyn FabricRequest + 'a>> {
        if let Some(on_device) = self.net.plan.on_device
            && memory(&step).into_iter().any(on_device)
        {
            let text = "what is begun takes no memory of devices".into();
            return Err(wrong(kind(&step).0, text));
        }
        // SAFETY: the caller's contract.
        Ok(unsafe { self.begin_polled(step) })
    }

    fn handle(&self) -> usize {
        self.set as usize
    }

    fn revoke(&self) {
        self.net.enter(self.process).set(self.set).revoked = true;
        self.net.notify();
    }

    fn part(&self, members: &[usize]) -> Result<Option<Arc<dyn ProcessGroup>>> {
        self.make_part(members)
    }

    fn shrink(&self) -> Result<(Arc<dyn ProcessGroup>, Vec<usize>)> {
        self.make_shrunk()
    }

    fn agree(&self, yes: bool) -> Result<bool> {
        self.consent(yes)
    }
}
