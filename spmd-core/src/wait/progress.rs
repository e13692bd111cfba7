//! The waits of whoever has started calls, which go on meanwhile, and those of started calls.

use std::cell::Cell;
use std::time::Duration;

use super::asleep::{wait_as_coroutine_progressing, wait_as_thread};
use super::bell::Bell;
use super::policy::{Policy, SERVE_EVERY, WaitHooks};
use super::scheduler::{self, Resumed};
use super::{current, started};
use crate::error::{Error, Result};

/// Waits until `own` is true, and goes on with the started calls meanwhile; or in a started call.
#[cold]
#[inline(never)]
pub(super) fn wait_progressing(
    bell: Bell<'_>,
    policy: &Policy,
    hooks: &mut dyn WaitHooks,
    own: &mut dyn FnMut() -> bool,
) -> Result<()> {
    let went_on = Cell::new(false);
    let mut ready = || loop {
        if own() {
            return true;
        }
        let made = started::pass(Resumed::Woken);
        if made.went_on {
            went_on.set(true);
        }
        // Where a call is over, another one may go on, or this wait be over.
        if !made.ended {
            return own();
        }
    };
    let mut hooks = Progressing { hooks, went_on: &went_on };
    if scheduler::in_coroutine() {
        let mut poll = || ready().then_some(());
        let waited = wait_as_coroutine_progressing(bell, &mut hooks, &mut poll);
        if current::is_started() {
            started::goes_on();
        }
        return waited;
    }
    let bell = bell.polled(bell.is_polled() || started::poll(Some(bell.place())));
    let (spins, yields) = policy.patience(bell.is_polled());
    for look in 1..=spins + yields {
        if ready() {
            return Ok(());
        }
        if look % SERVE_EVERY == 0 || look > spins {
            hooks.serve();
        }
        if look <= spins { std::hint::spin_loop() } else { std::thread::yield_now() }
    }
    wait_as_thread(bell, (spins, yields), false, &mut hooks, &mut ready)
}

/// The hooks of such a wait.
struct Progressing<'w> {
    hooks: &'w mut dyn WaitHooks,
    /// Some call has come out of a wait since the rare checks were made last.
    went_on: &'w Cell<bool>,
}

impl WaitHooks for Progressing<'_> {
    fn interrupted(&self) -> Option<Error> {
        self.hooks.interrupted()
    }
    fn asleep(&mut self) {
        self.hooks.asleep();
    }
    fn awake(&mut self) {
        self.hooks.awake();
    }
    /// An agent whose calls go on is not one that only waits: what its record says holds from one
    /// check to the next in which none has gone on, also while the checks are made.
    fn overdue(&mut self, waited: Duration, ready: &mut dyn FnMut() -> bool) -> Result<()> {
        let went_on = started::sweep().went_on;
        if self.went_on.take() || went_on {
            self.hooks.calls_went_on();
        }
        self.hooks.overdue(waited, &mut || ready() || self.went_on.get())
    }
    fn serve(&mut self) -> bool {
        self.hooks.serve()
    }
}
