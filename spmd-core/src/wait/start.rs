//! Calls that go on while whoever has started them does something else.

use std::mem::transmute;
use std::panic::resume_unwind;
use std::rc::Rc;
use std::sync::Arc;

use super::bell::Bell;
use super::completion::Completion;
use super::coroutine::{AgentKey, Resumed, in_coroutine};
use super::current::is_started;
use super::handover::HandedCall;
use super::policy::{Policy, WaitHooks};
use super::started::{self, Companion, Startable, StartedEntry};
use super::until::{STUBBORN, until, until_done};
use crate::error::{Error, Result};
use crate::fault::print;
use crate::sync::atomic::AtomicU32;

/// A call that an agent has started, which goes on whether anybody holds this or not.
#[derive(Clone)]
pub(crate) struct StartedHandle(Rc<StartedEntry>);

/// Starts `call`, which runs at once, if it has its turn, as far as it can go without waiting. It
/// waits on `bell` alone.
///
/// Errors: the system has no room for a stack; a started call runs here.
///
/// # Safety
/// What the call uses lives until it is over.
pub(crate) unsafe fn start<'a>(
    bell: Bell<'_>,
    call: Box<dyn Startable + 'a>,
) -> Result<StartedHandle> {
    if is_started() {
        return Err(Error::argument("a started call cannot start another one".into()));
    }
    // SAFETY: the type stays the same but for a lifetime. What the call uses lives until it is over
    // (this function's contract), and when it is over, nothing is left of it: its closure has run
    // to its end or has been dropped.
    let call = unsafe { transmute::<Box<dyn Startable + 'a>, Box<dyn Startable + 'static>>(call) };
    let entry = Rc::new(StartedEntry::new(call, bell)?);
    if !entry.resume(Resumed::Woken).ended {
        prepare();
        started::insert(entry.clone());
    }
    Ok(StartedHandle(entry))
}

thread_local! {
    static AT_END: AtEnd = const { AtEnd };
}

/// The end of a thread that has started calls. A rank's are over before that.
struct AtEnd;

impl Drop for AtEnd {
    /// Others may wait for what these calls do.
    fn drop(&mut self) {
        started::finish(None);
        if !started::all_over(None) {
            let word = AtomicU32::new(0);
            until_done(Bell::new(&word, None).polled(true), || started::all_over(None));
        }
        if let Some(Ok(Err(error))) = started::unknown_failure(None) {
            print(format_args!("a request that a thread has not waited for: {error}"));
        }
    }
}

impl StartedHandle {
    /// Of a call that was handed over, of which the agent that runs here has the end.
    pub(super) fn handed(call: Arc<HandedCall>, bell: Bell<'_>) -> StartedHandle {
        let entry = Rc::new(StartedEntry::handed(call, bell));
        prepare();
        started::insert(entry.clone());
        StartedHandle(entry)
    }

    /// Has `run` done before anybody sees that the call is over, which another thread carries out: by
    /// the agent that runs here, which has just started it. It is told whether the call went well, which
    /// has failed if this fails, and does not panic.
    ///
    /// # Safety
    /// What `run` uses lives until the call is over.
    pub(crate) unsafe fn at_end<'a>(&self, run: impl FnOnce(bool) -> Result<()> + 'a) {
        type Run<'a> = Box<dyn FnOnce(bool) -> Result<()> + 'a>;
        let run: Run<'a> = Box::new(run);
        // SAFETY: the type stays the same but for a lifetime. What it uses lives until the call is over
        // (this function's contract), before which it has run, and is gone.
        self.0.at_end(unsafe { transmute::<Run<'a>, Run<'static>>(run) });
    }

    /// Goes on with the calls that whoever runs here has started. Whether this one is over.
    pub(crate) fn test(&self) -> bool {
        if !self.is_over() {
            started::go_on();
        }
        self.is_over()
    }

    /// Goes on with this call before a thread waits for it, which then does nothing else.
    pub(crate) fn go_on_alone(&self, policy: &Policy) {
        if !in_coroutine() {
            started::go_on_alone(Some(&self.0), policy);
        }
    }

    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.0.is_over()
    }

    pub(crate) fn completion(&self) -> &Completion {
        &self.0.over
    }

    /// Who has started it: no other agent can go on with it.
    pub(crate) fn agent(&self) -> AgentKey {
        self.0.agent
    }

    /// What went wrong with it, once it is over, if nobody knows.
    pub(crate) fn failure(&self) -> Result<()> {
        if self.0.is_settled() { Ok(()) } else { self.result() }
    }

    /// Whether it is over, and went well, or somebody knows that it did not.
    pub(crate) fn is_settled(&self) -> bool {
        self.0.is_settled()
    }

    /// How the call has ended, once it is over, unless it has been told. A panic of an operation
    /// goes on here.
    pub(crate) fn result(&self) -> Result<()> {
        match self.0.outcome.take() {
            None => Ok(()),
            Some(Ok(Ok(()))) => Ok(()),
            Some(failed) => {
                started::settle();
                failed.unwrap_or_else(|payload| resume_unwind(payload))
            }
        }
    }
}

/// The companion of this kind of the agent that runs here, for this bell; or the one that `make`
/// makes.
///
/// Errors: a started call runs here.
pub(crate) fn companion<C: Companion>(
    bell: Bell<'_>,
    make: impl FnOnce() -> Rc<C>,
) -> Result<Rc<C>> {
    if is_started() {
        return Err(Error::argument("a started call cannot start another one".into()));
    }
    if let Some(found) = started::companion(bell.place()) {
        return Ok(found);
    }
    prepare();
    let made = make();
    started::add_companion(made.clone());
    Ok(made)
}

/// Sees to it that a thread ends what it starts.
fn prepare() {
    if !in_coroutine() {
        // It lives less long than what the end of the calls needs.
        started::prepare();
        let _ = AT_END.try_with(|_| ());
    }
}

/// Waits until what calls that the agent has started bring about is there, which nothing else ends;
/// `hooks` tell others of the wait.
pub(crate) fn until_over(bell: Bell<'_>, hooks: &mut impl WaitHooks, over: impl Fn() -> bool) {
    if until(|| bell, &STUBBORN, hooks, || over().then_some(())).is_err() {
        until_done(bell, over);
    }
}

/// Tells all calls of the agent that runs here to give up: peers may wait for what this rank will
/// not do any more, and neither they nor calls that are before others may keep them.
pub(crate) fn refuse() {
    started::pass(Resumed::Refused);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::Cell;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::AtomicU32;

    use super::super::until::Stubborn;
    use super::*;

    struct AtOnce<F>(F);

    impl<F: FnOnce() -> Result<()>> Startable for AtOnce<F> {
        fn has_turn(&self) -> bool {
            true
        }
        fn skip(&self) {}
        fn run(self: Box<Self>) -> Result<()> {
            (self.0)()
        }
    }

    /// A call that is over when this is dropped.
    struct Ends<'a>(StartedHandle, Bell<'a>);

    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                refuse();
            }
            until_done(self.1, || self.0.is_over());
        }
    }

    /// A call that comes out of a wait as it is told to give up does so in the next one.
    #[test]
    fn a_rank_that_panics_ends_what_has_just_gone_on() {
        let (word, came, refused) = (AtomicU32::new(0), Cell::new(false), Cell::new(false));
        let bell = Bell::new(&word, None);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let body = || {
                let waits = |looks: &Cell<bool>| {
                    until(|| bell, &STUBBORN, &mut Stubborn, || looks.get().then_some(()))
                };
                waits(&came)?;
                refused.set(waits(&Cell::new(false)).is_err());
                Ok(())
            };
            // SAFETY: what the call uses lives outside of this closure; its end is waited for here.
            let call = unsafe { start(bell, Box::new(AtOnce(body))) };
            let _ends = Ends(call.unwrap(), bell);
            came.set(true);
            panic!("deliberate");
        }));
        assert!(panicked.is_err() && refused.get());
    }

    /// A call that takes its memory back does so to its end, although its rank panics meanwhile.
    #[test]
    fn a_rank_that_panics_waits_for_what_must_be_over() {
        let (word, looks, over) = (AtomicU32::new(0), Cell::new(0), Cell::new(false));
        let bell = Bell::new(&word, None);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let body = || {
                // The peers go some looks after the panic.
                until_done(bell, || {
                    looks.set(looks.get() + u32::from(std::thread::panicking()));
                    looks.get() > 5
                });
                over.set(true);
                Ok(())
            };
            // SAFETY: what the call uses lives outside of this closure; its end is waited for here.
            let call = unsafe { start(bell, Box::new(AtOnce(body))) };
            let _ends = Ends(call.unwrap(), bell);
            panic!("deliberate");
        }));
        assert!(panicked.is_err() && over.get());
    }
}
