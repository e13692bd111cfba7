//! What processes make or decide together: subsets, and, where some may fail, who is left.

use std::collections::BTreeMap;
use std::sync::Arc;

use spmd_core::Result;
use spmd_core::transport::fabric::Processes;

use crate::net::State;
use crate::processes::{Members, Set};
use crate::wrong;

/// What a meeting is for, among the members of a set; those that meet know it by a number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Subset,
    Part,
    Consensus,
}

/// The set, what for, the number, and, of a subset, for whom.
type Key = (u64, What, u64, Vec<usize>);

/// Meetings that some member has not left.
#[derive(Default)]
pub(crate) struct Meetings {
    open: BTreeMap<Key, Meeting>,
    /// How many of each kind a member has been at.
    count: BTreeMap<(u64, What, usize), u64>,
    sets: u64,
}

/// One meeting.
#[derive(Default)]
struct Meeting {
    /// What those say who have come, by their numbers in the set.
    said: BTreeMap<usize, (bool, Vec<usize>)>,
    /// Who has been there when nobody was awaited any more.
    complete: Option<Vec<usize>>,
    /// Sets that have come of it, by their members' numbers in the world.
    made: BTreeMap<Vec<usize>, u64>,
    left: usize,
}

impl Meetings {
    /// Nobody has need of this set any more.
    pub(crate) fn forget(&mut self, set: u64) {
        self.open.retain(|(of, ..), _| *of != set);
        self.count.retain(|(of, ..), _| *of != set);
    }

    fn next(&mut self, set: u64, what: What, member: usize) -> u64 {
        let count = self.count.entry((set, what, member)).or_default();
        *count += 1;
        *count
    }
}

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

impl Members {
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
                    return survives.then(|| Err(format!("process {first} has failed")));
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
    fn of(&self, state: &mut State, key: &Key, members: &[usize]) -> Members {
        let all = &state.sets[&self.set].members;
        let members = members.iter().map(|member| all[*member]).collect();
        let set = state.make(key, members);
        Members::new(&self.net, state, self.process, set)
    }

    fn next(&self, what: What) -> u64 {
        self.net.enter(self.process).meetings.next(self.set, what, self.rank)
    }

    pub(crate) fn make_subset(&self, members: &[usize], key: u32) -> Result<Arc<dyn Processes>> {
        let key = (self.set, What::Subset, key.into(), members.to_vec());
        let said = (true, Vec::new());
        let made = |state: &mut State, key: &Key, _: &[usize]| self.of(state, key, members);
        Ok(Arc::new(self.meet(key, (members, false), said, made)?))
    }

    pub(crate) fn make_part(&self, members: &[usize]) -> Result<Option<Arc<dyn Processes>>> {
        let key = (self.set, What::Part, self.next(What::Part), Vec::new());
        let all: Vec<usize> = (0..self.size).collect();
        let made = |state: &mut State, key: &Key, _: &[usize]| {
            let some = !members.is_empty();
            some.then(|| Arc::new(self.of(state, key, members)) as Arc<dyn Processes>)
        };
        self.meet(key, (&all, false), (true, members.to_vec()), made)
    }

    pub(crate) fn make_shrunk(&self) -> Result<(Arc<dyn Processes>, Vec<usize>)> {
        let key = (self.set, What::Consensus, self.next(What::Consensus), Vec::new());
        let all: Vec<usize> = (0..self.size).collect();
        let made = |state: &mut State, key: &Key, left: &[usize]| {
            (Arc::new(self.of(state, key, left)) as Arc<dyn Processes>, left.to_vec())
        };
        self.meet(key, (&all, true), (true, Vec::new()), made)
    }

    pub(crate) fn consent(&self, yes: bool) -> Result<bool> {
        let key = (self.set, What::Consensus, self.next(What::Consensus), Vec::new());
        let all: Vec<usize> = (0..self.size).collect();
        let decided = |state: &mut State, key: &Key, there: &[usize]| {
            let said = &state.meetings.open[key].said;
            there.iter().all(|member| said[member].0)
        };
        self.meet(key, (&all, true), (yes, Vec::new()), decided)
    }
}
