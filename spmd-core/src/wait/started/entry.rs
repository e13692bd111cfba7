//! A call that has been started: a coroutine as soon as it has its turn, or another thread's.

use std::cell::{Cell, RefCell};
use std::mem::replace;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use corosensei::{Coroutine, CoroutineResult};

use crate::error::{Error, Result};
use crate::panics::discard;
use crate::wait::bell::Bell;
use crate::wait::completion::Completion;
use crate::wait::coroutine::{self as scheduler, AgentKey, Local, Resumed, Suspension};
use crate::wait::current::{WITHIN, set_started};
use crate::wait::handover::{HandedCall, Outcome};
use crate::wait::stack::{PooledStack, Stacks};

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

/// A call that is not over, or whose outcome nobody has taken.
pub(in crate::wait) struct StartedEntry {
    stage: RefCell<Stage>,
    pub(in crate::wait) over: Completion,
    pub(in crate::wait) outcome: Cell<Option<Outcome>>,
    /// Who has started it.
    pub(in crate::wait) agent: AgentKey,
    /// Where the bell lies that whoever brings it further rings, and whether nobody may ring it.
    pub(super) bell: (usize, bool),
    /// Nobody wakes it: it looks again and again.
    pub(super) polls: Cell<bool>,
    /// It has been told to give up.
    refused: Cell<bool>,
    /// Whom its end is told that has handed it over.
    told: Option<Arc<HandedCall>>,
    /// What is done before anybody sees that it is over.
    at_end: Cell<Option<AtEnd>>,
}

/// Is told whether the call went well, which has failed if this fails.
pub(in crate::wait) type AtEnd = Box<dyn FnOnce(bool) -> Result<()>>;

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
    static STACKS: RefCell<Stacks> = const { RefCell::new(Stacks::new()) };
    /// A wait of the started call that runs here has ended.
    static WENT_ON: Cell<bool> = const { Cell::new(false) };
    /// How often the started call that runs here looks for what it waits for before it gives the
    /// thread back, to an agent that does nothing but wait for it.
    static SPINS: Cell<u32> = const { Cell::new(0) };
}

/// How often the started call that runs here looks before it gives the thread back.
pub(in crate::wait) fn spins() -> u32 {
    SPINS.get()
}

/// A wait of the started call that runs here is over.
pub(in crate::wait) fn goes_on() {
    WENT_ON.set(true);
}

/// What has come of resuming a call, or some.
#[derive(Clone, Copy, Default)]
pub(in crate::wait) struct Progress {
    /// One is over.
    pub(in crate::wait) ended: bool,
    /// One has come out of a wait: what others wait for may have happened.
    pub(in crate::wait) went_on: bool,
}

impl StartedEntry {
    /// Errors: it could begin, but the system has no room for a stack.
    pub(in crate::wait) fn new(call: Box<dyn Startable>, bell: Bell<'_>) -> Result<StartedEntry> {
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
    pub(in crate::wait) fn handed(call: Arc<HandedCall>, bell: Bell<'_>) -> StartedEntry {
        StartedEntry::at(Stage::Handed(call), bell.polled(false), None)
    }

    /// One that another thread has handed over.
    pub(in crate::wait) fn for_another(
        call: Box<dyn Startable>,
        told: Arc<HandedCall>,
        bell: Bell<'_>,
    ) -> StartedEntry {
        StartedEntry::at(Stage::Waits(call), bell, Some(told))
    }

    /// Goes on with the call.
    pub(in crate::wait) fn resume(&self, why: Resumed) -> Progress {
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

    /// The same; it looks so often for what it waits for before it gives the thread back.
    pub(super) fn resume_with_patience(&self, looks: u32) -> Progress {
        SPINS.set(looks);
        let made = self.resume(Resumed::Woken);
        SPINS.set(0);
        made
    }

    /// Where it comes among those that other threads have carried out, if one has, and nobody has
    /// taken note of that.
    #[inline]
    pub(super) fn ended_elsewhere(&self) -> Option<u64> {
        match &*self.stage.try_borrow().ok()? {
            Stage::Handed(call) => call.place(),
            _ => None,
        }
    }

    /// Has this done before anybody sees that it is over, by the agent that has started it.
    pub(in crate::wait) fn at_end(&self, run: AtEnd) {
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
    pub(in crate::wait) fn is_over(&self) -> bool {
        self.over.is_over()
    }

    /// Whether nothing of it is left: it is over, and went well, or somebody knows that it did not.
    pub(in crate::wait) fn is_settled(&self) -> bool {
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

/// Makes what a thread needs for its calls, if it is not there.
pub(super) fn prepare() {
    Local::of_thread();
    STACKS.with(|_| ());
}
