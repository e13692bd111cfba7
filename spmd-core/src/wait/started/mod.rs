//! The calls that an agent has started and that are not over. Each is a coroutine as soon as it has
//! its turn, which the agent resumes: in all its waits, for whatever, and when it asks whether the
//! call is over. It runs on no other thread.

mod entry;

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::ptr::null;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::bell::Bell;
use super::coroutine::{Local, Resumed};
use super::current::{self, set_started};
use super::handover::Outcome;
use super::policy::Policy;
use crate::error::Error;

pub(crate) use entry::Startable;
pub(super) use entry::{Progress, StartedEntry, goes_on, spins};

/// What an agent brings on in its waits besides calls.
pub(crate) trait Companion: Any {
    /// Goes on. Whether something has come of it that others may wait for.
    fn go_on(&self) -> bool;
    /// Whether nothing is left, nor has failed without anybody knowing.
    fn is_settled(&self) -> bool;
    /// Whether nothing is left to do.
    fn is_over(&self) -> bool;
    /// What went wrong without anybody knowing, first.
    fn take_failure(&self) -> Option<Error>;
    /// Waits until nothing is left to do, and tells others of it.
    fn finish(&self);
    /// Gives up what it can.
    fn give_up(&self);
    /// Where the bell lies that is rung for it; and whether nobody may ring it.
    fn bell(&self) -> (usize, bool);
}

/// For how long calls go on without their slow checks in a program that only asks for their end.
const SWEEP: Duration = Duration::from_millis(20);

thread_local! {
    /// A set that is not in use.
    static SPARE: Cell<Option<Box<Set>>> = const { Cell::new(None) };
}

/// Those of an agent. There is a set only as long as it is not empty; `current.rs` keeps it.
struct Set {
    /// Those that are not over, or have failed without anybody knowing.
    calls: RefCell<Vec<Rc<StartedEntry>>>,
    companions: RefCell<Vec<Rc<dyn Companion>>>,
    /// When they last made their slow checks.
    swept: Cell<Instant>,
    /// How many passes look at it, each within the one before: what ends in one may wait.
    passes: Cell<usize>,
}

/// A pass that looks at a set, which stays meanwhile.
struct Passing<'a>(&'a Set);

impl<'a> Passing<'a> {
    fn begin(set: &'a Set) -> Passing<'a> {
        set.passes.set(set.passes.get() + 1);
        Passing(set)
    }
}

impl Drop for Passing<'_> {
    fn drop(&mut self) {
        self.0.passes.set(self.0.passes.get() - 1);
    }
}

impl Set {
    /// Those from there on that other threads have carried out, in the order in which they ended.
    #[cold]
    fn all_ended_elsewhere(&self, from: usize) -> Vec<Rc<StartedEntry>> {
        let calls = self.calls.borrow();
        let ended = calls[from..].iter().filter_map(|it| Some((it.ended_elsewhere()?, it)));
        let mut ended: Vec<_> = ended.collect();
        ended.sort_by_key(|(place, _)| *place);
        ended.into_iter().map(|(_, it)| it.clone()).collect()
    }

    fn is_empty(&self) -> bool {
        self.calls.borrow().is_empty() && self.companions.borrow().is_empty()
    }
}

/// The set of the agent that runs here.
fn set<'a>() -> Option<&'a Set> {
    // SAFETY: `make_set` alone says what has been started, by a pointer to a set that it has made and
    // that lives until `keep` takes it back, which it does not while a pass looks at it. This
    // module's functions use what they get here no longer than to their next `pass` or `keep`, and
    // `pass` within its `Passing`. A set belongs to one agent, and so to one thread.
    unsafe { current::started().cast::<Set>().as_ref() }
}

/// Adds a call to those of the agent that runs here, which is no started call.
pub(super) fn insert(going: Rc<StartedEntry>) {
    if let Some(set) = set() {
        set.calls.borrow_mut().push(going);
        return;
    }
    make_set().calls.borrow_mut().push(going);
}

/// The set of the agent that runs here, which has none, and is no started call.
fn make_set<'a>() -> &'a Set {
    let new = || {
        let (calls, companions, passes) = Default::default();
        Box::new(Set { calls, companions, swept: Cell::new(Instant::now()), passes })
    };
    let made = SPARE.try_with(Cell::take).ok().flatten().unwrap_or_else(new);
    set_started(Box::into_raw(made).cast_const().cast());
    set().expect("just made")
}

/// Adds a companion to those of the agent that runs here, which is no started call.
pub(super) fn add_companion(companion: Rc<dyn Companion>) {
    set().unwrap_or_else(make_set).companions.borrow_mut().push(companion);
}

/// The companion of this kind of the agent that runs here, for this bell, if there is one.
#[inline]
pub(super) fn companion<C: Companion>(bell: usize) -> Option<Rc<C>> {
    let companions = set()?.companions.borrow();
    let mut its = companions.iter().filter(|companion| companion.bell().0 == bell);
    its.find_map(|companion| (companion.clone() as Rc<dyn Any>).downcast().ok())
}

/// Those of the agent that runs here.
fn companions() -> Vec<Rc<dyn Companion>> {
    set().map_or_else(Vec::new, |set| set.companions.borrow().clone())
}

/// Goes on with the only call of the agent that runs here, a thread, which waits for nothing else: this
/// one, or any. The call looks as often for what it waits for as the thread would, before it gives
/// that back.
pub(super) fn go_on_alone(call: Option<&Rc<StartedEntry>>, policy: &Policy) {
    let only = |set: &Set| {
        let calls = set.calls.borrow();
        let [only] = &**calls else { return None };
        let alone = set.companions.borrow().is_empty();
        let right = call.is_none_or(|call| Rc::ptr_eq(only, call));
        (alone && right).then(|| only.clone())
    };
    if let Some(call) = set().and_then(only)
        && call.resume_with_patience(policy.patience(call.bell.1).0).ended
    {
        settle();
    }
}

/// Goes on with each call that whoever runs here has started. Where one is over by it, another one
/// may be able to go on.
pub(super) fn pass(why: Resumed) -> Progress {
    let Some(set) = set() else { return Progress::default() };
    let passing = Passing::begin(set);
    let (mut next, mut made) = (0, Progress::default());
    let mut beside = 0;
    loop {
        let Some(companion) = set.companions.borrow().get(beside).cloned() else { break };
        if why == Resumed::Refused {
            companion.give_up();
        }
        made.went_on |= companion.go_on();
        made.ended |= companion.is_settled();
        beside += 1;
    }
    // Those that are added meanwhile, by companions, are new; where some are taken away, by a pass
    // within, the next pass sees what this one has missed.
    loop {
        let Some(going) = set.calls.borrow().get(next).cloned() else { break };
        if going.ended_elsewhere().is_some() {
            // With it all others that are over, in the order in which they ended.
            made.ended = true;
            for ended in set.all_ended_elsewhere(next) {
                ended.resume(why);
            }
        }
        let Progress { ended, went_on } = going.resume(why);
        made.ended |= ended;
        made.went_on |= went_on;
        next += 1;
    }
    let empty = set.is_empty();
    drop(passing);
    if made.ended || empty {
        settle();
    }
    made
}

/// Forgets those of the agent that runs here of which nothing is left.
pub(crate) fn settle() {
    keep(|going| !going.is_settled());
}

/// Forgets all of the agent that runs here but those.
fn keep(mut keeps: impl FnMut(&Rc<StartedEntry>) -> bool) {
    let Some(set) = set() else { return };
    let (idle, busy): (Vec<_>, Vec<_>) =
        companions().into_iter().partition(|companion| companion.is_settled());
    set.companions.replace(busy);
    // What is forgotten may be the last of what it used, and its end anything.
    let forgotten: Vec<_> = set.calls.borrow_mut().extract_if(.., |going| !keeps(going)).collect();
    if set.is_empty() && set.passes.get() == 0 {
        let set = set_started(null()).cast_mut().cast::<Set>();
        // SAFETY: `make_set` has made it a pointer of a box. It is taken back here alone, and nobody
        // finds it any more; `set` from above is not used any more.
        let set = unsafe { Box::from_raw(set) };
        let _ = SPARE.try_with(|spare| spare.set(Some(set)));
    }
    drop((forgotten, idle));
}

/// Makes what a thread needs for its calls to the end, if it is not there.
pub(super) fn prepare() {
    entry::prepare();
    SPARE.with(|_| ());
}

/// Whether all are over that the agent that runs here has started and that wait on this bell, or on
/// any.
pub(crate) fn all_over(bell: Option<Bell<'_>>) -> bool {
    let place = bell.map(|bell| bell.place());
    let other = |of: usize| place.is_some_and(|place| place != of);
    let over = |going: &Rc<StartedEntry>| other(going.bell.0) || going.is_over();
    let idle = |companion: &Rc<dyn Companion>| other(companion.bell().0) || companion.is_over();
    set().is_none_or(|set| {
        set.calls.borrow().iter().all(over) && set.companions.borrow().iter().all(idle)
    })
}

/// Waits until companions of the agent that runs here, of this bell or of any, have nothing left to
/// do.
pub(crate) fn finish(bell: Option<Bell<'_>>) {
    let own = |place: usize| bell.is_none_or(|bell| bell.place() == place);
    let companions = companions().into_iter().filter(|companion| own(companion.bell().0));
    companions.for_each(|companion| companion.finish());
}

/// Forgets these, which are over, and gives the first of what nobody knows of how they ended.
pub(crate) fn unknown_failure(bell: Option<Bell<'_>>) -> Option<Outcome> {
    let (mut first, place) = (None, bell.map(|bell| bell.place()));
    for companion in companions() {
        if place.is_none_or(|place| place == companion.bell().0) {
            first = first.or(companion.take_failure().map(|error| Ok(Err(error))));
        }
    }
    keep(|going| {
        let forgotten = place.is_none_or(|place| place == going.bell.0);
        if forgotten && first.is_none() {
            first = going.outcome.take().filter(|outcome| !matches!(outcome, Ok(Ok(()))));
        }
        !forgotten
    });
    first
}

/// The same, with their slow checks.
pub(super) fn sweep() -> Progress {
    let Some(set) = set() else { return Progress::default() };
    set.swept.set(Instant::now());
    Local::read_clock();
    pass(Resumed::Sweep)
}

/// The same, with their slow checks if these have not been made for long.
pub(crate) fn go_on() {
    match set() {
        Some(set) if set.swept.get().elapsed() > SWEEP => sweep(),
        _ => pass(Resumed::Woken),
    };
}

/// Whether there is a call of which nobody tells whoever sleeps on the bell at this place, or,
/// without one, a virtual rank that is suspended.
pub(super) fn poll(place: Option<usize>) -> bool {
    set().is_some_and(|set| {
        let untold = |going: &Rc<StartedEntry>| match place {
            Some(place) => going.bell.1 || going.bell.0 != place,
            None => going.polls.get(),
        };
        let beside = |companion: &Rc<dyn Companion>| {
            let (bell, polls) = companion.bell();
            polls || place.is_some_and(|place| place != bell)
        };
        set.calls.borrow().iter().any(untold) || set.companions.borrow().iter().any(beside)
    })
}
