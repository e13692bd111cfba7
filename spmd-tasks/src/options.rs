//! How a task is spawned: its name, its priority, how often it is tried.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use spmd_core::Result;

use crate::about::{About, Priority};
use crate::group::Group;
use crate::inputs::{Inputs, put_after};
use crate::rank::group_here;
use crate::task::Task;
use crate::work::{Once, Retried};

/// A task that is about to be spawned. See [`Tasks::task`](crate::Tasks::task).
///
/// It is spawned before its rank ends:
///
/// ```compile_fail
/// # use spmd_core::spmd;
/// # use spmd_tasks::Tasks;
/// let late = spmd(1, |ctx| Ok(ctx.task()));
/// ```
#[must_use = "a task does nothing before `spawn`"]
pub struct TaskOptions<'r> {
    /// Of the rank that has made this; else whose it is that spawns the task.
    group: Option<&'r Arc<Group>>,
    about: About,
}

impl fmt::Debug for TaskOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let About { name, priority } = &self.about;
        let mut fields = f.debug_struct("TaskOptions");
        fields.field("name", name).field("priority", priority).finish_non_exhaustive()
    }
}

impl<'r> TaskOptions<'r> {
    pub(crate) fn new(group: Option<&'r Arc<Group>>) -> TaskOptions<'r> {
        TaskOptions { group, about: About::default() }
    }

    /// What reports call the task, besides the line that spawns it.
    pub fn name(mut self, name: &str) -> TaskOptions<'r> {
        self.about.name = Some(name.into());
        self
    }

    /// Whether workers take it before or after others.
    pub fn priority(mut self, priority: Priority) -> TaskOptions<'r> {
        self.about.priority = priority;
        self
    }

    /// Tries the task again, so many times at most, after an error or a panic. The last one counts.
    ///
    /// ```
    /// # use spmd_core::{Result, spmd};
    /// use spmd_tasks::Tasks;
    ///
    /// spmd(1, |ctx| {
    ///     let mut tries = 0;
    ///     let task = ctx.task().retry(2).spawn(move || {
    ///         tries += 1;
    ///         if tries < 3 { Err("not yet".into()) } else { Ok(tries) }
    ///     });
    ///     assert_eq!(task.take()?, 3);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), spmd_core::Error>(())
    /// ```
    pub fn retry(self, times: usize) -> RetriedTask<'r> {
        RetriedTask { options: self, times }
    }

    /// Spawns the task: [`Tasks::spawn`](crate::Tasks::spawn).
    #[track_caller]
    pub fn spawn<T, F>(self, work: F) -> Task<T>
    where
        F: FnOnce() -> Result<T> + Send + 'static,
        T: Send + 'static,
    {
        let (group, about) = self.parts();
        Task::put(&group, (Location::caller(), about), Once(work))
    }

    /// Spawns it after others: [`Tasks::spawn_after`](crate::Tasks::spawn_after).
    #[track_caller]
    pub fn spawn_after<I, F, T>(self, inputs: I, work: F) -> Task<T>
    where
        I: Inputs<F, T>,
        T: Send + 'static,
    {
        let (group, about) = self.parts();
        put_after(&group, (Location::caller(), about), inputs, work)
    }

    fn parts(self) -> (Arc<Group>, Option<Box<About>>) {
        (self.group.cloned().unwrap_or_else(group_here), Some(Box::new(self.about)))
    }
}

/// A task that is about to be spawned, and that is tried again. See [`TaskOptions::retry`].
#[derive(Debug)]
#[must_use = "a task does nothing before `spawn`"]
pub struct RetriedTask<'r> {
    options: TaskOptions<'r>,
    times: usize,
}

impl RetriedTask<'_> {
    /// Spawns the task, which may be carried out several times, one after the other.
    #[track_caller]
    pub fn spawn<T, F>(self, work: F) -> Task<T>
    where
        F: FnMut() -> Result<T> + Send + 'static,
        T: Send + 'static,
    {
        let (group, about) = self.options.parts();
        let work = Retried { work, tries: self.times.saturating_add(1) };
        Task::put(&group, (Location::caller(), about), work)
    }
}
