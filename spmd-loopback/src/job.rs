//! Jobs: their processes, each a thread that runs a block, and what becomes of them.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use spmd_core::boot::Process;
use spmd_core::{Ctx, Result, Spmd};

use crate::fabric::Loopback;
use crate::net::Net;
use crate::plan::{EarlyEnd, Outcome, Plan, ProcessEnd};

/// How long a job may take: longer than anything that is to be found in one, also with a sanitizer
/// on a machine that does something else besides.
const LONGEST: Duration = Duration::from_secs(600);

/// How a rank of a job acts on its processes, while it runs.
#[derive(Clone, Default)]
#[expect(missing_debug_implementations, reason = "of no use without its job")]
pub struct Handle(Arc<OnceLock<RunningProcess>>);

struct RunningProcess {
    net: Arc<Net>,
    joined: Mutex<Vec<Option<Arc<Process>>>>,
}

impl Handle {
    fn running(&self) -> &RunningProcess {
        self.0.get().expect("a handle is used by the ranks of its job")
    }

    /// Kills a process, as a signal does; all that it has not sent is lost.
    pub fn kill(&self, process: usize) {
        self.running().net.kill(process);
    }

    /// Kills the process of the rank that calls this.
    pub fn die(&self, process: usize) -> ! {
        self.running().net.leave(process, EarlyEnd::Killed)
    }

    /// Ends the process of the rank that calls this, as [`std::process::exit`] does.
    pub fn exit(&self, process: usize, status: i32) -> ! {
        let running = self.running();
        let joined = running.joined.lock().get(process).cloned().flatten();
        joined.iter().for_each(|joined| joined.exiting(status));
        running.net.leave(process, EarlyEnd::Exited(status))
    }

    /// From now on two processes get nothing from each other.
    pub fn cut(&self, one: usize, other: usize) {
        self.running().net.cut(one, other);
    }
}

/// What the ranks of each process have returned, once they have.
type Results<R> = Mutex<Vec<Option<Result<Vec<R>>>>>;

/// A job of several processes.
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "made and run in one expression")]
#[must_use = "nothing runs before `run`"]
pub struct Job {
    plan: Plan,
    handle: Handle,
    setup: Arc<dyn Fn(Spmd) -> Spmd + Send + Sync>,
    blocks: usize,
}

impl Job {
    /// So many processes, with so many ranks each, over a network that does nothing unusual.
    pub fn new(processes: usize, each: usize) -> Job {
        let plan = Plan {
            processes,
            each,
            seed: 0,
            delay: Duration::ZERO,
            survives: false,
            folds: true,
            other_threads: false,
            on_device: None,
            cuts: Vec::new(),
            kills: Vec::new(),
        };
        Job { plan, handle: Handle::default(), setup: Arc::new(|block| block), blocks: 1 }
    }

    /// What chance does: how long each packet takes, and whose is received first.
    pub fn seed(mut self, seed: u64) -> Job {
        self.plan.seed = seed;
        self
    }

    /// Packets, payloads and steps take up to so long.
    pub fn delay(mut self, longest: Duration) -> Job {
        self.plan.delay = longest;
        self
    }

    /// Cuts two processes off from each other after so many packets between them.
    pub fn cut(mut self, one: usize, other: usize, after: u64) -> Job {
        self.plan.cuts.push((one, other, after));
        self
    }

    /// Kills a process before its message or step of this number, counted from 1; making a world
    /// takes some.
    pub fn kill(mut self, process: usize, before: u64) -> Job {
        self.plan.kills.push((process, before));
        self
    }

    /// Processes go on when others fail.
    pub fn survives(mut self) -> Job {
        self.plan.survives = true;
        self
    }

    /// Leaves all folding to the ranks.
    pub fn without_folds(mut self) -> Job {
        self.plan.folds = false;
        self
    }

    /// Ranks start threads of their own that use communicators. Without it, the library takes a
    /// process for one that has none, as it cannot count those of a process that is simulated.
    pub fn with_other_threads(mut self) -> Job {
        self.plan.other_threads = true;
        self
    }

    /// Steps that hold a process up take memory of devices, which this process must be able to read and
    /// write. Others refuse it, as MPI libraries do not look whether they are given any: `on_device` tells it.
    pub fn takes_devices(mut self, on_device: fn(*const u8) -> bool) -> Job {
        self.plan.on_device = Some(on_device);
        self
    }

    /// Sets up the block of each process.
    pub fn block(mut self, setup: impl Fn(Spmd) -> Spmd + Send + Sync + 'static) -> Job {
        self.setup = Arc::new(setup);
        self
    }

    /// Ranks are coroutines on a few worker threads.
    pub fn virtual_ranks(self) -> Job {
        self.block(|block| block.virtual_ranks().workers(2))
    }

    /// Has each process run its block so often; results are those of the last one.
    pub fn blocks(mut self, blocks: usize) -> Job {
        self.blocks = blocks;
        self
    }

    /// By which ranks act on processes of this job.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Runs `f` on all ranks.
    ///
    /// A panic, if the job does not end: then something is wrong with the library, whatever the
    /// ranks do, unless they wait outside it.
    #[track_caller]
    pub fn run<R, F>(self, f: F) -> Outcome<R>
    where
        F: Fn(&Ctx) -> Result<R> + Send + Sync + 'static,
        R: Send + 'static,
    {
        let (tell, told) = channel();
        let processes = self.plan.processes;
        let net = Arc::new(Net::new(self.plan.clone(), tell.clone()));
        let joined = Mutex::new((0..processes).map(|_| None).collect());
        let running = RunningProcess { net: net.clone(), joined };
        assert!(self.handle.0.set(running).is_ok(), "a job that has a handle runs once");
        let results: Arc<Results<R>> = Arc::new(Mutex::new((0..processes).map(|_| None).collect()));
        let (job, f) = (Arc::new(self), Arc::new(f));
        for process in 0..processes {
            let (job, f, tell, results) = (job.clone(), f.clone(), tell.clone(), results.clone());
            let body = move || {
                let result = job.process(process, &*f);
                let failed = result.is_err();
                results.lock()[process] = Some(result);
                let _ = tell.send(process);
                if failed {
                    // As `main` does with an error.
                    job.handle.exit(process, 1);
                }
            };
            let thread = thread::Builder::new().name(format!("process {process}"));
            thread.spawn(body).expect("the system gives a thread");
        }
        let (start, mut left) = (Instant::now(), vec![true; processes]);
        while left.contains(&true) {
            match told.recv_timeout(LONGEST.saturating_sub(start.elapsed())) {
                Ok(process) => left[process] = false,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    panic!("processes {left:?} have not ended after {LONGEST:?}\n{}", net.said())
                }
            }
        }
        // Threads of processes that have gone keep the handle.
        std::mem::take(&mut *job.handle.running().joined.lock());
        let mut results = results.lock();
        let ends = (0..processes).map(|process| match results[process].take() {
            Some(result) => ProcessEnd::Returned(result),
            None => ProcessEnd::EarlyEnd(net.gone(process).unwrap_or(EarlyEnd::Killed)),
        });
        Outcome { ends: ends.collect(), said: net.said() }
    }

    /// What one process does.
    fn process<R, F>(&self, process: usize, f: &F) -> Result<Vec<R>>
    where
        F: Fn(&Ctx) -> Result<R> + Sync,
        R: Send,
    {
        let running = self.handle.running();
        let fabric = Arc::new(Loopback::new(&running.net, process));
        let joined = Arc::new(Process::join(fabric, self.plan.each)?);
        running.joined.lock()[process] = Some(joined.clone());
        let mut outcome = Ok(Vec::new());
        for _ in 0..self.blocks {
            let block = (self.setup)(joined.block()).plane(spmd_collectives::cluster());
            outcome = joined.run(block, f);
        }
        outcome
    }
}
