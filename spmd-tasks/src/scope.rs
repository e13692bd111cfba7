//! Tasks that borrow.

use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::sync::Arc;

use spmd_core::internal::{Call, Kind, cannot_wait};
use spmd_core::{Error, Result};

use crate::about::About;
use crate::group::Group;
use crate::header::Header;
use crate::node::{Node, Valued, Work, unbound};
use crate::options::{RetriedTask, TaskOptions};
use crate::placing::placed;
use crate::task::Handle;
use crate::work::Once;

/// Where tasks are spawned that borrow: see [`Tasks::scope`](crate::Tasks::scope).
pub struct TaskScope<'scope, 'env: 'scope> {
    group: Arc<Group>,
    /// As in `std::thread::Scope`: neither lifetime may become another one.
    _scope: PhantomData<&'scope mut &'scope ()>,
    _env: PhantomData<&'env mut &'env ()>,
}

impl fmt::Debug for TaskScope<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskScope").finish_non_exhaustive()
    }
}

/// A task of a scope.
pub struct ScopedTask<'scope, T>(Handle<'scope, T>);

impl<'scope, T> ScopedTask<'scope, T> {
    pub(crate) fn new(task: Arc<dyn Valued<T> + 'scope>) -> ScopedTask<'scope, T> {
        ScopedTask(Handle::scoped(task))
    }
}

impl<T> fmt::Debug for ScopedTask<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let task = self.0.header();
        f.debug_tuple("ScopedTask").field(&task.described()).field(&task.is_over()).finish()
    }
}

impl<'scope> TaskScope<'scope, '_> {
    /// Spawns a task that is over before the scope is left.
    #[track_caller]
    pub fn spawn<T, F>(&'scope self, work: F) -> ScopedTask<'scope, T>
    where
        F: FnOnce() -> Result<T> + Send + 'scope,
        T: Send + 'scope,
    {
        self.put((Location::caller(), None), Once(work))
    }

    /// As [`Tasks::task`](crate::Tasks::task), for a task that is over before the scope is left.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// Spmd::new(1).resources("gpu=2").run(|ctx| {
    ///     let mut sums = [0; 4];
    ///     ctx.scope(|s| {
    ///         for sum in &mut sums {
    ///             s.task().gpu(1).spawn(move || Ok(*sum += 1));
    ///         }
    ///         Ok(())
    ///     })?;
    ///     assert_eq!(sums, [1; 4]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn task(&'scope self) -> TaskOptions<&'scope Self> {
        TaskOptions::of(self)
    }

    pub(crate) fn put<W: Work + 'scope>(
        &'scope self,
        (site, about): (&'static Location<'static>, Option<Box<About>>),
        work: W,
    ) -> ScopedTask<'scope, W::Value> {
        let about = placed(&self.group, about);
        let task = Arc::new(Node::new(Header::new(&self.group, site, about), work));
        // SAFETY: the group forgets it at the end of the scope. Then its work is gone, and its value, which
        // its handle's end, or its own, has freed; where the handle is forgotten, the task is never freed.
        task.asks(&self.group, || unsafe { unbound(task.clone()) });
        task.is_made(&self.group);
        ScopedTask::new(task)
    }
}

impl<'scope> TaskOptions<&'scope TaskScope<'scope, '_>> {
    /// Spawns the task: [`TaskScope::spawn`].
    #[track_caller]
    pub fn spawn<T, F>(self, work: F) -> ScopedTask<'scope, T>
    where
        F: FnOnce() -> Result<T> + Send + 'scope,
        T: Send + 'scope,
    {
        let (scope, about) = self.parts();
        scope.put((Location::caller(), about), Once(work))
    }
}

impl<'scope> RetriedTask<&'scope TaskScope<'scope, '_>> {
    /// Spawns the task, which may be carried out several times, one after the other.
    #[track_caller]
    pub fn spawn<T, F>(self, work: F) -> ScopedTask<'scope, T>
    where
        F: FnMut() -> Result<T> + Send + 'scope,
        T: Send + 'scope,
    {
        let (scope, about, work) = self.parts(work);
        scope.put((Location::caller(), about), work)
    }
}

impl<T> ScopedTask<'_, T> {
    /// As [`Task::fetch`](crate::Task::fetch).
    ///
    /// Errors: as that.
    #[track_caller]
    pub fn fetch(&self) -> Result<&T> {
        self.0.fetch(Location::caller())
    }

    /// As [`Task::take`](crate::Task::take).
    ///
    /// Errors: as that.
    #[track_caller]
    pub fn take(self) -> Result<T> {
        self.0.take(Location::caller())
    }

    /// Whether it is over, well or not.
    pub fn is_over(&self) -> bool {
        self.0.header().is_over()
    }

    /// As [`Task::explain`](crate::Task::explain).
    pub fn explain(&self) -> String {
        self.0.header().explained()
    }

    /// As [`Task::cancel`](crate::Task::cancel).
    pub fn cancel(&self) {
        self.0.cancel();
    }
}

/// Runs `f` with a scope, and waits for the end of its tasks.
pub(crate) fn enter<'env, R>(
    around: Arc<Group>,
    site: &'static Location<'static>,
    f: impl for<'scope> FnOnce(&'scope TaskScope<'scope, 'env>) -> Result<R>,
) -> Result<R> {
    enter_group(Group::within(around), site, f)
}

/// [`enter`] with this group of the scope's.
pub(crate) fn enter_group<'env, R>(
    group: Arc<Group>,
    site: &'static Location<'static>,
    f: impl for<'scope> FnOnce(&'scope TaskScope<'scope, 'env>) -> Result<R>,
) -> Result<R> {
    let scope = TaskScope { group: group.clone(), _scope: PhantomData, _env: PhantomData };
    until_over(&group, site, || f(&scope))
}

/// Runs `f`, which spawns tasks of this group, and waits for their end, whatever it does.
pub(crate) fn until_over<R>(
    group: &Group,
    site: &'static Location<'static>,
    f: impl FnOnce() -> Result<R>,
) -> Result<R> {
    if cannot_wait() {
        group.leave();
        let why = "a virtual rank, or a task, that is panicking cannot wait for tasks";
        return Err(Error::argument(format!("scope at {site}: {why}")));
    }
    let result = catch_unwind(AssertUnwindSafe(f));
    // Nothing leaves this function before that: what is borrowed is there until the tasks are over, and
    // what their workers free is freed.
    let finished = group.finish(&Call::new(Kind::Fetch, site));
    group.leave();
    let value = result.unwrap_or_else(|panic| resume_unwind(panic))?;
    finished?;
    group.take_failure().map_or(Ok(value), Err)
}
