//! The coroutine that runs on a thread, and how it waits and is woken.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::*};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use corosensei::Yielder;

use super::current::{self, is_started};
use super::name::Name;
use super::ready::{LocalSet, SharedSet};

/// Why a suspended coroutine runs again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resumed {
    /// It was woken, or polls, or for no reason.
    Woken,
    /// Nothing woke it for a while: the time for its slow checks (time limits, dead peers).
    Sweep,
    /// It was not suspended, because it cannot be: its thread unwinds, or no coroutine runs here.
    Refused,
}

/// What a coroutine waits for.
#[derive(Clone, Copy)]
pub enum Suspension {
    /// A wake.
    Wake,
    /// Nothing that would tell it, such as what another process does: it looks again on every
    /// pass. Its worker meanwhile sleeps for no longer than about 50 µs at a time. `again`: it has done
    /// nothing since it did so last.
    Poll { again: bool },
}

type RankYielder = Yielder<Resumed, Suspension>;

/// Instead of a thread's number: the worker has ended.
pub(super) const ENDED: i32 = -1;

/// What other threads know of a worker.
pub(super) struct Worker {
    pub(super) ready: SharedSet,
    /// Set before the worker first sleeps.
    pub(super) thread: OnceLock<Thread>,
    /// The system's number of that thread, 0 where it is not known.
    pub(super) number: AtomicI32,
    /// Whether it has found nothing to do: all its coroutines wait, as far as it has seen.
    idle: AtomicBool,
}

impl Worker {
    pub(super) fn new(slots: usize) -> Worker {
        let (ready, thread) = (SharedSet::new(slots), OnceLock::new());
        Worker { ready, thread, number: AtomicI32::new(0), idle: AtomicBool::new(false) }
    }

    /// It has found nothing to do, also when it was called for nothing.
    pub(super) fn is_idle_now(&self) {
        if !self.idle.load(Relaxed) {
            self.idle.store(true, SeqCst);
        }
    }

    /// It goes on with something, which others that look for it may miss from then on.
    pub(super) fn goes_on(&self) {
        if self.idle.load(Relaxed) {
            self.idle.store(false, SeqCst);
        }
    }

    /// Whether none of its coroutines goes on, nor was made ready.
    pub(super) fn is_idle(&self) -> bool {
        self.idle.load(SeqCst) && self.ready.is_empty()
    }

    pub(super) fn unpark(&self) {
        // A worker makes its thread known before it first sleeps.
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

/// The coroutine that runs.
#[derive(Clone, Copy)]
pub(super) struct RunningCoroutine {
    pub(super) slot: usize,
    pub(super) yielder: *const RankYielder,
}

/// What the coroutines of a worker share with its loop, on the same thread.
pub(super) struct Local {
    pub(super) worker: Arc<Worker>,
    pub(super) ready: LocalSet,
    /// Those that look again on every pass.
    pub(super) polling: LocalSet,
    pub(super) running: Cell<RunningCoroutine>,
    pub(super) now: Cell<Instant>,
    /// Coroutines that have begun and not ended.
    pub(super) live: Cell<usize>,
    #[cfg(target_os = "linux")]
    pub(super) stacks: StackFacts,
}

/// What the report of an overflow needs.
#[cfg(target_os = "linux")]
pub(super) struct StackFacts {
    pub(super) guards: super::stack::Guards,
    pub(super) size: usize,
    pub(super) first: Name,
}

thread_local! {
    /// Set while the loop of a worker runs on this thread. A coroutine never changes its thread,
    /// so that code in one may keep the address of this variable across a suspension.
    static LOCAL: Cell<*const Local> = const { Cell::new(ptr::null()) };

    /// For the calls that a thread has started which is no worker. It lives as long as the thread,
    /// so longer than they do: a started call is over before whoever has started it ends.
    static OF_THREAD: Local = Local {
        worker: Arc::new(Worker::new(1)),
        ready: LocalSet::new(1),
        polling: LocalSet::new(1),
        running: Cell::new(RunningCoroutine { slot: 0, yielder: ptr::null() }),
        now: Cell::new(Instant::now()),
        live: Cell::new(0),
        #[cfg(target_os = "linux")]
        stacks: StackFacts { guards: super::stack::Guards::none(), size: 0, first: Name::Task },
    };
}

impl Local {
    /// Makes `self` the one of this thread while `run` runs.
    pub(super) fn enter<R>(&self, run: impl FnOnce() -> R) -> R {
        struct Leave;
        impl Drop for Leave {
            fn drop(&mut self) {
                LOCAL.set(ptr::null());
            }
        }
        LOCAL.set(self);
        let _leave = Leave;
        run()
    }

    /// Runs a coroutine of its own of whoever runs here, which is resumed on this thread alone: the
    /// coroutine that runs here is the same one afterwards. On a thread that is no worker, it is
    /// the only one of a worker that nothing wakes. `None` if the thread is over, as at the exit of a
    /// process in the middle of a call.
    pub(super) fn progress<R>(resume: impl FnOnce() -> R) -> Option<R> {
        let here = LOCAL.get();
        if here.is_null() {
            return OF_THREAD.try_with(|local| local.enter(resume)).ok();
        }
        // SAFETY: as in `with`.
        let running = unsafe { &(*here).running };
        let before = running.get();
        let result = resume();
        running.set(before);
        Some(result)
    }

    /// Makes what calls need that this thread starts, if it is not there.
    pub(super) fn of_thread() {
        OF_THREAD.with(|_| ());
    }

    /// Says in a coroutine that has just begun beside the one that ran here that it runs here now.
    pub(super) fn runs(yielder: &RankYielder) {
        Local::with(|local| local.running.set(RunningCoroutine { yielder, ..local.running.get() }));
    }

    /// Reads the clock for [`coarse_now`].
    pub(super) fn read_clock() {
        let now = Instant::now();
        if Local::with(|local| local.now.set(now)).is_none() {
            let _ = OF_THREAD.try_with(|local| local.now.set(now));
        }
    }

    /// Gives the worker of the coroutine that runs here to `look`.
    pub(super) fn here<R>(look: impl FnOnce(&Local) -> R) -> Option<R> {
        Local::with(look)
    }

    /// Whether other coroutines of this worker may go on.
    pub(super) fn has_others(&self) -> bool {
        !self.ready.is_empty() || !self.polling.is_empty() || !self.worker.ready.is_empty()
    }

    /// How much of its stack is left to the coroutine that has something at this address.
    pub(super) fn stack_left(&self, address: usize) -> usize {
        #[cfg(target_os = "linux")]
        return self.stacks.guards.above(address);
        // Where stacks are the system's, it is not known.
        #[cfg(not(target_os = "linux"))]
        return {
            let _ = address;
            0
        };
    }

    #[inline]
    fn with<R>(call: impl FnOnce(&Local) -> R) -> Option<R> {
        let local = LOCAL.get();
        // SAFETY: `enter` resets the pointer before its borrow of the value ends, and a worker
        // runs all its coroutines to their end inside `enter`, so that `call`, which runs on this
        // thread in `enter` or a coroutine, ends before that. All access is shared.
        (!local.is_null()).then(|| call(unsafe { &*local }))
    }
}

/// Where a coroutine lives: the handle with which any thread makes it ready again.
#[derive(Clone)]
pub struct Home {
    worker: Arc<Worker>,
    slot: usize,
}

impl Home {
    /// Makes the coroutine ready, so that it runs again after its present or next [`suspend`].
    /// What the caller did before is visible to it. Does nothing once the coroutine has ended.
    pub fn wake(&self) {
        let here = Local::with(|local| {
            let here = Arc::ptr_eq(&local.worker, &self.worker);
            if here {
                local.ready.insert(self.slot);
            }
            here
        });
        if here != Some(true) && self.worker.ready.insert(self.slot) {
            self.worker.unpark();
        }
    }

    /// [`Home::wake`] for all coroutines of its worker, but the one that runs here.
    pub fn wake_all(&self) {
        let here = Local::with(|local| {
            let here = Arc::ptr_eq(&local.worker, &self.worker);
            if here {
                local.ready.insert_all_but(local.running.get().slot);
            }
            here
        });
        if here != Some(true) && self.worker.ready.insert_all() {
            self.worker.unpark();
        }
    }

    /// For how long this thread has seen the coroutine's worker wait for something outside the
    /// library that only another thread brings about, so that the coroutine cannot run.
    pub fn held_up(&self) -> Duration {
        match self.worker.number.load(Relaxed) {
            0 | ENDED => Duration::ZERO,
            number => super::blocking::stands_still(number),
        }
    }

    /// Whether the coroutine's worker runs none of its ranks, and will not unless another thread
    /// does something: it sleeps, has ended, or is held up for so long.
    pub fn stands_still(&self, time: Duration) -> bool {
        let ended = self.worker.number.load(Relaxed) == ENDED;
        ended || self.worker.ready.is_asleep() || self.held_up() >= time
    }

    /// Whether both live on one worker.
    pub fn is_progressing(&self, other: &Home) -> bool {
        Arc::ptr_eq(&self.worker, &other.worker)
    }

    /// Whether this is the home of the coroutine that runs on this thread.
    #[inline]
    pub fn is_current(&self) -> bool {
        let here = Local::with(|local| {
            local.running.get().slot == self.slot && Arc::ptr_eq(&local.worker, &self.worker)
        });
        here == Some(true)
    }
}

/// The coroutine that runs on this thread, if one does.
pub fn current() -> Option<Home> {
    Local::with(|local| Home { worker: local.worker.clone(), slot: local.running.get().slot })
}

/// Whether the caller runs in a coroutine.
#[inline]
pub fn in_coroutine() -> bool {
    !LOCAL.get().is_null()
}

/// Whether a task runs here, as a coroutine of a worker of tasks: not one that a rank carries out.
pub(crate) fn is_task() -> bool {
    in_coroutine() && !current::task().is_null() && current::current().is_null()
}

/// The task that runs here has been suspended, and goes on.
pub(super) fn task_goes_on() {
    Local::with(|local| local.worker.goes_on());
}

/// Which coroutine of its worker runs on this thread, if one does.
pub fn slot() -> Option<usize> {
    Local::with(|local| local.running.get().slot)
}

/// Who runs on this thread: `None` for a thread, and for a coroutine its worker and its place there.
pub type AgentKey = Option<(usize, usize)>;

/// That of who runs here.
pub fn key() -> AgentKey {
    Local::with(|local| (Arc::as_ptr(&local.worker).addr(), local.running.get().slot))
}

/// Suspends the running coroutine until its [`Home`] is woken. May return without that.
///
/// A wake between the caller's last look at its condition and the suspension is not lost: the
/// coroutine is then resumed on the worker's next pass.
#[inline(always)]
pub fn suspend() -> Resumed {
    suspend_for(Suspension::Wake)
}

/// Suspends the running coroutine for what it waits for.
///
/// Inlined, as is the one above: a return that does not match the last call, as the one after a
/// switch to another stack, is mispredicted by the processor. Without inlining, a switch takes
/// three times as long.
#[inline(always)]
pub fn suspend_for(what: Suspension) -> Resumed {
    // The panic count belongs to the thread: the next coroutine would find itself unwinding. A
    // started call only goes back to whoever has started it.
    if thread::panicking() && !is_started() {
        return Resumed::Refused;
    }
    let resumed = Local::with(|local| {
        let running = local.running.get();
        // SAFETY: the yielder lies on the stack of the running coroutine, which is the caller's
        // (only coroutines run while `LOCAL` is set), and lives as long as its closure runs.
        let resumed = unsafe { &*running.yielder }.suspend(what);
        local.running.set(running);
        resumed
    });
    resumed.unwrap_or(Resumed::Refused)
}

/// The time, for measuring waits without a clock call for each.
///
/// In a coroutine it is the time of the worker's last reading, of which there is one per 64
/// resumed coroutines, and fewer when these run long, one after being idle, and one before a
/// sweep. So after [`Resumed::Sweep`] it lies after the start of the wait, which it may not do
/// before. Outside a coroutine it is the time.
pub fn coarse_now() -> Instant {
    Local::with(|local| local.now.get()).unwrap_or_else(Instant::now)
}

/// Whose stack has its guard at `address`, if it is the running coroutine of this thread. Called
/// in a signal handler: it reads memory of this thread alone.
#[cfg(target_os = "linux")]
pub(super) fn overflowed(address: usize) -> Option<super::overflow::Overflow> {
    Local::with(|local| {
        let stacks = &local.stacks;
        stacks.guards.contain(address).then(|| super::overflow::Overflow {
            who: match stacks.first {
                Name::Rank(first) => Name::Rank(first + local.running.get().slot),
                Name::Task => Name::Task,
            },
            stack_size: stacks.size,
        })
    })
    .flatten()
}
