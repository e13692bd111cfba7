//! The calls that an agent has started and that are not over. Each is a coroutine, which the agent
//! resumes: in all its waits, for whatever, and when it asks whether the call is over. It runs on
//! no other thread.

use std::cell::{Cell, RefCell};
use std::ptr::null;
use std::rc::Rc;
use std::time::{Duration, Instant};

use corosensei::{Coroutine, CoroutineResult};

use super::bell::Bell;
use super::coroutine::{Local, Resumed, Suspension};
use super::current::{self, WITHIN, set_started};
use super::stack::{PooledStack, Stacks};
use super::worker::Payload;
use crate::error::Result;

pub(super) type CallCoroutine = Coroutine<Resumed, Suspension, Outcome, PooledStack>;
/// What a call gives, or its panic.
pub(super) type Outcome = Result<Result<()>, Payload>;

/// For how long calls go on without their slow checks in a program that only asks for their end.
const SWEEP: Duration = Duration::from_millis(20);

thread_local! {
    pub(super) static STACKS: RefCell<Stacks> = const { RefCell::new(Stacks::new()) };
}

/// A call that is not over, or whose outcome nobody has taken.
pub(super) struct StartedEntry {
    coroutine: RefCell<Option<CallCoroutine>>,
    pub(super) outcome: Cell<Option<Outcome>>,
    /// Where the bell lies that whoever brings it further rings.
    bell: usize,
    /// Nobody wakes it: it looks again and again.
    polls: Cell<bool>,
    /// It has been told to give up.
    refused: Cell<bool>,
}

impl StartedEntry {
    pub(super) fn new(coroutine: CallCoroutine, bell: Bell<'_>) -> StartedEntry {
        let (coroutine, outcome) = (RefCell::new(Some(coroutine)), Cell::new(None));
        let (polls, refused) = Default::default();
        StartedEntry { coroutine, outcome, bell: bell.place(), polls, refused }
    }

    /// Goes on with the call; whether it is over now.
    pub(super) fn resume(&self, why: Resumed) -> bool {
        let mut place = self.coroutine.borrow_mut();
        let Some(coroutine) = &mut *place else { return true };
        // Once: what it does then, it must do to its end.
        let why = match why {
            Resumed::Refused if self.refused.replace(true) => Resumed::Woken,
            why => why,
        };
        let before = set_started(WITHIN);
        let paused = Local::progress(|| coroutine.resume(why));
        set_started(before);
        match paused {
            CoroutineResult::Yield(what) => {
                self.polls.set(matches!(what, Suspension::Poll));
                false
            }
            CoroutineResult::Return(outcome) => {
                self.outcome.set(Some(outcome));
                if let Some(ended) = place.take() {
                    STACKS.with_borrow_mut(|stacks| stacks.give_back(ended.into_stack()));
                }
                true
            }
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.coroutine.borrow().is_none()
    }
}

/// Those of an agent. There is a set only as long as it is not empty; `current.rs` keeps it.
struct Set {
    calls: RefCell<Vec<Rc<StartedEntry>>>,
    /// When they last made their slow checks.
    swept: Cell<Instant>,
}

/// Whether whoever runs here has started calls that are not over.
#[inline]
pub(super) fn any() -> bool {
    !current::started().is_null()
}

/// The set of the agent that runs here.
fn set<'a>() -> Option<&'a Set> {
    // SAFETY: `insert` alone says what has been started, by a pointer to a set that it has made and
    // that lives until `pass` takes it back. This module's functions use what they get here no
    // longer than to their next `pass`. A set belongs to one agent, and so to one thread.
    unsafe { current::started().cast::<Set>().as_ref() }
}

/// Adds a call to those of the agent that runs here, which is no started call.
pub(super) fn insert(going: Rc<StartedEntry>) {
    if let Some(set) = set() {
        set.calls.borrow_mut().push(going);
        return;
    }
    let calls = RefCell::new(vec![going]);
    let set = Box::new(Set { calls, swept: Cell::new(Instant::now()) });
    set_started(Box::into_raw(set).cast_const().cast());
}

/// Goes on with each call that whoever runs here has started. Whether one is over by it: then
/// another one may be able to go on.
pub(super) fn pass(why: Resumed) -> bool {
    let Some(set) = set() else { return false };
    let (mut next, mut ended) = (0, false);
    // None is added or taken away meanwhile: a started call starts none.
    loop {
        let Some(going) = set.calls.borrow().get(next).cloned() else { break };
        ended |= going.resume(why);
        next += 1;
    }
    if ended {
        set.calls.borrow_mut().retain(|going| !going.is_over());
        if set.calls.borrow().is_empty() {
            let set = set_started(null()).cast_mut().cast::<Set>();
            // SAFETY: `insert` has made it a pointer of a box. It is taken back here alone, and
            // nobody finds it any more; `set` from above is not used any more.
            drop(unsafe { Box::from_raw(set) });
        }
    }
    ended
}

/// The same, with their slow checks.
pub(super) fn sweep() {
    if let Some(set) = set() {
        set.swept.set(Instant::now());
        Local::read_clock();
        pass(Resumed::Sweep);
    }
}

/// The same, with their slow checks if these have not been made for long.
pub(super) fn go_on() {
    match set() {
        Some(set) if set.swept.get().elapsed() > SWEEP => sweep(),
        _ => drop(pass(Resumed::Woken)),
    }
}

/// Whether there is a call of which nobody tells whoever sleeps on the bell at this place, or,
/// without one, a virtual rank that is suspended.
pub(super) fn poll(place: Option<usize>) -> bool {
    set().is_some_and(|set| {
        let untold = |going: &Rc<StartedEntry>| match place {
            Some(place) => going.bell != place,
            None => going.polls.get(),
        };
        set.calls.borrow().iter().any(untold)
    })
}
