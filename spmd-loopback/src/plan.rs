//! What is to happen in a job, and how it has ended.

use std::time::Duration;

use spmd_core::{Error, Result};

pub(crate) const NAME: &str = "loopback";

/// Whether a place is memory of a device.
pub(crate) type OnDevice = fn(*const u8) -> bool;

/// What is to happen in a job, as far as it is known before.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) processes: usize,
    pub(crate) each: usize,
    pub(crate) seed: u64,
    pub(crate) delay: Duration,
    pub(crate) survives: bool,
    pub(crate) folds: bool,
    pub(crate) other_threads: bool,
    /// Tells memory of a device, where steps take that.
    pub(crate) on_device: Option<OnDevice>,
    /// Two processes, and after how many packets between them they are cut off from each other.
    pub(crate) cuts: Vec<(usize, usize, u64)>,
    /// A process, and which of its messages and steps it is killed before.
    pub(crate) kills: Vec<(usize, u64)>,
}

/// How a process has ended before its ranks did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EarlyEnd {
    /// It was killed.
    Killed,
    /// It has exited with this status, or all processes have been ended with it.
    Exited(i32),
}

/// How a process has ended.
#[derive(Debug)]
pub enum ProcessEnd<R> {
    /// Its ranks have: what they have returned, or what was wrong.
    Returned(Result<Vec<R>>),
    /// It has gone before.
    EarlyEnd(EarlyEnd),
}

/// How a job has ended.
#[derive(Debug)]
pub struct Outcome<R> {
    /// Each process.
    pub ends: Vec<ProcessEnd<R>>,
    /// What the processes have said of what was wrong, one line each.
    pub said: String,
}

impl<R> Outcome<R> {
    /// What all ranks have returned, in order.
    ///
    /// Errors: the first process's that has one; [`Error::Boot`] with what was said, if a process
    /// has gone.
    pub fn results(self) -> Result<Vec<R>> {
        let said = self.said;
        let each = self.ends.into_iter().enumerate().map(|(process, end)| match end {
            ProcessEnd::Returned(results) => results,
            ProcessEnd::EarlyEnd(how) => {
                Err(Error::boot(format!("process {process}: {how:?}\n{said}")))
            }
        });
        Ok(each.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
    }

    /// All that was said, and the errors of all processes.
    pub fn printed(&self) -> String {
        let errors = self.ends.iter().filter_map(|end| match end {
            ProcessEnd::Returned(Err(error)) => Some(format!("{error}\n")),
            _ => None,
        });
        self.said.clone() + &errors.collect::<String>()
    }

    /// Whether some process has ended otherwise than with the results of its ranks.
    pub fn has_failed(&self) -> bool {
        !self.ends.iter().all(|end| matches!(end, ProcessEnd::Returned(Ok(_))))
    }
}

/// An error of this library, as MPI gives its own.
#[cold]
pub(crate) fn wrong(call: &'static str, text: String) -> Error {
    Error::library(NAME.to_owned(), call, text)
}
