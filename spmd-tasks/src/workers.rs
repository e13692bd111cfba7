//! The workers of a process.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;
use spmd_core::internal::{ProcessWorkers, TaskStacks};
use spmd_core::{Error, Result};

use crate::pool::{Here, Own, Queues};

/// The workers of a process, until this is dropped: no task is live then.
pub(crate) struct Pool(Result<Workers, Mutex<Option<Error>>>);

struct Workers {
    queues: Arc<Queues>,
    /// The queues of ranks that have not taken them.
    of_ranks: Mutex<Vec<Option<Own>>>,
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
        let number = queues.workers() + rank;
        Some(Here::new(queues, own, number))
    }
}

impl Workers {
    fn start(workers: ProcessWorkers) -> Result<Workers> {
        let count = workers.number + workers.ranks_with_threads;
        let mut own: Vec<Own> = (0..count).map(|_| Own::default()).collect();
        let queues = Queues::new(&workers, &own);
        let of_ranks = own.split_off(workers.number).into_iter().map(Some).collect();
        let of_ranks = Mutex::new(of_ranks);
        let mut started = Workers { queues: queues.clone(), of_ranks, threads: Vec::new() };
        for (number, own) in own.into_iter().enumerate() {
            let stacks = TaskStacks::reserve(workers.stack_size)?;
            let here = Here::new(queues.clone(), own, number);
            let thread = thread::Builder::new().name(format!("spmd-task-{number}"));
            let (spins, trace) = (workers.spins, workers.trace.clone());
            let thread = thread.spawn(move || here.run(stacks, spins, trace.as_ref()));
            started.threads.push(thread.map_err(|error| {
                Error::user(io::Error::new(error.kind(), format!("a thread for tasks: {error}")))
            })?);
        }
        Ok(started)
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.queues.close();
        for thread in self.threads.drain(..) {
            // A worker that frees the last of what holds them ends by itself.
            if thread.thread().id() != thread::current().id() {
                let _ = thread.join();
            }
        }
        self.queues.drain();
        self.queues.objects.end_all();
    }
}
