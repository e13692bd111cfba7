//! The workers of a process, and the queues from which they take what is to be done.
//!
//! # Why no task waits while a worker sleeps
//! Who puts a job into a queue executes a sequentially consistent fence, and then looks whether a worker
//! sleeps, which it calls. A worker that is about to sleep says so, executes such a fence, and then looks
//! into all queues once more. Of the two fences one comes first: either who puts the job sees that the
//! worker sleeps, or the worker sees the job. A call that comes before the worker is asleep keeps it
//! awake (`ready.rs` of `spmd-core`).

use std::cell::Cell;
use std::io;
use std::ptr::null;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*, fence};
use std::thread::{self, JoinHandle};

use crossbeam_deque::{Injector, Steal, Stealer, Worker};
use parking_lot::Mutex;
use spmd_core::internal::{
    ProcessWorkers, TaskFeed, TaskStacks, TaskWorker, bind_to_process, stack_left, task,
};
use spmd_core::{Error, Result};

use crate::about::Priority;

/// Something that a worker does.
#[expect(missing_debug_implementations, reason = "hidden: no user holds one")]
pub struct Job {
    what: *const (),
    act: Act,
}

/// Does something with what a job is of.
pub(crate) type Act = unsafe fn(*const (), Ask) -> *const ();

/// What a job is asked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    /// To be done.
    Run,
    /// To fail, as there is no stack for it.
    Fail,
    /// To which group it belongs, if to one.
    Group,
}

// SAFETY: what it does may be done on any thread (the contract of `Job::new`).
unsafe impl Send for Job {}

impl Job {
    /// # Safety
    /// `act` may be called with `what` and `Run` or `Fail` once, on any thread, whenever that may be, and
    /// with `Group` before that.
    pub(crate) unsafe fn new(what: *const (), act: Act) -> Job {
        Job { what, act }
    }

    pub(crate) fn is(&self, what: *const ()) -> bool {
        self.what == what
    }

    /// Whether it is a task of this group.
    fn is_of(&self, group: *const ()) -> bool {
        // SAFETY: as `Job::new` was told; it has not been run.
        std::ptr::eq(unsafe { (self.act)(self.what, Ask::Group) }, group)
    }

    pub(crate) fn run(self) {
        // SAFETY: as `Job::new` was told; it is called once, as this takes the job.
        unsafe { (self.act)(self.what, Ask::Run) };
    }

    /// Has it fail with [`NO_STACK`].
    fn fail(self) {
        // SAFETY: as above.
        unsafe { (self.act)(self.what, Ask::Fail) };
    }
}

/// Why a job fails for which the system has no stack.
pub(crate) const NO_STACK: &str = "the system has no memory for the stack of a task; fewer may wait at a time (SPMD_STACK_SIZE=bytes)";

/// What is to be done, and who does it. As many jobs may wait as there is memory for.
pub(crate) struct Queues {
    urgent: Injector<Job>,
    usual: Injector<Job>,
    idle: Injector<Job>,
    /// The workers.
    members: Box<[TaskWorker]>,
    /// What they, and then ranks with threads of their own, have put into queues of their own.
    own: Box<[Stealer<Job>]>,
    /// Which of them sleep, a bit each.
    sleeping: Box<[AtomicU64]>,
    sleepers: AtomicUsize,
    /// Ranks with tasks whose own threads run.
    ranks: AtomicUsize,
    closed: AtomicBool,
}

thread_local! {
    /// The worker that this thread is, or the rank's part if it has it for itself. Coroutines never
    /// change their thread.
    static HERE: Cell<*const Here> = const { Cell::new(null()) };
}

/// A worker, or a rank, on its thread.
pub(crate) struct Here {
    queues: Arc<Queues>,
    own: Worker<Job>,
    /// Which queue is its own.
    number: usize,
    /// Of a rank, what it has in place of a task.
    main: Cell<*const ()>,
}

// SAFETY: all of it may be used on another thread, by one at a time; what `main` points to by several.
unsafe impl Send for Here {}

impl Queues {
    /// For so many workers, which are yet to be started, and these queues of theirs and of ranks.
    fn new(workers: usize, own: &[Worker<Job>]) -> Arc<Queues> {
        Arc::new(Queues {
            urgent: Injector::new(),
            usual: Injector::new(),
            idle: Injector::new(),
            members: (0..workers).map(|_| TaskWorker::default()).collect(),
            own: own.iter().map(Worker::stealer).collect(),
            sleeping: (0..workers.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            sleepers: AtomicUsize::new(0),
            ranks: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
        })
    }

    /// Without workers.
    pub(crate) fn none() -> Arc<Queues> {
        Queues::new(0, &[])
    }

    /// Has a job done.
    pub(crate) fn put(self: &Arc<Queues>, job: Job, priority: Priority) {
        let here = (priority == Priority::Usual).then(|| Here::of(self)).flatten();
        match (here, priority) {
            (Some(here), _) => here.own.push(job),
            (None, Priority::High) => self.urgent.push(job),
            (None, Priority::Usual) => self.usual.push(job),
            (None, Priority::Low) => self.idle.push(job),
        }
        self.call_one();
    }

    /// Calls a worker that sleeps, if one does and there is a core for it: the ranks' own threads have
    /// one each while they run, but for the last.
    fn call_one(&self) {
        fence(SeqCst);
        let sleepers = self.sleepers.load(Relaxed);
        if sleepers != 0 && sleepers > self.ranks.load(Relaxed).min(self.members.len() - 1) {
            self.call_sleeper();
        }
    }

    #[cold]
    fn call_sleeper(&self) {
        for number in 0..self.members.len() {
            if self.wakes(number) {
                return self.members[number].call();
            }
        }
    }

    /// The worker of this number does not sleep any more. Whether it did.
    fn wakes(&self, number: usize) -> bool {
        let (word, bit) = (&self.sleeping[number / 64], 1 << (number % 64));
        let slept = word.load(Relaxed) & bit != 0 && word.fetch_and(!bit, AcqRel) & bit != 0;
        if slept {
            self.sleepers.fetch_sub(1, AcqRel);
        }
        slept
    }

    /// Has all tasks that wait look again.
    pub(crate) fn call_all(&self) {
        self.members.iter().for_each(TaskWorker::call_all);
    }

    /// Whether a task runs, or could.
    pub(crate) fn may_act(&self) -> bool {
        // A worker says that it is not idle before it takes a job, and that it is after it has found none.
        let works = || self.members.iter().any(|member| !member.is_idle());
        let found = self.has_any();
        fence(SeqCst);
        found || works() || self.has_any()
    }

    fn has_any(&self) -> bool {
        let queues = [&self.urgent, &self.usual, &self.idle];
        queues.iter().any(|queue| !queue.is_empty())
            || self.own.iter().any(|queue| !queue.is_empty())
    }
}

/// How many tasks a thread carries out at most, each where the one before fetches it.
const DEPTH: usize = 16;
/// What is left of a coroutine's stack at least for a task that is carried out there.
const ROOM: usize = 256 << 10;

thread_local! {
    /// How many tasks this thread, which is no coroutine's, carries out.
    static DEEP: Cell<usize> = const { Cell::new(0) };
}

/// Carries out a task where another one fetches it, if there is room for that on the stack. Whether
/// there was.
pub(crate) fn run_here(task: impl FnOnce()) -> bool {
    struct Counted;
    impl Drop for Counted {
        fn drop(&mut self) {
            DEEP.set(DEEP.get() - 1);
        }
    }
    match stack_left() {
        Some(left) if left < ROOM => return false,
        Some(_) => task(),
        None if DEEP.get() == DEPTH => return false,
        None => {
            DEEP.set(DEEP.get() + 1);
            let _counted = Counted;
            task();
        }
    }
    true
}

/// What `steal` gives, asked again as long as others are in its way.
fn taken(steal: impl Fn() -> Steal<Job>) -> Option<Job> {
    loop {
        match steal() {
            Steal::Success(job) => return Some(job),
            Steal::Empty => return None,
            Steal::Retry => std::hint::spin_loop(),
        }
    }
}

impl Here {
    /// That of this thread, if it is one of these queues.
    #[inline]
    fn of<'a>(queues: &Arc<Queues>) -> Option<&'a Here> {
        Here::any().filter(|here| Arc::ptr_eq(&here.queues, queues))
    }

    /// That of this thread, if it has one.
    #[inline]
    pub(crate) fn any<'a>() -> Option<&'a Here> {
        // SAFETY: `run` and `is_of_thread` set it to a place that is there until `run` or
        // `leaves_thread` on this thread take that back; whoever uses it runs on this thread and is
        // done before: in a coroutine that the worker runs to its end, or in the rank's closure.
        unsafe { HERE.get().as_ref() }
    }

    /// The rank whose part this is has this thread for itself, and runs here.
    #[inline]
    pub(crate) fn is_of_thread(&self, main: *const ()) {
        if HERE.get().is_null() {
            HERE.set(self);
            self.main.set(main);
            self.needs_core();
        }
    }

    /// The task that runs here, or what its rank has in place of one: null in neither.
    #[inline]
    pub(crate) fn part(&self) -> *const () {
        let task = task();
        if task.is_null() { self.main.get() } else { task }
    }

    /// The rank does not run here any more.
    pub(crate) fn leaves_thread(&self) {
        if self.is_here() {
            self.leaves_core();
            HERE.set(null());
        }
    }

    fn is_here(&self) -> bool {
        std::ptr::eq(HERE.get(), self)
    }

    /// The rank's thread, which is this one, runs.
    pub(crate) fn needs_core(&self) {
        if self.is_here() {
            self.queues.ranks.fetch_add(1, Relaxed);
        }
    }

    /// It sleeps from now on: a worker has its core.
    pub(crate) fn leaves_core(&self) {
        if self.is_here() {
            self.queues.ranks.fetch_sub(1, Relaxed);
            fence(SeqCst);
            if self.queues.has_any() {
                self.queues.call_one();
            }
        }
    }

    /// Has a job done by whoever comes first.
    #[inline]
    pub(crate) fn push(&self, job: Job) {
        self.own.push(job);
        self.queues.call_one();
    }

    /// The last job that was put here and is still there.
    #[inline]
    pub(crate) fn pop(&self) -> Option<Job> {
        self.own.pop()
    }

    /// Carries out here what this one has put into its own queue last, as far as it is of this group,
    /// for whose end it waits.
    pub(crate) fn helps(&self, group: *const ()) {
        while let Some(job) = self.pop() {
            if !job.is_of(group) {
                return self.push(job);
            }
            let mut job = Some(job);
            if !run_here(|| job.take().into_iter().for_each(Job::run)) {
                return job.into_iter().for_each(|job| self.push(job));
            }
        }
    }

    /// What is to be done next.
    fn next(&self) -> Option<Job> {
        let queues = &*self.queues;
        let urgent = if queues.urgent.is_empty() { None } else { taken(|| queues.urgent.steal()) };
        urgent
            .or_else(|| self.own.pop())
            .or_else(|| taken(|| queues.usual.steal()))
            .or_else(|| self.stolen())
            .or_else(|| taken(|| queues.idle.steal()))
    }

    /// A job that somebody else has put into a queue of its own.
    fn stolen(&self) -> Option<Job> {
        let (before, after) = self.queues.own.split_at(self.number);
        let others = after[1..].iter().chain(before);
        others.filter(|queue| !queue.is_empty()).find_map(|queue| taken(|| queue.steal()))
    }
}

impl TaskFeed for Here {
    fn has_work(&self) -> bool {
        self.queues.has_any()
    }

    fn work(&self, enough: &dyn Fn() -> bool) {
        while let Some(job) = self.next() {
            job.run();
            if enough() {
                return;
            }
        }
    }

    fn no_stack(&self) {
        self.next().into_iter().for_each(Job::fail);
    }

    fn may_sleep(&self) -> bool {
        let queues = &*self.queues;
        queues.sleeping[self.number / 64].fetch_or(1 << (self.number % 64), AcqRel);
        queues.sleepers.fetch_add(1, AcqRel);
        fence(SeqCst);
        !queues.has_any() && !self.is_closed()
    }

    fn awake(&self) {
        self.queues.wakes(self.number);
    }

    fn is_closed(&self) -> bool {
        self.queues.closed.load(Acquire)
    }
}

/// The workers of a process, until this is dropped: no task is live then.
pub(crate) struct Pool(Result<Workers, Mutex<Option<Error>>>);

struct Workers {
    queues: Arc<Queues>,
    /// The queues of ranks that have not taken them.
    of_ranks: Mutex<Vec<Option<Worker<Job>>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    pub(crate) fn new(workers: ProcessWorkers) -> Pool {
        Pool(Workers::start(workers).map_err(|error| Mutex::new(Some(error))))
    }

    /// Errors: there are no workers, as the system has refused something.
    pub(crate) fn queues(&self) -> Result<Arc<Queues>> {
        match &self.0 {
            Ok(workers) => Ok(workers.queues.clone()),
            Err(first) => Err(first.lock().take().unwrap_or_else(|| {
                "the workers of tasks could not be started: another rank was told why".into()
            })),
        }
    }

    /// What the rank of this number among those of its process has for itself, if it has a thread.
    pub(crate) fn own(&self, rank: usize) -> Option<Here> {
        let workers = self.0.as_ref().ok()?;
        let own = workers.of_ranks.lock().get_mut(rank)?.take()?;
        let queues = workers.queues.clone();
        let number = queues.members.len() + rank;
        Some(Here { queues, own, number, main: Cell::new(null()) })
    }
}

impl Workers {
    fn start(workers: ProcessWorkers) -> Result<Workers> {
        let count = workers.number + workers.ranks_with_threads;
        let mut own: Vec<Worker<Job>> = (0..count).map(|_| Worker::new_lifo()).collect();
        let queues = Queues::new(workers.number, &own);
        let of_ranks = own.split_off(workers.number).into_iter().map(Some).collect();
        let of_ranks = Mutex::new(of_ranks);
        let mut started = Workers { queues: queues.clone(), of_ranks, threads: Vec::new() };
        for (number, own) in own.into_iter().enumerate() {
            let stacks = TaskStacks::reserve(workers.stack_size)?;
            let here = Here { queues: queues.clone(), own, number, main: Cell::new(null()) };
            let thread = thread::Builder::new().name(format!("spmd-task-{number}"));
            let thread = thread.spawn(move || here.run(stacks, workers.spins));
            started.threads.push(thread.map_err(|error| {
                Error::user(io::Error::new(error.kind(), format!("a thread for tasks: {error}")))
            })?);
        }
        Ok(started)
    }
}

impl Here {
    fn run(&self, stacks: TaskStacks, spins: u32) {
        bind_to_process();
        HERE.set(self);
        let worker = self.queues.members[self.number].clone();
        worker.run(stacks, spins, self);
        HERE.set(null());
        // What is left has been done by others before it came to be next.
        while let Some(job) = self.next() {
            job.run();
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.queues.closed.store(true, SeqCst);
        self.queues.members.iter().for_each(TaskWorker::call);
        for thread in self.threads.drain(..) {
            // A worker that frees the last of what holds them ends by itself.
            if thread.thread().id() != thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}
