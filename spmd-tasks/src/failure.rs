//! Why a task has no value.

use std::any::Any;
use std::sync::Arc;

use spmd_core::Error;
use spmd_core::internal::{discard, panic_text};

/// Why a task has no value: that of the task that failed first, which all that need it share.
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "hidden: no user holds one")]
pub struct Failure(Arc<First>);

struct First {
    /// The task, with the line that spawned it.
    task: String,
    cause: Cause,
}

enum Cause {
    Returned(Arc<Error>),
    Panicked(String),
    Cancelled,
}

impl Failure {
    pub(crate) fn returned(task: String, error: impl Into<Arc<Error>>) -> Failure {
        Failure::of(task, Cause::Returned(error.into()))
    }

    pub(crate) fn panicked(task: String, panic: Box<dyn Any + Send>) -> Failure {
        let text = panic_text(&*panic);
        discard(panic);
        Failure::of(task, Cause::Panicked(text))
    }

    pub(crate) fn cancelled(task: String) -> Failure {
        Failure::of(task, Cause::Cancelled)
    }

    fn of(task: String, cause: Cause) -> Failure {
        Failure(Arc::new(First { task, cause }))
    }

    /// Whether that was nobody's mistake.
    pub(crate) fn is_cancelled(&self) -> bool {
        matches!(self.0.cause, Cause::Cancelled)
    }

    /// Whether it is the failure of this task itself.
    pub(crate) fn is_of(&self, task: &str) -> bool {
        self.0.task == task
    }

    /// What whoever asks for `task` is told.
    pub(crate) fn error(&self, task: String) -> Error {
        let first = &*self.0;
        let dependent = (task != first.task).then_some(task);
        let tasks = (first.task.clone(), dependent);
        match &first.cause {
            Cause::Returned(error) => {
                Error::task_failed(tasks, error.to_string(), Some(error.clone()))
            }
            Cause::Panicked(text) => {
                Error::task_failed(tasks, format!("it panicked: {text}"), None)
            }
            Cause::Cancelled => Error::cancelled(tasks),
        }
    }
}
