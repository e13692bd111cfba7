//! Workers that run tasks, and waits for tasks. What a task is, and which one is next, a layer above
//! knows.
//!
//! A worker begins a coroutine when there is work, and that runs one task after another until there is
//! none, or until one has to wait: then it is suspended with its stack, and the worker begins another one.

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::bell::Bell;
use super::coroutine::{Home, Local, Worker, is_task};
use super::name::Name;
use super::policy::{Policy, WaitHooks};
use super::scheduler;
use super::stack::StackPool;
use super::threads::{Busy, Helper};
use super::until::{STUBBORN, until};
use super::worker::{Drive, Feed, Payload, drive};
use crate::error::{Error, Result};
use crate::sync::atomic::AtomicU32;
use crate::trace::TracedWorker;

/// How many tasks of a worker may be under way at a time, all but one of which wait.
const SLOTS: usize = 4096;

/// Where a worker of tasks finds them. All but [`TaskFeed::work`] is called on the worker's thread
/// outside of coroutines.
pub trait TaskFeed {
    /// Whether there is a task that has not begun, as far as this worker sees.
    fn has_work(&self) -> bool;
    /// Runs tasks, until there are none or `enough` says that others of this worker go on.
    fn work(&self, enough: &dyn Fn() -> bool);
    /// There is no stack for the next one: it fails.
    fn no_stack(&self);
    /// The worker is about to sleep: it may, if there is no work once others have been told that they
    /// have to call it.
    fn may_sleep(&self) -> bool;
    /// It does not, or not any more.
    fn awake(&self);
    /// Whether there will be no work any more.
    fn is_closed(&self) -> bool;
}

/// A worker of tasks, as other threads see it.
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "hidden: no user holds one")]
pub struct TaskWorker(Arc<Worker>);

/// What a worker needs to begin.
#[expect(missing_debug_implementations, reason = "hidden: no user holds one")]
pub struct TaskStacks(StackPool);

impl TaskStacks {
    /// Address space for the stacks of a worker, of so many bytes each.
    ///
    /// Errors: the system has none.
    pub fn reserve(bytes: usize) -> Result<TaskStacks> {
        #[cfg(target_os = "linux")]
        super::overflow::install(super::coroutine::overflowed)
            .map_err(|error| Error::system("installing the handler of stack overflows", error))?;
        // One more is for signal handlers.
        let stacks = StackPool::new(SLOTS + 1, bytes);
        let what = "reserving the stacks of tasks (SPMD_STACK_SIZE=bytes makes them smaller)";
        stacks.map(TaskStacks).map_err(|error| Error::system(what, error))
    }
}

impl Default for TaskWorker {
    fn default() -> TaskWorker {
        TaskWorker(Arc::new(Worker::new(SLOTS)))
    }
}

impl TaskWorker {
    /// Tells the worker that there may be work for it.
    pub fn call(&self) {
        if self.0.ready.call() {
            self.0.unpark();
        }
    }

    /// Whether none of its tasks runs, nor was woken: all that have begun wait.
    pub fn is_idle(&self) -> bool {
        self.0.is_idle()
    }

    /// Has all tasks of this worker that wait look again.
    pub fn call_all(&self) {
        if self.0.ready.insert_all() {
            self.0.unpark();
        }
    }

    /// Runs tasks on this thread until there are none any more. An idle worker looks `spins` times
    /// for more before it gives its core away. `traced` shows in a trace what it carries out.
    pub fn run(
        &self,
        stacks: TaskStacks,
        spins: u32,
        feed: &dyn TaskFeed,
        traced: Option<TracedWorker>,
    ) {
        let _counted = Helper::new();
        let drive_with = Drive { worker: self.0.clone(), stacks: stacks.0, spins, slots: SLOTS };
        let busy = Cell::new(Some(Busy::new()));
        drive(drive_with, &Tasks { feed, busy, traced });
    }
}

struct Tasks<'a> {
    feed: &'a dyn TaskFeed,
    /// The worker needs a core.
    busy: Cell<Option<Busy>>,
    traced: Option<TracedWorker>,
}

impl Feed for Tasks<'_> {
    const REUSES: bool = true;

    fn first(&self) -> Name {
        Name::Task
    }

    fn has_next(&self, _: usize) -> bool {
        self.feed.has_work()
    }

    fn run(&self, _: usize) {
        self.feed.work(&|| Local::here(Local::has_others) == Some(true));
    }

    fn ended(&self, _: usize, panic: Option<Payload>) {
        // A task's panic is its outcome.
        if panic.is_some() {
            crate::fault::print(format_args!("a worker of tasks has panicked; aborting"));
            std::process::abort();
        }
    }

    #[inline]
    fn resumes(&self, slot: usize) {
        self.traced.iter().for_each(|traced| traced.resumes(slot));
    }

    #[inline]
    fn suspends(&self, slot: usize) {
        self.traced.iter().for_each(|traced| traced.suspends(slot));
    }

    fn missing(&self, _: usize, _: io::Error) {
        self.feed.no_stack();
    }

    fn is_over(&self, _: usize) -> bool {
        self.feed.is_closed() && !self.feed.has_work()
    }

    fn may_sleep(&self) -> bool {
        let may = self.feed.may_sleep();
        if may {
            self.busy.set(None);
        }
        may
    }

    fn awake(&self) {
        let busy = self.busy.take().unwrap_or_else(Busy::new);
        self.busy.set(Some(busy));
        self.feed.awake();
    }
}

/// Whether a task runs here whose worker cannot begin another one while all that have begun wait.
pub fn worker_is_full() -> bool {
    is_task() && Local::here(|local| local.live.get() >= SLOTS) == Some(true)
}

/// Bytes of stack that are left to the coroutine that runs here; `None` on a thread's own stack.
pub fn stack_left() -> Option<usize> {
    let here = 0u8;
    Local::here(|local| local.stack_left((&raw const here).addr()))
}

/// Where one waits for a task, as a thread or as a coroutine.
#[expect(missing_debug_implementations, reason = "hidden: no user holds one")]
pub struct Sleeper {
    word: AtomicU32,
    home: Option<Home>,
}

impl Sleeper {
    /// For whoever runs here.
    pub fn here() -> Sleeper {
        Sleeper { word: AtomicU32::new(0), home: scheduler::current() }
    }

    /// Has it look again, after a change made before this call.
    pub fn wake(&self) {
        self.bell().ring();
    }

    pub(crate) fn bell(&self) -> Bell<'_> {
        Bell::new(&self.word, self.home.as_ref())
    }
}

/// Waits for `done` where no rank runs: in a task, or on a thread of the program's own.
///
/// Errors: `refused` gives one; a thread that is panicking cannot wait in a task.
pub(crate) fn until_task(
    sleeper: &Sleeper,
    refused: &dyn Fn() -> Option<Error>,
    done: &mut dyn FnMut() -> bool,
) -> Result<()> {
    const POLICY: Policy = STUBBORN;
    let mut hooks = Refusable(refused);
    until(|| sleeper.bell(), &POLICY, &mut hooks, || done().then_some(()))
}

/// The hooks of such a wait.
struct Refusable<'a>(&'a dyn Fn() -> Option<Error>);

impl WaitHooks for Refusable<'_> {
    fn interrupted(&self) -> Option<Error> {
        (self.0)()
    }
    fn awake(&mut self) {}
    fn overdue(&mut self, _: Duration, _: &mut dyn FnMut() -> bool) -> Result<()> {
        Ok(())
    }
}
