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

thread_local! {
    /// A wait of the started call that runs here has ended.
    static WENT_ON: Cell<bool> = const { Cell::new(false) };
}

/// A wait of the started call that runs here is over.
pub(super) fn goes_on() {
    WENT_ON.set(true);
}

/// What has come of resuming a call, or some.
#[derive(Clone, Copy, Default)]
pub(super) struct Progress {
    /// One is over.
    pub(super) ended: bool,
    /// One has come out of a wait: what others wait for may have happened.
    pub(super) went_on: bool,
}

impl StartedEntry {
    pub(super) fn new(coroutine: CallCoroutine, bell: Bell<'_>) -> StartedEntry {
        let (coroutine, outcome) = (RefCell::new(Some(coroutine)), Cell::new(None));
        let (polls, refused) = Default::default();
        StartedEntry { coroutine, outcome, bell: bell.place(), polls, refused }
    }

    /// Goes on with the call.
    pub(super) fn resume(&self, why: Resumed) -> Progress {
        let mut place = self.coroutine.borrow_mut();
        let Some(coroutine) = &mut *place else { return Progress::default() };
        // From then on: it may come out of one wait, whose condition is true, and into another. What
        // it must do to its end waits again.
        self.refused.set(self.refused.get() || why == Resumed::Refused);
        let why = if self.refused.get() { Resumed::Refused } else { why };
        WENT_ON.set(false);
        let before = set_started(WITHIN);
        let paused = Local::progress(|| coroutine.resume(why));
        set_started(before);
        match paused {
            CoroutineResult::Yield(what) => {
                self.polls.set(matches!(what, Suspension::Poll));
                Progress { ended: false, went_on: WENT_ON.get() }
            }
            CoroutineResult::Return(outcome) => {
                self.outcome.set(Some(outcome));
                if let Some(ended) = place.take() {
                    STACKS.with_borrow_mut(|stacks| stacks.give_back(ended.into_stack()));
                }
                Progress { ended: true, went_on: true }
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

/// Goes on with each call that whoever runs here has started. Where one is over by it, another one
/// may be able to go on.
pub(super) fn pass(why: Resumed) -> Progress {
    let Some(set) = set() else { return Progress::default() };
    let (mut next, mut made) = (0, Progress::default());
    // None is added or taken away meanwhile: a started call starts none.
    loop {
        let Some(going) = set.calls.borrow().get(next).cloned() else { break };
        let Progress { ended, went_on } = going.resume(why);
        made.ended |= ended;
        made.went_on |= went_on;
        next += 1;
    }
    if made.ended {
        set.calls.borrow_mut().retain(|going| !going.is_over());
        if set.calls.borrow().is_empty() {
            let set = set_started(null()).cast_mut().cast::<Set>();
            // SAFETY: `insert` has made it a pointer of a box. It is taken back here alone, and
            // nobody finds it any more; `set` from above is not used any more.
            drop(unsafe { Box::from_raw(set) });
        }
    }
    made
}

/// The same, with their slow checks.
pub(super) fn sweep() -> Progress {
    let Some(set) = set() else { return Progress::default() };
    set.swept.set(Instant::now());
    Local::read_clock();
    pass(Resumed::Sweep)
}

/// The same, with their slow checks if these have not been made for long.
pub(super) fn go_on() {
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
            Some(place) => going.bell != place,
            None => going.polls.get(),
        };
        set.calls.borrow().iter().any(untold)
    })
}
