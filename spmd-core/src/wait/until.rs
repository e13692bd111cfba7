//! The one function in which every wait of the library waits.

use std::time::{Duration, Instant};

use super::asleep::{wait_as_coroutine, wait_as_thread};
use super::bell::Bell;
use super::policy::{FIRST_SLEEP, Policy, SERVE_EVERY, WaitHooks};
use super::progress::wait_progressing;
use super::{current, scheduler};
use crate::error::{Error, Result};
use crate::fault::print;
use crate::sync::atomic::AtomicU32;

/// Waits until `poll` gives a value, however this agent waits: a thread spins or yields, then
/// sleeps on the bell; a coroutine is suspended. A value that is there wins over an interruption.
///
/// Whoever makes the condition true rings `bell` afterwards. It is made when it is needed: most
/// waits are over at the first look, and what others are given by value would lie on the stack.
#[inline(always)]
pub(crate) fn until<'b, T>(
    bell: impl Fn() -> Bell<'b>,
    policy: &Policy,
    hooks: &mut impl WaitHooks,
    mut poll: impl FnMut() -> Option<T>,
) -> Result<T> {
    if let Some(value) = poll() {
        return Ok(value);
    }
    if current::progresses() {
        return until_progressing(bell(), policy, hooks, &mut poll);
    }
    if scheduler::in_coroutine() {
        return wait_as_coroutine(bell(), hooks, &mut poll);
    }
    let polled = bell().is_polled();
    let (spins, yields) = policy.patience(polled);
    // A look at what is polled may itself let others run, who keep a busy core for milliseconds.
    let start = polled.then(Instant::now);
    let lasts = || start.is_some_and(|start| start.elapsed() > FIRST_SLEEP);
    let mut served = false;
    for spin in 1..=spins {
        // A look at what is polled takes its time.
        if !polled {
            std::hint::spin_loop();
        }
        if let Some(value) = poll() {
            return Ok(value);
        }
        if spin % SERVE_EVERY == 0 {
            served = hooks.serve();
            if served || lasts() {
                break;
            }
        }
    }
    for _ in 0..yields {
        if lasts() {
            break;
        }
        std::thread::yield_now();
        if let Some(value) = poll() {
            return Ok(value);
        }
        served |= hooks.serve();
        if served || hooks.interrupted().is_some() {
            break;
        }
    }
    let mut found = None;
    let slow = wait_as_thread(bell(), (spins, yields), served, hooks, &mut || {
        if found.is_none() {
            found = poll();
        }
        found.is_some()
    });
    match (found, slow) {
        (Some(value), _) => Ok(value),
        (None, Err(error)) => Err(error),
        (None, Ok(())) => unreachable!("a wait ends with its condition or an error"),
    }
}

/// [`until`] for a virtual rank.
#[inline(always)]
pub(crate) fn until_woken<'b, T>(
    bell: impl Fn() -> Bell<'b>,
    hooks: &mut impl WaitHooks,
    mut poll: impl FnMut() -> Option<T>,
) -> Result<T> {
    match poll() {
        Some(value) => Ok(value),
        None if current::progresses() => until_progressing(bell(), &STUBBORN, hooks, &mut poll),
        None => wait_as_coroutine(bell(), hooks, &mut poll),
    }
}

/// Waits until `done`, which nothing but its condition ends: for blocks that an agent opened, and
/// for peers that still use its memory. If that is impossible (a virtual rank that is panicking
/// cannot let its peers run), the process ends rather than let them use memory that is gone.
pub(crate) fn until_done(bell: Bell<'_>, mut done: impl FnMut() -> bool) {
    while until(|| bell, &STUBBORN, &mut Stubborn, || done().then_some(())).is_err() {
        // A started call is told to give up, by a rank that panics, and can go on waiting.
        if current::is_started() {
            continue;
        }
        print(format_args!("cannot wait for peers that use memory of this rank; aborting"));
        std::process::abort();
    }
}

/// Waits for so long, while others run on the worker of a virtual rank. Where that is impossible,
/// as in one that is panicking, the worker waits with it.
pub(crate) fn pause(time: Duration) {
    let (start, word) = (Instant::now(), AtomicU32::new(0));
    let left = || time.checked_sub(start.elapsed());
    let over = || left().is_none().then_some(());
    let bell = || Bell::new(&word, None).polled(true);
    let waited =
        scheduler::in_coroutine() && until(bell, &Policy::new(1, 0), &mut Stubborn, over).is_ok();
    if !waited {
        std::thread::sleep(left().unwrap_or_default());
    }
}

/// How a wait waits that nothing ends but its condition.
pub(super) const STUBBORN: Policy =
    Policy { spins: 100, spins_shared: 100, yields: 0, ..Policy::new(1, 0) };

/// Its hooks.
pub(super) struct Stubborn;

impl WaitHooks for Stubborn {
    fn interrupted(&self) -> Option<Error> {
        None
    }
    fn awake(&mut self) {}
    fn overdue(&mut self, _: Duration, _: &mut dyn FnMut() -> bool) -> Result<()> {
        Ok(())
    }
}

/// [`until`] of whoever has started calls, which go on meanwhile, and in a started call.
#[cold]
fn until_progressing<T>(
    bell: Bell<'_>,
    policy: &Policy,
    hooks: &mut impl WaitHooks,
    poll: &mut impl FnMut() -> Option<T>,
) -> Result<T> {
    let mut found = None;
    let waited = wait_progressing(bell, policy, hooks, &mut || {
        found = found.take().or_else(&mut *poll);
        found.is_some()
    });
    match (found, waited) {
        (Some(value), _) => Ok(value),
        (None, Err(error)) => Err(error),
        (None, Ok(())) => unreachable!("a wait ends with its condition or an error"),
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
