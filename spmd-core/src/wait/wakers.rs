//! The thread that wakes those who await requests as futures. An executor parks its thread, which
//! then sleeps on no bell; this one does so in its place.
//!
//! There is one for each thread that awaits, from the first time to the end of the thread.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::bell::Bell;
use super::policy::FIRST_SLEEP;
use super::scheduler;
use super::started;
use super::threads::Helper;
use crate::panics::discard;

/// Where a bell hangs.
pub(crate) trait HasBell: Send + Sync {
    fn bell_of_awaited(&self) -> Bell<'_>;
}

/// From one look to the next at what nobody tells of, at least and at most: in between for an eighth
/// of the time that it was awaited.
const SHORTEST_NAP: Duration = Duration::from_micros(50);
const LONGEST_NAP: Duration = Duration::from_millis(1);

/// How the thread sleeps.
enum Sleep {
    /// On a bell, with the ticket of an announcement after which those who await have looked.
    On(Arc<dyn HasBell>, u32),
    Nap(Duration),
}

impl Sleep {
    /// Until whatever ends the one or the other, of which `self` was begun before.
    fn or(self, later: Sleep) -> Sleep {
        match (self, later) {
            // With the earlier ticket: who has it may have missed what came before the later one.
            (Sleep::On(bell, ticket), Sleep::On(other, _))
                if bell.bell_of_awaited().place() == other.bell_of_awaited().place() =>
            {
                Sleep::On(bell, ticket)
            }
            (Sleep::On(..), Sleep::On(..)) => Sleep::Nap(LONGEST_NAP),
            (Sleep::Nap(nap), Sleep::Nap(other)) => Sleep::Nap(nap.min(other)),
            (Sleep::Nap(nap), _) | (_, Sleep::Nap(nap)) => Sleep::Nap(nap),
        }
    }

    fn sleep(self) {
        match self {
            Sleep::On(on, ticket) => on.bell_of_awaited().sleep(ticket, FIRST_SLEEP),
            Sleep::Nap(nap) => std::thread::sleep(nap),
        }
    }
}

#[derive(Default)]
struct Awaited {
    /// By what is awaited: who is to look again when something may have happened.
    wakers: HashMap<usize, Waker>,
    /// How to sleep until then, if the thread does not do so already.
    sleep: Option<Sleep>,
    ended: bool,
}

#[derive(Default)]
struct Shared {
    awaited: Mutex<Awaited>,
    changed: Condvar,
}

impl Shared {
    /// What the thread does.
    fn run(&self) {
        let _counted = Helper::new();
        loop {
            let mut awaited = self.awaited.lock();
            while awaited.wakers.is_empty() && !awaited.ended {
                self.changed.wait(&mut awaited);
            }
            if awaited.ended {
                return;
            }
            let sleep = awaited.sleep.take();
            drop(awaited);
            sleep.into_iter().for_each(Sleep::sleep);
            let mut awaited = self.awaited.lock();
            awaited.sleep = None;
            let wakers = std::mem::take(&mut awaited.wakers);
            drop(awaited);
            for waker in wakers.into_values() {
                if let Err(payload) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
                    discard(payload);
                }
            }
        }
    }
}

/// The thread of those who run on this one.
struct Watcher(Arc<Shared>);

thread_local! {
    static WATCHER: std::cell::OnceCell<Watcher> = const { std::cell::OnceCell::new() };
}

impl Watcher {
    fn start() -> Option<Watcher> {
        let shared = Arc::<Shared>::default();
        let watching = shared.clone();
        let thread = std::thread::Builder::new().name("spmd wakers".into());
        thread.spawn(move || watching.run()).ok().map(|_| Watcher(shared))
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.0.awaited.lock().ended = true;
        self.0.changed.notify_one();
    }
}

/// Looks whether something is over that the agent has started, which has awaited it for so long, and
/// if not, has `waker` woken as soon as it may be: when `on` is rung, and a short time later where
/// nobody may ring. `key` names what is awaited.
pub(crate) fn awaits(
    on: Arc<dyn HasBell>,
    (waker, key): (&Waker, usize),
    waited: Duration,
    look: impl FnOnce() -> bool,
) -> bool {
    let bell = on.bell_of_awaited();
    let ticket = (!scheduler::in_coroutine()).then(|| bell.announce_thread());
    if look() {
        return true;
    }
    let untold = bell.is_polled() || started::poll(Some(bell.place()));
    let sleep = match ticket.filter(|_| !untold) {
        Some(ticket) => Sleep::On(on, ticket),
        // The executors of the other virtual ranks of this thread may park it, too.
        None => Sleep::Nap((waited / 8).clamp(SHORTEST_NAP, LONGEST_NAP)),
    };
    let told = WATCHER.try_with(|watcher| {
        if watcher.get().is_none() {
            let _ = watcher.set(Watcher::start()?);
        }
        let shared = &watcher.get()?.0;
        let mut awaited = shared.awaited.lock();
        awaited.sleep = Some(match awaited.sleep.take() {
            Some(earlier) => earlier.or(sleep),
            None => sleep,
        });
        if awaited.wakers.insert(key, waker.clone()).is_none() {
            shared.changed.notify_one();
        }
        Some(())
    });
    // Where there is no such thread, it looks again and again.
    if !matches!(told, Ok(Some(()))) {
        waker.wake_by_ref();
    }
    false
}
