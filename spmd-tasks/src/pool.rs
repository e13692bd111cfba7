//! The queues from which the workers of a process take what is to be done.
//!
//! # Why no task waits while a worker sleeps
//! Who puts a job into a queue executes a sequentially consistent fence, and then looks whether a worker
//! sleeps, which it calls. A worker that is about to sleep says so, executes such a fence, and then looks
//! into all queues once more. Of the two fences one comes first: either who puts the job sees that the
//! worker sleeps, or the worker sees the job. A call that comes before the worker is asleep keeps it
//! awake (`ready.rs` of `spmd-core`).

use std::cell::Cell;
use std::ptr::null;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*, fence};

use crossbeam_deque::{Injector, Stealer, Worker};
use spmd_core::internal::{
    ProcessWorkers, TaskFeed, TaskStacks, TaskWorker, Trace, TracedWorker, bind_to_process,
    stack_left, task,
};

use crate::about::Priority;
use crate::choice::Choices;
use crate::drivers::Drivers;
use crate::job::{Job, taken};
use crate::ledger::Ledger;
use crate::objects::Objects;
use crate::request::Request;
use crate::wide::{Turn, Wide};

/// What is to be done, and who does it. As many jobs may wait as there is memory for.
pub(crate) struct Queues {
    urgent: Injector<Job>,
    usual: Injector<Job>,
    idle: Injector<Job>,
    /// What one worker alone may do, by its number.
    pinned: Box<[Injector<Job>]>,
    /// The workers.
    members: Box<[TaskWorker]>,
    /// What they, and then ranks with threads of their own, have put into queues of their own.
    own: Box<[[Stealer<Job>; 2]]>,
    /// Which of them sleep, a bit each.
    sleeping: Box<[AtomicU64]>,
    sleepers: AtomicUsize,
    /// Ranks with tasks whose own threads run.
    ranks: AtomicUsize,
    /// Jobs that wait for resources.
    pub(crate) ledger: Ledger,
    /// What is known of tasks that may run on the host and with a GPU.
    pub(crate) choices: Choices,
    /// Jobs that take no worker, and those that take several.
    pub(crate) drivers: Drivers,
    wide: Wide,
    /// What lives on the ranks of this process.
    pub(crate) objects: Objects,
    closed: AtomicBool,
}

thread_local! {
    /// The worker that this thread is, or the rank's part if it has it for itself. Coroutines never
    /// change their thread.
    static HERE: Cell<*const Here> = const { Cell::new(null()) };
}

/// The queues that a worker, or a rank, has for itself.
pub(crate) struct Own {
    /// What it has spawned: the last first, as that is what it waits for, and what fits into its caches.
    spawned: Worker<Job>,
    /// What has waited for others: in the order in which it came to be ready. Another order would have a
    /// worker follow one chain to its end while other ranks wait for what lies beside it.
    released: Worker<Job>,
}

/// A worker, or a rank, on its thread.
pub(crate) struct Here {
    queues: Arc<Queues>,
    own: Own,
    /// Which queue is its own.
    number: usize,
    /// Of a rank, what it has in place of a task.
    main: Cell<*const ()>,
    /// A worker that begins nothing, for the sake of a job that takes several.
    is_lent: Cell<bool>,
    /// How many others are lent to the job that runs here.
    borrows: Cell<usize>,
    /// How many jobs it has looked for.
    turn: Cell<u32>,
}

/// A worker that always has jobs that it has spawned takes one of somebody else's, or one that has waited, each time
/// that it has taken so many: somebody may wait for it.
const TURN: u32 = 64;

// SAFETY: all of it may be used on another thread, by one at a time; what `main` points to by several.
unsafe impl Send for Here {}

impl Queues {
    /// For so many workers, which are yet to be started, and these queues of theirs and of ranks.
    pub(crate) fn new(workers: &ProcessWorkers, own: &[Own]) -> Arc<Queues> {
        let ProcessWorkers { number, resources, stack_size, trace, .. } = workers;
        Arc::new(Queues {
            urgent: Injector::new(),
            usual: Injector::new(),
            idle: Injector::new(),
            pinned: (0..*number).map(|_| Injector::new()).collect(),
            members: (0..*number).map(|_| TaskWorker::default()).collect(),
            own: own.iter().map(|own| [own.released.stealer(), own.spawned.stealer()]).collect(),
            sleeping: (0..number.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            sleepers: AtomicUsize::new(0),
            ranks: AtomicUsize::new(0),
            ledger: Ledger::new(resources),
            choices: Choices::default(),
            drivers: Drivers::new(*stack_size, trace.clone()),
            wide: Wide::default(),
            objects: Objects::default(),
            closed: AtomicBool::new(false),
        })
    }

    /// Without workers.
    pub(crate) fn none() -> Arc<Queues> {
        Queues::new(&ProcessWorkers::default(), &[])
    }

    /// Why a request can never be met, if so.
    pub(crate) fn lacks(&self, request: &Request) -> Option<String> {
        let workers = self.members.len();
        let few = (request.cpu > workers)
            .then(|| format!("it asks for {} cpu, and this process has {workers}", request.cpu));
        let scope = || {
            let of = request.workers.as_ref()?;
            let wide = (request.cpu != 1).then(|| format!("it takes {} cpu", request.cpu));
            let none = of.iter().all(|worker| *worker >= workers);
            let none = none.then(|| format!("this process has {workers}"));
            Some(format!("its scope is worker {of:?}, and {}", wide.or(none)?))
        };
        let never = request.never.clone();
        never.or(few).or_else(scope).or_else(|| self.ledger.lacks(request))
    }

    /// How many workers there are.
    pub(crate) fn workers(&self) -> usize {
        self.members.len()
    }

    /// The number of the worker that this thread is, or that of workers if it is none.
    pub(crate) fn worker_here(self: &Arc<Queues>) -> usize {
        Here::of(self).map_or(usize::MAX, |here| here.number).min(self.members.len())
    }

    /// Has a job done that was spawned just now.
    pub(crate) fn put(self: &Arc<Queues>, job: Job, priority: Priority) {
        match (priority == Priority::Usual).then(|| Here::of(self)).flatten() {
            Some(here) => here.push(job),
            None => self.put_for_all(job, priority),
        }
    }

    /// Has a job done that has waited for others.
    pub(crate) fn release(self: &Arc<Queues>, job: Job, priority: Priority) {
        match (priority == Priority::Usual).then(|| Here::of(self)).flatten() {
            Some(here) => {
                here.own.released.push(job);
                self.call_one();
            }
            None => self.put_for_all(job, priority),
        }
    }

    /// Has a job done by a worker, though a rank's own thread puts it here.
    pub(crate) fn put_for_all(&self, job: Job, priority: Priority) {
        match priority {
            Priority::High => self.urgent.push(job),
            Priority::Usual => self.usual.push(job),
            Priority::Low => self.idle.push(job),
        }
        self.call_one();
    }

    /// Has a job done by one of these workers, of which one is there: the one with the fewest such jobs.
    pub(crate) fn put_pinned(&self, job: Job, workers: &[usize]) {
        let there = workers.iter().filter(|worker| **worker < self.pinned.len());
        let Some(worker) = there.copied().min_by_key(|worker| self.pinned[*worker].len()) else {
            return job.fail();
        };
        self.pinned[worker].push(job);
        fence(SeqCst);
        if self.wakes(worker) {
            self.members[worker].call();
        }
    }

    /// Has a job done that takes so many workers.
    pub(crate) fn put_wide(&self, job: Job, workers: usize) {
        self.wide.put(job, workers);
        // All look, whatever other threads need cores.
        self.members.iter().for_each(TaskWorker::call);
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
        self.drivers.call_all();
    }

    /// Whether a task runs, or could.
    pub(crate) fn may_act(&self) -> bool {
        // A worker says that it is not idle before it takes a job, and that it is after it has found none.
        let works = || self.members.iter().any(|member| !member.is_idle());
        let has_any = || self.has_any() || self.pinned.iter().any(|queue| !queue.is_empty());
        let found = has_any();
        fence(SeqCst);
        found || works() || has_any() || self.drivers.may_act()
    }

    fn has_any(&self) -> bool {
        let queues = [&self.urgent, &self.usual, &self.idle];
        queues.iter().any(|queue| !queue.is_empty())
            || self.own.iter().flatten().any(|queue| !queue.is_empty())
            || self.wide.waits()
    }

    /// Whether this worker has jobs that are for it alone.
    fn has_pinned(&self, worker: usize) -> bool {
        self.pinned.get(worker).is_some_and(|queue| !queue.is_empty())
    }

    /// Has the workers end once there is nothing more to do.
    pub(crate) fn close(&self) {
        self.drivers.close();
        self.closed.store(true, SeqCst);
        self.members.iter().for_each(TaskWorker::call);
    }

    /// Does on this thread what is left when the workers have ended: jobs of tasks that are over.
    pub(crate) fn drain(&self) {
        let any = || {
            let queues = [&self.urgent, &self.usual, &self.idle];
            let common = queues.iter().find_map(|queue| taken(|| queue.steal()));
            let pinned = || self.pinned.iter().find_map(|queue| taken(|| queue.steal()));
            common.or_else(pinned).or_else(|| self.drivers.pop()).or_else(|| self.wide.pop())
        };
        while let Some(job) = any() {
            job.run();
        }
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

impl Default for Own {
    fn default() -> Own {
        Own { spawned: Worker::new_lifo(), released: Worker::new_fifo() }
    }
}

impl Here {
    /// That of this thread, if it is one of these queues.
    #[inline]
    pub(crate) fn of<'a>(queues: &Arc<Queues>) -> Option<&'a Here> {
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
        self.own.spawned.push(job);
        self.queues.call_one();
    }

    /// The last job that was put here and is still there.
    #[inline]
    pub(crate) fn pop(&self) -> Option<Job> {
        self.own.spawned.pop()
    }

    /// Carries out here what this one has put into its own queue last, as far as it is of this group,
    /// for whose end it waits.
    pub(crate) fn helps(&self, group: *const ()) {
        while let Some(job) = self.pop() {
            if !std::ptr::eq(job.group(), group) {
                return self.push(job);
            }
            let mut job = Some(job);
            if !run_here(|| job.take().into_iter().for_each(Job::run)) {
                return job.into_iter().for_each(|job| self.push(job));
            }
        }
    }

    /// A worker, or a rank's part, before it is where it belongs.
    pub(crate) fn new(queues: Arc<Queues>, own: Own, number: usize) -> Here {
        Here {
            queues,
            own,
            number,
            main: Cell::new(null()),
            is_lent: Cell::new(false),
            borrows: Cell::new(0),
            turn: Cell::new(0),
        }
    }

    /// A job begins here to which so many others are lent.
    pub(crate) fn borrows(&self, lent: usize) {
        self.borrows.set(self.borrows.get() + lent);
    }

    /// None are lent any more to what runs here, or waits.
    pub(crate) fn gives_back(&self) {
        let lent = self.borrows.take();
        if lent > 0 {
            self.queues.wide.give_back(lent);
            self.queues.members.iter().for_each(TaskWorker::call);
        }
    }

    /// What is to be done next.
    fn next(&self) -> Option<Job> {
        let queues = &*self.queues;
        // What borrows them waits.
        self.gives_back();
        if self.is_lent.get() || queues.wide.waits() {
            let turn = queues.wide.turn(self.is_lent.get());
            self.is_lent.set(matches!(turn, Turn::Lent));
            match turn {
                Turn::Usual => {}
                Turn::Lent => return None,
                Turn::Run(job) => return Some(job),
            }
        }
        let urgent = if queues.urgent.is_empty() { None } else { taken(|| queues.urgent.steal()) };
        urgent
            .or_else(|| self.pinned())
            .or_else(|| self.in_turn())
            .or_else(|| self.own.spawned.pop())
            .or_else(|| self.own.released.pop())
            .or_else(|| taken(|| queues.usual.steal()))
            .or_else(|| self.stolen())
            .or_else(|| taken(|| queues.idle.steal()))
    }

    /// A job of others, or one that has waited, if it is their turn.
    fn in_turn(&self) -> Option<Job> {
        let turn = self.turn.get().wrapping_add(1);
        self.turn.set(turn);
        if !turn.is_multiple_of(TURN) {
            return None;
        }
        let released = || self.own.released.pop();
        let others = || taken(|| self.queues.usual.steal()).or_else(|| self.stolen());
        match (turn / TURN).is_multiple_of(2) {
            true => others().or_else(released),
            false => released().or_else(others),
        }
    }

    /// A job that is for this worker alone.
    fn pinned(&self) -> Option<Job> {
        let queue = self.queues.pinned.get(self.number).filter(|queue| !queue.is_empty())?;
        taken(|| queue.steal())
    }

    /// A job that somebody else has put into a queue of its own.
    fn stolen(&self) -> Option<Job> {
        let (before, after) = self.queues.own.split_at(self.number);
        let others = after[1..].iter().chain(before).flatten();
        others.filter(|queue| !queue.is_empty()).find_map(|queue| taken(|| queue.steal()))
    }
}

impl TaskFeed for Here {
    fn has_work(&self) -> bool {
        match self.is_lent.get() {
            true => self.queues.wide.has_turn(),
            false => self.queues.has_any() || self.queues.has_pinned(self.number),
        }
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
        // Nobody calls one that is lent but for the end of that.
        if !self.is_lent.get() {
            queues.sleeping[self.number / 64].fetch_or(1 << (self.number % 64), AcqRel);
            queues.sleepers.fetch_add(1, AcqRel);
        }
        fence(SeqCst);
        !self.has_work() && !self.is_closed()
    }

    fn awake(&self) {
        self.queues.wakes(self.number);
    }

    fn is_closed(&self) -> bool {
        self.queues.closed.load(Acquire)
    }
}

impl Here {
    /// Is a worker on this thread, until the workers end.
    pub(crate) fn run(&self, stacks: TaskStacks, spins: u32, trace: Option<&Arc<Trace>>) {
        bind_to_process();
        HERE.set(self);
        let worker = self.queues.members[self.number].clone();
        let name = format!("worker {}", self.number);
        let traced = trace.map(|trace| TracedWorker::enter(trace, name));
        worker.run(stacks, spins, self, traced);
        HERE.set(null());
        // What is left has been done by others before it came to be next.
        while let Some(job) = self.next() {
            job.run();
        }
    }
}
