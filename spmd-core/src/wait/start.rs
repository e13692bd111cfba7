//! Calls that go on while whoever has started them does something else.

use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use super::bell::Bell;
use super::coroutine::{Local, Resumed};
use super::current::is_started;
use super::policy::WaitHooks;
use super::stack::Stacks;
use super::started::{self, CallCoroutine, STACKS, StartedEntry};
use super::until::{STUBBORN, until, until_done};
use crate::error::{Error, Result};

/// A call that an agent has started. Dropped, it is waited for.
pub(crate) struct StartedHandle<'a> {
    going: Rc<StartedEntry>,
    bell: Bell<'a>,
    /// What the call uses.
    _uses: PhantomData<&'a ()>,
}

/// Starts `body`, which runs at once as far as it can go without waiting. It waits on `bell` alone.
///
/// Errors: the system has no room for a stack; a started call runs here.
///
/// # Safety
/// What `body` uses lives until the call is over: what this gives is dropped, not forgotten, before
/// any of it, by the agent that has started the call.
pub(crate) unsafe fn start<'a>(
    bell: Bell<'a>,
    body: impl FnOnce() -> Result<()> + 'a,
) -> Result<StartedHandle<'a>> {
    if is_started() {
        return Err(Error::argument("a started call cannot start another one".into()));
    }
    let stack = STACKS.with_borrow_mut(Stacks::take);
    let stack = stack.map_err(|error| Error::system("making a stack for a started call", error))?;
    // SAFETY: what the closure borrows lives until it has run to its end, as `with_stack_unchecked`
    // asks: all that `body` uses lives until what is returned here has been dropped, which is not
    // forgotten (this function's contract), and the drop waits for that end.
    let coroutine = unsafe {
        CallCoroutine::with_stack_unchecked(stack, move |yielder, _| {
            Local::runs(yielder);
            catch_unwind(AssertUnwindSafe(body))
        })
    };
    let going = Rc::new(StartedEntry::new(coroutine, bell));
    if !going.resume(Resumed::Woken).ended {
        started::insert(going.clone());
    }
    Ok(StartedHandle { going, bell, _uses: PhantomData })
}

impl StartedHandle<'_> {
    /// Goes on with the calls that whoever runs here has started. Whether this one is over.
    pub(crate) fn test(&self) -> bool {
        if !self.going.is_over() {
            started::go_on();
        }
        self.going.is_over()
    }

    /// Waits until the call is over, which nothing else ends; `hooks` tell others of it.
    pub(crate) fn until_over(&self, hooks: &mut impl WaitHooks) {
        if until(|| self.bell, &STUBBORN, hooks, || self.going.is_over().then_some(())).is_err() {
            self.until_over_untold();
        }
    }

    /// The call's result, once it is over. A panic of an operation goes on here.
    pub(crate) fn result(self) -> Result<()> {
        self.until_over_untold();
        match self.going.outcome.take() {
            Some(Ok(result)) => result,
            Some(Err(payload)) => resume_unwind(payload),
            None => unreachable!("a call that is over has an outcome, taken once"),
        }
    }

    fn until_over_untold(&self) {
        until_done(self.bell, || self.going.is_over());
    }
}

impl Drop for StartedHandle<'_> {
    fn drop(&mut self) {
        // Peers may wait for what this rank will not do any more: neither they nor calls that are
        // before this one may keep it.
        if std::thread::panicking() {
            started::pass(Resumed::Refused);
        }
        self.until_over_untold();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::Cell;
    use std::sync::atomic::AtomicU32;

    use super::super::until::Stubborn;
    use super::*;

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
            // SAFETY: what the call uses lives outside of this closure; it is dropped here.
            let _call = unsafe { start(bell, body) }.unwrap();
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
            // SAFETY: what the call uses lives outside of this closure; it is dropped here.
            let _call = unsafe { start(bell, body) }.unwrap();
            panic!("deliberate");
        }));
        assert!(panicked.is_err() && over.get());
    }
}
