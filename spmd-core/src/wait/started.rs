//! The calls that an agent has started and that are not over. Each is a coroutine as soon as it has
//! its turn, which the agent resumes: in all its waits, for whatever, and when it asks whether the
//! call is over. It runs on no other thread.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::mem::replace;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use corosensei::{Coroutine, CoroutineResult};

use super::bell::Bell;
use super::completion::Completion;
use super::coroutine::{self as scheduler, AgentKey, Local, Resumed, Suspension};
use super::current::{self, WITHIN, set_started};
use super::handover::{HandedCall, Outcome};
use super::policy::Policy;
use super::stack::{PooledStack, Stacks};
use crate::error::{Error, Result};
use crate::panics::discard;

type CallCoroutine = Coroutine<Resumed, Suspension, Outcome, PooledStack>;

/// A call, before it begins.
pub(crate) trait Startable {
    /// Whether the calls before it are over whose place it takes.
    fn has_turn(&self) -> bool;
    /// It cannot be made: those after it take their turn.
    fn skip(&self);
    /// Makes it, once it has its turn.
    fn run(self: Box<Self>) -> Result<()>;
}

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
    static STACKS: RefCell<Stacks> = const { RefCell::new(Stacks::new()) };
}

/// A call that is not over, or whose outcome nobody has taken.
pub(super) struct StartedEntry {
    stage: RefCell<Stage>,
    pub(super) over: Completion,
    pub(super) outcome: Cell<Option<Outcome>>,
    /// Who has started it.
    pub(super) agent: AgentKey,
    /// Where the bell lies that whoever brings it further rings, and whether nobody may ring it.
    bell: (usize, bool),
    /// Nobody wakes it: it looks again and again.
    polls: Cell<bool>,
    /// It has been told to give up.
    refused: Cell<bool>,
    /// Whom its end is told that has handed it over.
    told: Option<Arc<HandedCall>>,
    /// What is done before anybody sees that it is over.
    at_end: Cell<Option<AtEnd>>,
}

/// Is told whether the call went well, which has failed if this fails.
pub(super) type AtEnd = Box<dyn FnOnce(bool) -> Result<()>>;

/// How far a call is.
enum Stage {
    /// It waits for its turn.
    Waits(Box<dyn Startable>),
    Goes(CallCoroutine),
    /// Another thread carries it out.
    Handed(Arc<HandedCall>),
    Over,
}

thread_local! {
    /// A wait of the started call that runs here has ended.
    static WENT_ON: Cell<bool> = const { Cell::new(false) };
}

thread_local! {
    /// How often the started call that runs here looks for what it waits for before it gives the
    /// thread back, to an agent that does nothing but wait for it.
    static SPINS: Cell<u32> = const { Cell::new(0) };
    /// A set that is not in use.
    static SPARE: Cell<Option<Box<Set>>> = const { Cell::new(None) };
}

/// How often the started call that runs here looks before it gives the thread back.
pub(super) fn spins() -> u32 {
    SPINS.get()
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
    if let Some(call) = set().and_then(only) {
        SPINS.set(policy.patience(call.bell.1).0);
        let made = call.resume(Resumed::Woken);
        SPINS.set(0);
        if made.ended {
            settle();
        }
    }
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
    /// Errors: it could begin, but the system has no room for a stack.
    pub(super) fn new(call: Box<dyn Startable>, bell: Bell<'_>) -> Result<StartedEntry> {
        let stage = match call.has_turn() {
            true => Stage::Goes(begun(call).map_err(|(_, error)| error)?),
            false => Stage::Waits(call),
        };
        Ok(StartedEntry::at(stage, bell, None))
    }

    fn at(stage: Stage, bell: Bell<'_>, told: Option<Arc<HandedCall>>) -> StartedEntry {
        let (agent, bell) = (scheduler::key(), (bell.place(), bell.is_polled()));
        let (over, outcome, polls, refused) = Default::default();
        let (stage, at_end) = (RefCell::new(stage), Cell::default());
        StartedEntry { stage, over, outcome, agent, bell, polls, refused, told, at_end }
    }

    /// One that another thread carries out, which rings the bell when it is over.
    pub(super) fn handed(call: Arc<HandedCall>, bell: Bell<'_>) -> StartedEntry {
        StartedEntry::at(Stage::Handed(call), bell.polled(false), None)
    }

    /// One that another thread has handed over.
    pub(super) fn for_another(
        call: Box<dyn Startable>,
        told: Arc<HandedCall>,
        bell: Bell<'_>,
    ) -> StartedEntry {
        StartedEntry::at(Stage::Waits(call), bell, Some(told))
    }

    /// Goes on with the call.
    pub(super) fn resume(&self, why: Resumed) -> Progress {
        // From then on: it may come out of one wait, whose condition is true, and into another. What
        // it must do to its end waits again.
        let refused = || self.told.as_ref().is_some_and(|handed| handed.is_refused());
        self.refused.set(self.refused.get() || why == Resumed::Refused || refused());
        let why = if self.refused.get() { Resumed::Refused } else { why };
        let mut stage = self.stage.borrow_mut();
        if let Stage::Handed(call) = &*stage {
            if why == Resumed::Refused && !call.is_refused() {
                call.refuse();
            }
            let Some(outcome) = ended_elsewhere(call) else { return Progress::default() };
            *stage = Stage::Over;
            drop(stage);
            return self.ends(outcome);
        }
        if let Stage::Waits(call) = &*stage {
            if !call.has_turn() {
                return Progress::default();
            }
            match begin(&mut stage) {
                Ok(coroutine) => *stage = Stage::Goes(coroutine),
                Err((call, error)) => {
                    drop(stage);
                    // The end of its buffers, which may be anything.
                    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(call))) {
                        discard(payload);
                    }
                    return self.ends(Ok(Err(error)));
                }
            }
        }
        let Stage::Goes(coroutine) = &mut *stage else { return Progress::default() };
        WENT_ON.set(false);
        let before = set_started(WITHIN);
        let paused = Local::progress(|| coroutine.resume(why));
        set_started(before);
        match paused {
            None => Progress::default(),
            Some(CoroutineResult::Yield(what)) => {
                self.polls.set(matches!(what, Suspension::Poll { .. }));
                Progress { ended: false, went_on: WENT_ON.get() }
            }
            Some(CoroutineResult::Return(outcome)) => {
                if let Stage::Goes(ended) = replace(&mut *stage, Stage::Over) {
                    let _ = STACKS.try_with(|stacks| {
                        stacks.borrow_mut().give_back(ended.into_stack());
                    });
                }
                self.ends(outcome)
            }
        }
    }

    /// Where it comes among those that other threads have carried out, if one has, and nobody has
    /// taken note of that.
    #[inline]
    fn ended_elsewhere(&self) -> Option<u64> {
        match &*self.stage.try_borrow().ok()? {
            Stage::Handed(call) => call.place(),
            _ => None,
        }
    }

    /// Has this done before anybody sees that it is over, by the agent that has started it.
    pub(super) fn at_end(&self, run: AtEnd) {
        self.at_end.set(Some(run));
    }

    fn ends(&self, mut outcome: Outcome) -> Progress {
        if let Some(run) = self.at_end.take() {
            let well = matches!(outcome, Ok(Ok(())));
            if let (Err(error), true) = (run(well), well) {
                outcome = Ok(Err(error));
            }
        }
        match &self.told {
            Some(handed) => handed.complete(outcome),
            None => self.outcome.set(Some(outcome)),
        }
        self.over.complete();
        Progress { ended: true, went_on: true }
    }

    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.over.is_over()
    }

    /// Whether nothing of it is left: it is over, and went well, or somebody knows that it did not.
    pub(super) fn is_settled(&self) -> bool {
        let Some(outcome) = self.outcome.take() else { return self.is_over() };
        let well = matches!(outcome, Ok(Ok(())));
        self.outcome.set(Some(outcome));
        well
    }
}

/// How a call has ended that another thread carries out, if it is over.
#[cold]
fn ended_elsewhere(call: &HandedCall) -> Option<Outcome> {
    for _ in 0..spins() {
        if call.is_over() {
            break;
        }
        std::hint::spin_loop();
    }
    call.take()
}

/// A call that begins, as a coroutine; or, where there is no room for a stack, the call.
fn begun(call: Box<dyn Startable>) -> Result<CallCoroutine, (Box<dyn Startable>, Error)> {
    let stack = STACKS.try_with(|stacks| stacks.borrow_mut().take());
    let stack = match stack.unwrap_or_else(|_| Stacks::new().take()) {
        Ok(stack) => stack,
        Err(error) => {
            return Err((call, Error::system("making a stack for a started call", error)));
        }
    };
    Ok(CallCoroutine::with_stack(stack, move |yielder, _| {
        Local::runs(yielder);
        catch_unwind(AssertUnwindSafe(|| call.run()))
    }))
}

/// Has a call begin that has its turn, and is over until it has.
fn begin(stage: &mut Stage) -> Result<CallCoroutine, (Box<dyn Startable>, Error)> {
    let Stage::Waits(call) = replace(stage, Stage::Over) else { unreachable!("it waits") };
    begun(call).inspect_err(|(call, _)| call.skip())
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
    Local::of_thread();
    STACKS.with(|_| ());
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
