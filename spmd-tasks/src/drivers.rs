//! Threads for jobs that take no worker: those that drive a device, or wait for something outside.
//!
//! One is started when a job comes and none is idle, up to [`MOST`]; more jobs wait their turn. A job that
//! waits in this library leaves its thread to others, as on a worker. No job is lost for the reasons given
//! in `pool.rs`: a thread that is about to sleep says so, and looks once more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*, fence};
use std::thread::{self, JoinHandle};

use crossbeam_deque::Injector;
use parking_lot::Mutex;
use spmd_core::internal::{TaskFeed, TaskStacks, TaskWorker, Trace, TracedWorker, bind_to_process};

use crate::job::{Job, taken};

/// How many such threads a process has at most.
const MOST: usize = 64;

pub(crate) struct Drivers {
    queue: Arc<Queue>,
    /// Bytes of the stack of a job.
    stack_size: usize,
    trace: Option<Arc<Trace>>,
    threads: Mutex<Vec<(Driver, JoinHandle<()>)>>,
}

#[derive(Default)]
struct Queue {
    jobs: Injector<Job>,
    closed: AtomicBool,
}

/// One of the threads.
#[derive(Clone)]
struct Driver {
    queue: Arc<Queue>,
    worker: TaskWorker,
    sleeps: Arc<AtomicBool>,
}

impl Drivers {
    pub(crate) fn new(stack_size: usize, trace: Option<Arc<Trace>>) -> Drivers {
        Drivers { queue: Arc::default(), stack_size, trace, threads: Mutex::default() }
    }

    pub(crate) fn put(&self, job: Job) {
        self.queue.jobs.push(job);
        fence(SeqCst);
        let mut threads = self.threads.lock();
        if let Some((driver, _)) = threads.iter().find(|(it, _)| it.sleeps.swap(false, AcqRel)) {
            driver.worker.call();
        } else if threads.len() < MOST {
            match self.start(threads.len()) {
                Some(started) => threads.push(started),
                None if threads.is_empty() => self.pop().into_iter().for_each(Job::fail),
                None => {}
            }
        }
    }

    fn start(&self, number: usize) -> Option<(Driver, JoinHandle<()>)> {
        let stacks = TaskStacks::reserve(self.stack_size).ok()?;
        let (queue, worker) = (self.queue.clone(), TaskWorker::default());
        let driver = Driver { queue, worker, sleeps: Arc::default() };
        let thread = thread::Builder::new().name(format!("spmd-driver-{number}"));
        let (runs, trace) = (driver.clone(), self.trace.clone());
        let thread = thread.spawn(move || {
            bind_to_process();
            let name = format!("driver {number}");
            let traced = trace.map(|trace| TracedWorker::enter(&trace, name));
            runs.worker.run(stacks, 0, &runs, traced);
        });
        Some((driver, thread.ok()?))
    }

    /// A job that nobody has begun.
    pub(crate) fn pop(&self) -> Option<Job> {
        taken(|| self.queue.jobs.steal())
    }

    /// Has all jobs that wait look again.
    pub(crate) fn call_all(&self) {
        self.threads.lock().iter().for_each(|(driver, _)| driver.worker.call_all());
    }

    /// Whether a job runs, or could.
    pub(crate) fn may_act(&self) -> bool {
        !self.queue.jobs.is_empty()
            || self.threads.lock().iter().any(|(driver, _)| !driver.worker.is_idle())
    }

    /// Ends the threads: no task is live.
    pub(crate) fn close(&self) {
        self.queue.closed.store(true, SeqCst);
        let threads = std::mem::take(&mut *self.threads.lock());
        for (driver, thread) in threads {
            driver.worker.call();
            // One that frees the last of what holds them ends by itself.
            if thread.thread().id() != thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

impl TaskFeed for Driver {
    fn has_work(&self) -> bool {
        !self.queue.jobs.is_empty()
    }

    fn work(&self, enough: &dyn Fn() -> bool) {
        while let Some(job) = taken(|| self.queue.jobs.steal()) {
            job.run();
            if enough() {
                return;
            }
        }
    }

    fn no_stack(&self) {
        taken(|| self.queue.jobs.steal()).into_iter().for_each(Job::fail);
    }

    fn may_sleep(&self) -> bool {
        self.sleeps.store(true, Release);
        fence(SeqCst);
        self.queue.jobs.is_empty() && !self.is_closed()
    }

    fn awake(&self) {
        self.sleeps.store(false, Release);
    }

    fn is_closed(&self) -> bool {
        self.queue.closed.load(SeqCst)
    }
}
