//! Virtual ranks: coroutines pinned to a few worker threads.
//!
//! A coroutine waits by suspending, and its worker then runs another one. It is started by the
//! worker that owns its rank and never leaves that thread, as its stack may hold what is not
//! `Send`.

use std::any::Any;
use std::cell::RefCell;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::{io, panic};

use super::coroutine::Worker;
pub use super::coroutine::{
    Home, Resumed, Suspension, coarse_now, current, in_coroutine, slot, suspend, suspend_for,
};
use super::name::Name;
pub use super::stack::DEFAULT_STACK_SIZE;
use super::stack::StackPool;
pub use super::worker::Payload;
use super::worker::{Drive, Feed, OnDrop};
use crate::error::Error;

/// Looks that an idle worker takes before it gives its core away: about 20 µs. It does so only
/// where each worker can have a core.
pub const SPINS: u32 = 1000;

/// How to run a scheduler of virtual ranks.
pub struct SchedulerOptions {
    /// How many coroutines.
    pub ranks: usize,
    /// How many threads run them; more than `ranks` are not used.
    pub workers: usize,
    /// The stack of each coroutine in bytes, at least 64 KiB.
    pub stack_size: usize,
    /// What the names of the threads begin with; the worker's number follows.
    pub name: String,
    /// How often an idle worker looks for work again before it gives its core away.
    pub spins: u32,
    /// Called with each rank that the system gives no stack, so that nobody waits for it.
    pub missing: Box<dyn Fn(usize) + Send + Sync>,
    /// Called on each worker's thread with the worker's number before it runs ranks. What it gives
    /// is dropped there after the ranks have ended.
    pub bind: Box<dyn Fn(usize) -> Box<dyn Any> + Send + Sync>,
}

impl SchedulerOptions {
    /// Options for `ranks` virtual ranks on `workers` threads that are bound to no core.
    pub fn new(ranks: usize, workers: usize) -> SchedulerOptions {
        let cores = thread::available_parallelism().map_or(1, |cores| cores.get());
        SchedulerOptions {
            ranks,
            workers,
            stack_size: DEFAULT_STACK_SIZE,
            name: "spmd-worker-".into(),
            spins: if workers <= cores { SPINS } else { 0 },
            missing: Box::new(|_| ()),
            bind: Box::new(|_| Box::new(())),
        }
    }
}

/// The ranks that run on one of so many workers.
pub(crate) fn ranks_of_worker(ranks: usize, workers: usize, worker: usize) -> Range<usize> {
    ranks * worker / workers..ranks * (worker + 1) / workers
}

/// Runs `body(rank)` for each rank of a scheduler in a coroutine of its own, in contiguous blocks
/// of ranks per worker, and returns when all have ended: for each rank the payload of its panic, if
/// it panicked.
///
/// `wait` is called in the meantime with a function that tells whether all have ended, so that
/// the caller can wait in its own way; `on_done` is called on another thread when that function
/// begins to return true. Whatever `wait` does, this returns (or unwinds) only when nothing of
/// the scheduler uses `body` any more; where `wait` returns early, the thread is blocked.
///
/// A panic of `SchedulerOptions::bind` is resumed on the caller when all else has ended.
///
/// Errors: [`Error::System`] where the system refuses threads or the address space for the
/// stacks. No rank has run then.
pub fn run(
    options: &SchedulerOptions,
    body: &(dyn Fn(usize) + Sync),
    on_done: &(dyn Fn() + Sync),
    wait: impl FnOnce(&dyn Fn() -> bool),
) -> Result<Vec<Option<Payload>>, Error> {
    let ranks = options.ranks;
    let workers = options.workers.clamp(1, ranks.max(1));
    let mut drives = Vec::with_capacity(workers);
    for worker in 0..workers {
        let its = ranks_of_worker(ranks, workers, worker);
        drives.push((made(options, its.len())?, its));
    }
    #[cfg(target_os = "linux")]
    super::overflow::install(super::coroutine::overflowed)
        .map_err(|error| Error::system("installing the handler of stack overflows", error))?;

    let start = OnceLock::new();
    let running = AtomicUsize::new(workers);
    let mut panics: Vec<Option<Payload>> = (0..ranks).map(|_| None).collect();
    thread::scope(|scope| {
        let mut threads = Vec::with_capacity(workers);
        for (worker, (drive, its)) in drives.into_iter().enumerate() {
            let (start, running) = (&start, &running);
            let spawned = thread::Builder::new()
                .name(format!("{}{worker}", options.name))
                .spawn_scoped(scope, move || {
                    let _ended = OnDrop(|| {
                        if running.fetch_sub(1, Ordering::AcqRel) == 1 {
                            on_done();
                        }
                    });
                    let _kept = (options.bind)(worker);
                    if *start.wait() { run_ranks(drive, its, options, body) } else { Vec::new() }
                });
            match spawned {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    start.get_or_init(|| false);
                    return Err(Error::system("starting a thread for virtual ranks", error));
                }
            }
        }
        start.get_or_init(|| true);
        wait(&|| running.load(Ordering::Acquire) == 0);
        for thread in threads {
            match thread.join() {
                Ok(of_worker) => {
                    of_worker.into_iter().for_each(|(rank, panic)| panics[rank] = Some(panic));
                }
                Err(panic) => panic::resume_unwind(panic),
            }
        }
        Ok(panics)
    })
}

/// What one worker needs, made before any thread starts so that failures are errors.
fn made(options: &SchedulerOptions, slots: usize) -> Result<Drive, Error> {
    let worker = Arc::new(Worker::new(slots));
    // One more is for signal handlers.
    let stacks = StackPool::new(slots + 1, options.stack_size).map_err(|error| {
        Error::system(
            "reserving the stacks of virtual ranks (fewer ranks or smaller stacks may help)",
            error,
        )
    })?;
    Ok(Drive { worker, stacks, spins: options.spins, slots })
}

/// The ranks of one worker, each in its slot.
struct Ranks<'a> {
    ranks: Range<usize>,
    body: &'a (dyn Fn(usize) + Sync),
    /// What is called for a rank without a stack.
    no_stack: &'a (dyn Fn(usize) + Send + Sync),
    panics: RefCell<Vec<(usize, Payload)>>,
}

/// Runs the ranks of a worker on this thread; returns the panics, with their ranks.
fn run_ranks(
    drive: Drive,
    ranks: Range<usize>,
    options: &SchedulerOptions,
    body: &(dyn Fn(usize) + Sync),
) -> Vec<(usize, Payload)> {
    let ranks = Ranks { ranks, body, no_stack: &*options.missing, panics: RefCell::default() };
    super::worker::drive(drive, &ranks);
    ranks.panics.into_inner()
}

impl Feed for Ranks<'_> {
    const REUSES: bool = false;

    fn first(&self) -> Name {
        Name::Rank(self.ranks.start)
    }

    #[inline]
    fn has_next(&self, slots: usize) -> bool {
        slots < self.ranks.len()
    }

    fn run(&self, slot: usize) {
        (self.body)(self.ranks.start + slot);
    }

    fn ended(&self, slot: usize, panic: Option<Payload>) {
        let panic = panic.map(|payload| (self.ranks.start + slot, payload));
        self.panics.borrow_mut().extend(panic);
    }

    fn missing(&self, slot: usize, why: io::Error) {
        let rank = self.ranks.start + slot;
        let message =
            format!("virtual rank {rank} got no stack: {why}; use fewer virtual ranks per process");
        self.panics.borrow_mut().push((rank, Box::new(message)));
        (self.no_stack)(rank);
    }

    fn is_over(&self, slots: usize) -> bool {
        slots == self.ranks.len()
    }

    fn may_sleep(&self) -> bool {
        true
    }

    fn awake(&self) {}
}

#[cfg(test)]
mod tests;
