//! One worker: an OS thread that runs coroutines in turn, which a [`Feed`] gives it.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use std::{hint, io, mem, process, ptr, thread};

use corosensei::{Coroutine, CoroutineResult};

use super::coroutine::{ENDED, Local, Resumed, RunningCoroutine, Suspension, Worker};
use super::current;
use super::name::Name;
use super::policy::{POLLED_SPINS, POLLED_YIELDS};
use super::ready::LocalSet;
use super::stack::{PooledStack, StackPool};

/// What a panic carries.
pub type Payload = Box<dyn Any + Send>;

type RankCoroutine = Coroutine<Resumed, Suspension, Option<Payload>, PooledStack>;

/// How long an idle worker leaves those alone that nobody wakes: at first, and, as each sweep
/// doubles it, at most.
const IDLE_SWEEP: Duration = Duration::from_millis(20);
const IDLE_SWEEP_MAX: Duration = Duration::from_millis(200);
/// The same for a worker that is never idle.
const BUSY_SWEEP: Duration = Duration::from_millis(100);
/// A worker with many coroutines that is not idle sweeps less often: for so many times as long as a
/// sweep has taken, it does something else.
const SWEEP_REST: u32 = 8;
/// What the checks of one coroutine take of a sweep at most: the rest of its time is the program's,
/// of ranks that could go on.
const CHECK: Duration = Duration::from_micros(20);
/// How long a worker sleeps that has no coroutine: with a limit, as no wait of this library is without
/// one (`blocking.rs`).
const NOTHING_TO_SWEEP: Duration = Duration::from_secs(60);
/// The longest sleep while a coroutine polls.
const POLL: Duration = Duration::from_micros(50);
/// An idle worker gives its core away this many times before it sleeps.
const YIELDS: u32 = 10;
/// Coroutines resumed between two readings of the clock: at most this many, and one only while
/// a reading comes later than `CLOCK_LATE` after the last.
const CLOCK_STRIDE: u32 = 64;
const CLOCK_LATE: Duration = Duration::from_millis(1);

/// What a worker runs: coroutines, each in a slot of its own.
pub(super) trait Feed {
    /// Whether a slot is used again when its coroutine has ended.
    const REUSES: bool;
    /// What a report of an overflow calls the coroutine in the first slot.
    fn first(&self) -> Name;
    /// Whether a coroutine is to begin now, where so many slots have been in use.
    fn has_next(&self, slots: usize) -> bool;
    /// What the coroutine in this slot does.
    fn run(&self, slot: usize);
    /// It has ended, by a panic if there is one.
    fn ended(&self, slot: usize, panic: Option<Payload>);
    /// The coroutine in this slot begins, or goes on.
    fn resumes(&self, _slot: usize) {}
    /// It is suspended.
    fn suspends(&self, _slot: usize) {}
    /// There is no stack for it.
    fn missing(&self, slot: usize, why: io::Error);
    /// Whether nothing begins any more, where so many slots have been in use.
    fn is_over(&self, slots: usize) -> bool;
    /// The worker is about to sleep: whether it may.
    fn may_sleep(&self) -> bool;
    /// It does not, or not any more.
    fn awake(&self);
}

/// What a worker is made of.
pub(super) struct Drive {
    pub(super) worker: Arc<Worker>,
    pub(super) stacks: StackPool,
    /// How often an idle worker looks again before it gives its core away.
    pub(super) spins: u32,
    /// How many coroutines there are at a time.
    pub(super) slots: usize,
}

/// Does something when it is dropped.
pub(super) struct OnDrop<F: FnMut()>(pub(super) F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        self.0();
    }
}

/// Runs all coroutines of a worker on this thread, until there are no more.
#[cfg_attr(not(target_os = "linux"), allow(unused_mut))]
pub(super) fn drive(mut drive: Drive, feed: &impl Feed) {
    let worker = drive.worker.clone();
    let _ended = OnDrop(|| worker.number.store(ENDED, Relaxed));
    // Without one, the thread keeps the one that the standard library gave it.
    #[cfg(target_os = "linux")]
    let _signal_stack = drive.stacks.take().ok().map(super::overflow::SignalStack::enter);
    // Only `drive` sets it, and it runs once for each worker.
    let _ = drive.worker.thread.set(thread::current());
    #[cfg(target_os = "linux")]
    drive.worker.number.store(rustix::thread::gettid().as_raw_nonzero().get(), Relaxed);
    let now = Instant::now();
    let local = Local {
        worker: drive.worker.clone(),
        ready: LocalSet::new(drive.slots),
        polling: LocalSet::new(drive.slots),
        running: Cell::new(RunningCoroutine { slot: 0, yielder: ptr::null() }),
        now: Cell::new(now),
        live: Cell::new(0),
        #[cfg(target_os = "linux")]
        stacks: super::coroutine::StackFacts {
            guards: drive.stacks.guards(),
            size: drive.stacks.stack_size(),
            first: feed.first(),
        },
    };
    let runner = Runner {
        local: &local,
        feed,
        coroutines: Vec::new(),
        free: Vec::new(),
        clock_stride: 1,
        until_clock: 1,
        next_sweep: now + BUSY_SWEEP,
        idle_sweep: IDLE_SWEEP,
        sweep_took: Duration::ZERO,
        sweep_due: false,
        drive,
    };
    // An error of the loop itself must not unwind past coroutines that others can still wake.
    let abort = AbortOnDrop;
    local.enter(|| runner.run());
    mem::forget(abort);
}

struct AbortOnDrop;

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        process::abort();
    }
}

struct Runner<'a, F> {
    drive: Drive,
    feed: &'a F,
    local: &'a Local,
    /// Those started so far; `None` where one has ended.
    coroutines: Vec<Option<RankCoroutine>>,
    /// Slots that may be used again.
    free: Vec<usize>,
    clock_stride: u32,
    until_clock: u32,
    next_sweep: Instant,
    idle_sweep: Duration,
    /// How long the last sweep took.
    sweep_took: Duration,
    sweep_due: bool,
}

impl<F: Feed> Runner<'_, F> {
    fn run(mut self) {
        let mut idle_passes = 0;
        while self.local.live.get() > 0 || !self.feed.is_over(self.coroutines.len()) {
            if !self.local.worker.ready.is_empty() {
                self.local.worker.goes_on();
                self.take_shared();
            }
            let mut progress = self.resume_ready();
            progress |= self.resume_polling();
            progress |= self.start_next();
            if progress || !self.local.ready.is_empty() {
                idle_passes = 0;
                if self.sweep_due {
                    self.sweep(BUSY_SWEEP);
                    self.next_sweep = Instant::now() + self.pause();
                }
            } else {
                self.idle(idle_passes);
                idle_passes = idle_passes.saturating_add(1);
            }
        }
    }

    fn take_shared(&self) {
        self.local.worker.ready.take(|word, bits| self.local.ready.insert_word(word, bits));
    }

    /// One pass over the ready ones, in order, so that none is resumed twice before another once.
    #[inline(always)]
    fn resume_ready(&mut self) -> bool {
        let (mut from, mut progress) = (0, false);
        while let Some(slot) = self.local.ready.take_from(from) {
            self.resume(slot, Resumed::Woken);
            (from, progress) = (slot + 1, true);
        }
        progress
    }

    fn resume_polling(&mut self) -> bool {
        let (mut from, mut progress) = (0, false);
        while let Some(slot) = self.local.polling.take_from(from) {
            progress |= self.resume(slot, Resumed::Woken);
            from = slot + 1;
        }
        progress
    }

    fn start_next(&mut self) -> bool {
        if !self.feed.has_next(self.coroutines.len()) {
            return false;
        }
        let slot = self.free.pop().unwrap_or(self.coroutines.len());
        if slot == self.drive.slots {
            return false;
        }
        if slot == self.coroutines.len() {
            self.coroutines.push(None);
        }
        let stack = match self.drive.stacks.take() {
            Ok(stack) => stack,
            Err(error) => {
                self.feed.missing(slot, error);
                self.leaves(slot);
                return true;
            }
        };
        self.local.worker.goes_on();
        let (local, feed) = (self.local, self.feed);
        // SAFETY: the closure borrows `local` and `feed`, which outlive this runner. The runner
        // lets go of a coroutine only when it has ended: `run` goes on until all have, and `drive`
        // aborts the process rather than unwind out of it.
        let coroutine = unsafe {
            RankCoroutine::with_stack_unchecked(stack, move |yielder, _| {
                local.running.set(RunningCoroutine { slot, yielder });
                current::begin();
                catch_unwind(AssertUnwindSafe(|| feed.run(slot))).err()
            })
        };
        self.coroutines[slot] = Some(coroutine);
        self.local.live.set(self.local.live.get() + 1);
        self.resume(slot, Resumed::Woken);
        true
    }

    fn leaves(&mut self, slot: usize) {
        if F::REUSES {
            self.free.push(slot);
        }
    }

    /// Whether the coroutine did more than to look and poll again. Inlined for the reason given at
    /// `suspend_for`.
    #[inline(always)]
    fn resume(&mut self, slot: usize, why: Resumed) -> bool {
        // A stale wake may come for a coroutine that has ended.
        let Some(entry) = self.coroutines.get_mut(slot) else { return false };
        let Some(coroutine) = entry else { return false };
        self.feed.resumes(slot);
        let progress = match coroutine.resume(why) {
            CoroutineResult::Yield(Suspension::Wake) => {
                self.feed.suspends(slot);
                true
            }
            CoroutineResult::Yield(Suspension::Poll { again }) => {
                self.feed.suspends(slot);
                self.local.polling.insert(slot);
                !again
            }
            CoroutineResult::Return(panic) => {
                if let Some(ended) = entry.take() {
                    self.drive.stacks.give_back(ended.into_stack());
                }
                self.feed.ended(slot, panic);
                self.local.live.set(self.local.live.get() - 1);
                self.leaves(slot);
                true
            }
        };
        self.until_clock -= 1;
        if self.until_clock == 0 {
            self.read_clock_when_busy();
        }
        progress
    }

    #[cold]
    fn read_clock_when_busy(&mut self) {
        let now = Instant::now();
        let late = now - self.local.now.replace(now) > CLOCK_LATE;
        self.clock_stride = if late { 1 } else { (self.clock_stride * 2).min(CLOCK_STRIDE) };
        self.until_clock = self.clock_stride;
        self.next_sweep = self.next_sweep.min(now + self.pause());
        self.sweep_due = now >= self.next_sweep;
    }

    /// What a pass without progress ends with: a moment's spinning, then giving the core away,
    /// then sleep.
    fn idle(&mut self, passes: u32) {
        let spins = self.spins();
        self.local.worker.is_idle_now();
        if passes < spins {
            hint::spin_loop();
            return;
        }
        let now = Instant::now();
        self.local.now.set(now);
        if passes == spins {
            self.idle_sweep = IDLE_SWEEP;
            self.next_sweep = self.next_sweep.min(now + IDLE_SWEEP.max(self.sweep_took));
        }
        if now >= self.next_sweep {
            self.idle_sweep = (self.idle_sweep * 2).min(IDLE_SWEEP_MAX);
            self.sweep(self.idle_sweep.max(self.sweep_took));
        } else if passes - spins < self.yields() {
            thread::yield_now();
        } else {
            if self.feed.may_sleep() && self.local.worker.ready.fall_asleep() {
                let limit = if self.local.live.get() == 0 {
                    NOTHING_TO_SWEEP
                } else {
                    self.next_sweep - now
                };
                let polls = !self.local.polling.is_empty();
                thread::park_timeout(if polls { limit.min(POLL) } else { limit });
                if !self.local.worker.ready.is_empty() {
                    self.local.worker.goes_on();
                }
                self.take_shared();
                self.local.now.set(Instant::now());
            }
            self.feed.awake();
        }
    }

    fn spins(&self) -> u32 {
        if self.local.polling.is_empty() {
            self.drive.spins
        } else {
            self.drive.spins.min(POLLED_SPINS)
        }
    }

    /// How often to give the core away before it sleeps: nobody wakes it for what is polled.
    fn yields(&self) -> u32 {
        if self.local.polling.is_empty() { YIELDS } else { POLLED_YIELDS }
    }

    /// Resumes all that are suspended, whether woken or not.
    fn sweep(&mut self, until_next: Duration) {
        let start = Instant::now();
        self.local.now.set(start);
        for slot in 0..self.coroutines.len() {
            self.resume(slot, Resumed::Sweep);
        }
        let end = Instant::now();
        self.local.now.set(end);
        self.sweep_took = (end - start).min(CHECK * self.coroutines.len() as u32);
        self.next_sweep = end + until_next;
        self.sweep_due = false;
    }

    /// The time from one sweep to the next of a worker that has something else to do.
    fn pause(&self) -> Duration {
        BUSY_SWEEP.max(self.sweep_took * SWEEP_REST)
    }
}
