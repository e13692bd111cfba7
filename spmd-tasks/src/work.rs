//! What tasks do that need no others.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use spmd_core::Result;
use spmd_core::internal::discard;

use crate::failure::Failure;
use crate::header::Header;
use crate::node::Work;

/// Work that is done once.
pub(crate) struct Once<F>(pub(crate) F);

impl<F: FnOnce() -> Result<T> + Send, T: Send> Work for Once<F> {
    type Value = T;

    fn run(self, task: &Header) -> Result<T, Failure> {
        (self.0)().map_err(|error| Failure::returned(task.described(), error))
    }
}

/// The same of a task that has begun: that of which it is a part.
pub(crate) struct Begun<F>(pub(crate) F);

impl<F: FnOnce() -> Result<T> + Send, T: Send> Work for Begun<F> {
    type Value = T;
    const HAS_BEGUN: bool = true;

    fn run(self, task: &Header) -> Result<T, Failure> {
        Once(self.0).run(task)
    }
}

/// Work that is tried so many times.
pub(crate) struct Retried<F> {
    pub(crate) work: F,
    pub(crate) tries: usize,
}

impl<F: FnMut() -> Result<T> + Send, T: Send> Work for Retried<F> {
    type Value = T;

    fn run(mut self, task: &Header) -> Result<T, Failure> {
        loop {
            self.tries -= 1;
            let last = self.tries == 0 || task.is_cancelled();
            match catch_unwind(AssertUnwindSafe(|| (self.work)())) {
                Ok(Ok(value)) => return Ok(value),
                Ok(Err(error)) if last => return Err(Failure::returned(task.described(), error)),
                Err(panic) if last => resume_unwind(panic),
                Ok(Err(_)) => {}
                Err(panic) => discard(panic),
            }
        }
    }
}
