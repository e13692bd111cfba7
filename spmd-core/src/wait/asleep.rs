//! A wait that its first looks have not ended: a thread sleeps on the bell, a coroutine is
//! suspended.

use std::mem::take;
use std::time::{Duration, Instant};

use super::bell::Bell;
use super::coroutine::{is_task, task_goes_on};
use super::policy::{FIRST_SLEEP, LONGEST_SLEEP, SERVE_EVERY, WaitHooks};
use super::scheduler::{self, Resumed, Suspension};
use super::{current, started};
use crate::error::{Error, Result};

/// Whether to give up, the condition having been false just now.
fn interrupted(hooks: &dyn WaitHooks, ready: &mut dyn FnMut() -> bool) -> Result<bool> {
    match hooks.interrupted() {
        None => Ok(false),
        Some(_) if ready() => Ok(true),
        Some(error) => Err(error),
    }
}

/// Serves peers as long as they ask for something, which who sends many messages does again and
/// again: polls and yields as at the start of a wait after each time. Whether the wait is over.
fn serve(
    (spins, yields): (u32, u32),
    hooks: &mut dyn WaitHooks,
    ready: &mut dyn FnMut() -> bool,
) -> bool {
    let start = Instant::now();
    let mut idle = 0;
    loop {
        if ready() {
            return true;
        }
        if (idle % SERVE_EVERY == 0 || idle > spins) && hooks.serve() {
            idle = 0;
            // Others may ask without end: the wait's own checks come in time all the same.
            if hooks.interrupted().is_some() || start.elapsed() > FIRST_SLEEP {
                return false;
            }
        }
        idle += 1;
        match idle {
            _ if idle <= spins => std::hint::spin_loop(),
            _ if idle <= spins + yields => std::thread::yield_now(),
            _ => return false,
        }
    }
}

/// Waits until `ready`, `served` if a peer has asked for something just now.
#[cold]
pub(super) fn wait_as_thread(
    bell: Bell<'_>,
    patience: (u32, u32),
    mut served: bool,
    hooks: &mut dyn WaitHooks,
    ready: &mut dyn FnMut() -> bool,
) -> Result<()> {
    hooks.asleep();
    let start = Instant::now();
    let mut sleep = FIRST_SLEEP;
    let mut checked = Duration::ZERO;
    let mut step = || {
        // Before this one says that it sleeps, which costs a fence on all cores.
        if (take(&mut served) || hooks.serve()) && serve(patience, hooks, ready) {
            return Ok(true);
        }
        let ticket = bell.announce_thread();
        if ready() || interrupted(hooks, ready)? {
            return Ok(true);
        }
        served = hooks.serve();
        if !served {
            bell.sleep(ticket, sleep);
        }
        let waited = start.elapsed();
        if waited < checked + sleep {
            return Ok(ready());
        }
        checked = waited;
        sleep = (sleep * 2).min(LONGEST_SLEEP);
        if ready() || interrupted(hooks, ready)? {
            return Ok(true);
        }
        hooks.overdue(waited, ready)?;
        Ok(ready())
    };
    let outcome = loop {
        match step() {
            Ok(false) => {}
            Ok(true) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    hooks.awake();
    outcome
}

/// Inlined into its caller, as is the suspension into it: see [`scheduler::suspend`].
#[inline(always)]
pub(super) fn wait_as_coroutine<T>(
    bell: Bell<'_>,
    hooks: &mut impl WaitHooks,
    poll: &mut impl FnMut() -> Option<T>,
) -> Result<T> {
    suspended(bell, hooks, poll, || false)
}

/// [`wait_as_coroutine`] of a virtual rank that has started calls, with which `poll` goes on, or of
/// a started call.
pub(super) fn wait_as_coroutine_progressing(
    bell: Bell<'_>,
    hooks: &mut impl WaitHooks,
    poll: &mut impl FnMut() -> Option<()>,
) -> Result<()> {
    for look in 1..=started::spins() {
        std::hint::spin_loop();
        if poll().is_some() {
            return Ok(());
        }
        if look % SERVE_EVERY == 0 {
            hooks.serve();
        }
    }
    suspended(bell, hooks, poll, || started::poll(None))
}

/// `polls`: nobody tells the coroutine of something that it looks for.
#[inline(always)]
fn suspended<T>(
    bell: Bell<'_>,
    hooks: &mut impl WaitHooks,
    poll: &mut impl FnMut() -> Option<T>,
    polls: impl Fn() -> bool,
) -> Result<T> {
    let at_home = bell.is_home();
    let mut start: Option<Instant> = None;
    let mut asleep = false;
    let mut again = false;
    let outcome = loop {
        if at_home
            && bell.announce_coroutine()
            && let Some(value) = poll()
        {
            break Ok(value);
        }
        if let Some(error) = hooks.interrupted() {
            break poll().ok_or(error);
        }
        if !at_home {
            again &= !hooks.serve();
            if !asleep && is_task() {
                hooks.asleep();
                asleep = true;
            }
        }
        let what = if at_home && !polls() { Suspension::Wake } else { Suspension::Poll { again } };
        again = true;
        let why = current::kept_over(|| scheduler::suspend_for(what));
        if let Some(value) = poll() {
            break Ok(value);
        }
        match why {
            Resumed::Woken => {}
            Resumed::Refused => break Err(refused()),
            Resumed::Sweep => {
                if let Some(outcome) = sweep(hooks, &mut start, poll) {
                    break outcome;
                }
            }
        }
    };
    if asleep {
        // Before others see that it does not wait any more.
        task_goes_on();
    }
    if start.is_some() || asleep {
        hooks.awake();
    }
    outcome
}

#[cold]
#[inline(never)]
fn refused() -> Error {
    let why = match current::is_started() {
        true => "its rank has failed, or panics, and gives up what it has started",
        false => "a rank that is panicking cannot wait for others; don't communicate in Drop",
    };
    Error::argument(why.into())
}

/// Makes the rare checks of a coroutine: the end of its wait, if they find one. Not inlined, so
/// that what they need lies on the stack only meanwhile: the fewer lines of it a rank that waits
/// touches, the better.
#[cold]
#[inline(never)]
fn sweep<T>(
    hooks: &mut impl WaitHooks,
    start: &mut Option<Instant>,
    poll: &mut impl FnMut() -> Option<T>,
) -> Option<Result<T>> {
    let mut found = None;
    let checked = overdue(hooks, start, &mut || {
        found = found.take().or_else(&mut *poll);
        found.is_some()
    });
    found.map(Ok).or_else(|| checked.err().map(|error| Err(error)))
}

/// A worker has looked after all its coroutines: the wait has lasted. It is measured from the
/// first such look on, as the worker's clock may be older than the wait before.
#[cold]
fn overdue(
    hooks: &mut dyn WaitHooks,
    start: &mut Option<Instant>,
    ready: &mut dyn FnMut() -> bool,
) -> Result<()> {
    let now = scheduler::coarse_now();
    let start = *start.get_or_insert(now);
    if interrupted(hooks, ready)? {
        return Ok(());
    }
    hooks.overdue(now.saturating_duration_since(start), ready)
}
