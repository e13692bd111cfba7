//! The waits of whoever has started calls, which go on meanwhile.

use std::time::Duration;

use super::asleep::{wait_as_coroutine_progressing, wait_as_thread};
use super::bell::Bell;
use super::policy::{Policy, SERVE_EVERY, WaitHooks};
use super::scheduler::{self, Resumed};
use super::started;
use crate::error::{Error, Result};

/// Waits until `own` is true, and goes on with the started calls meanwhile.
#[cold]
#[inline(never)]
pub(super) fn wait_progressing(
    bell: Bell<'_>,
    policy: &Policy,
    hooks: &mut dyn WaitHooks,
    own: &mut dyn FnMut() -> bool,
) -> Result<()> {
    // Where a call is over, another one may go on, or this wait be over.
    let mut ready = || loop {
        if own() {
            return true;
        }
        if !started::pass(Resumed::Woken) {
            return own();
        }
    };
    let mut hooks = Progressing { hooks };
    if scheduler::in_coroutine() {
        let mut poll = || ready().then_some(());
        return wait_as_coroutine_progressing(bell, &mut hooks, &mut poll);
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
    fn overdue(&mut self, waited: Duration, ready: &mut dyn FnMut() -> bool) -> Result<()> {
        started::sweep();
        self.hooks.overdue(waited, ready)
    }
    fn serve(&mut self) -> bool {
        self.hooks.serve()
    }
}
