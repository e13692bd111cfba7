//! Several processes of ranks in one process of the system's, joined by queues in its memory: worlds
//! without common memory for tests, which need no MPI and can be looked into by sanitizers.
//!
//! ```
//! use spmd_collectives::Allreduce;
//! use spmd_core::Sum;
//! use spmd_loopback::Job;
//!
//! // Three processes of two ranks each.
//! let sums = Job::new(3, 2).run(|ctx| ctx.allreduce_value(ctx.rank(), Sum)).results()?;
//! assert_eq!(sums, [15; 6]);
//! # Ok::<(), spmd_core::Error>(())
//! ```
//!
//! What a network may do comes from a seed: delays, packets of different senders in any order,
//! connections that are cut, processes that are killed. Of one sender packets stay in order, as MPI's
//! messages do. Collective steps of the processes are carried out by plain loops.
//!
//! A process that ends takes its ranks with it and leaves the others alone. As its ranks are threads of
//! the test's process, which can be in the middle of anything, they stay where they next use the
//! fabric, with all that lies on their stacks; they cost nothing but memory until the test ends.

mod consensus;
mod fabric;
mod job;
mod net;
mod packets;
mod payloads;
mod processes;
mod steps;

use std::time::Duration;

use spmd_core::{Error, Result};

pub use job::{Handle, Job};

const NAME: &str = "loopback";

/// What is to happen in a job, as far as it is known before.
#[derive(Clone)]
struct Plan {
    processes: usize,
    each: usize,
    seed: u64,
    delay: Duration,
    survives: bool,
    folds: bool,
    other_threads: bool,
    /// Two processes, and after how many packets between them they are cut off from each other.
    cuts: Vec<(usize, usize, u64)>,
    /// A process, and which of its messages and steps it is killed before.
    kills: Vec<(usize, u64)>,
}

/// How a process has ended before its ranks did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// It was killed.
    Killed,
    /// It has exited with this status, or all processes have been ended with it.
    Exited(i32),
}

/// How a process has ended.
#[derive(Debug)]
pub enum End<R> {
    /// Its ranks have: what they have returned, or what was wrong.
    Returned(Result<Vec<R>>),
    /// It has gone before.
    Gone(Gone),
}

/// How a job has ended.
#[derive(Debug)]
pub struct Outcome<R> {
    /// Each process.
    pub ends: Vec<End<R>>,
    /// What the processes have said of what was wrong, one line each.
    pub said: String,
}

impl<R> Outcome<R> {
    /// What all ranks have returned, in order.
    ///
    /// Errors: the first process's that has one; [`Error::Boot`] with what was said, if a process has
    /// gone.
    pub fn results(self) -> Result<Vec<R>> {
        let said = self.said;
        let each = self.ends.into_iter().enumerate().map(|(process, end)| match end {
            End::Returned(results) => results,
            End::Gone(how) => Err(Error::Boot(format!("process {process}: {how:?}\n{said}"))),
        });
        Ok(each.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
    }

    /// All that was said, and the errors of all processes.
    pub fn told(&self) -> String {
        let errors = self.ends.iter().filter_map(|end| match end {
            End::Returned(Err(error)) => Some(format!("{error}\n")),
            _ => None,
        });
        self.said.clone() + &errors.collect::<String>()
    }

    /// Whether some process has ended otherwise than with the results of its ranks.
    pub fn has_failed(&self) -> bool {
        !self.ends.iter().all(|end| matches!(end, End::Returned(Ok(_))))
    }
}

/// An error of this library, as MPI gives its own.
#[cold]
fn wrong(call: &'static str, text: String) -> Error {
    Error::Library { library: NAME.to_owned(), call, text }
}
