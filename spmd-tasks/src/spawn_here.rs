//! Spawning in tasks, and in code of a rank that has no `ctx`.

use std::panic::Location;

use serde::Serialize;
use serde::de::DeserializeOwned;
use spmd_core::Result;

use crate::datadeps::{self, DataDeps};
use crate::header::Header;
use crate::inputs::{Inputs, put_after};
use crate::options::{OfRank, TaskOptions};
use crate::placement::Scope;
use crate::placing::enter_scope;
use crate::rank::group_here;
use crate::remote::function::RemoteFn;
use crate::remote::spawn::put_on;
use crate::scope::{TaskScope, enter};
use crate::sequence::Sequence;
use crate::task::Task;
use crate::work::Once;

/// [`Tasks::spawn`](crate::Tasks::spawn), in a task, or in code of a rank that has no `ctx`.
///
/// ```
/// use spmd::prelude::*;
/// use spmd::tasks::spawn;
///
/// let found = spmd(1, |ctx| {
///     let outer = ctx.spawn(|| {
///         let inner = spawn(|| Ok(20));
///         Ok(inner.take()? + 1)
///     });
///     outer.take()
/// })?;
/// assert_eq!(found, [21]);
/// # Ok::<(), Error>(())
/// ```
#[track_caller]
pub fn spawn<T, F>(work: F) -> Task<T>
where
    F: FnOnce() -> Result<T> + Send + 'static,
    T: Send + 'static,
{
    Task::put(&group_here(), (Location::caller(), None), Once(work))
}

/// [`Tasks::spawn_after`](crate::Tasks::spawn_after), in a task, or in code of a rank that has no `ctx`.
#[track_caller]
pub fn spawn_after<I, F, T>(inputs: I, work: F) -> Task<T>
where
    I: Inputs<F, T>,
    T: Send + 'static,
{
    put_after(&group_here(), (Location::caller(), None), inputs, work)
}

/// [`Tasks::spawn_sequential`](crate::Tasks::spawn_sequential), in a task, or in code of a rank that has no `ctx`.
#[track_caller]
pub fn spawn_sequential<T, F>(sequence: &Sequence, work: F) -> Task<T>
where
    F: FnOnce() -> Result<T> + Send + 'static,
    T: Send + 'static,
{
    sequence.put(&group_here(), Location::caller(), work)
}

/// [`Tasks::spawn_on`](crate::Tasks::spawn_on), in a task, or in code of a rank that has no `ctx`.
#[track_caller]
pub fn spawn_on<F, A, R>(rank: usize, function: F, args: A) -> Task<R>
where
    F: RemoteFn<A, R>,
    A: Serialize,
    R: DeserializeOwned + Send + 'static,
{
    put_on(&group_here(), Location::caller(), Some(rank), (function, args))
}

/// [`Tasks::spawn_any`](crate::Tasks::spawn_any), in a task, or in code of a rank that has no `ctx`.
#[track_caller]
pub fn spawn_any<F, A, R>(function: F, args: A) -> Task<R>
where
    F: RemoteFn<A, R>,
    A: Serialize,
    R: DeserializeOwned + Send + 'static,
{
    put_on(&group_here(), Location::caller(), None, (function, args))
}

/// [`Tasks::task`](crate::Tasks::task), in a task, or in code of a rank that has no `ctx`.
pub fn task() -> TaskOptions<OfRank<'static>> {
    TaskOptions::new(None)
}

/// [`Tasks::with_scope`](crate::Tasks::with_scope), in a task, or in code of a rank that has no `ctx`.
///
/// Errors: as [`Tasks::with_scope`](crate::Tasks::with_scope); no rank is here.
#[track_caller]
pub fn with_scope<R>(scope: Scope, f: impl FnOnce() -> Result<R>) -> Result<R> {
    enter_scope(Location::caller(), scope, f)
}

/// The rank whose code runs here, or for which a task does: of a function that runs for another rank
/// ([`spawn_on`], [`spawn_any`]) the one that runs it. 0 where no rank is.
pub fn rank_here() -> usize {
    group_here().ranks().rank
}

/// [`Tasks::scope`](crate::Tasks::scope), in a task, or in code of a rank that has no `ctx`.
///
/// Errors: as [`Tasks::scope`](crate::Tasks::scope).
#[track_caller]
pub fn scope<'env, R>(
    f: impl for<'scope> FnOnce(&'scope TaskScope<'scope, 'env>) -> Result<R>,
) -> Result<R> {
    enter(group_here(), Location::caller(), f)
}

/// [`Tasks::datadeps`](crate::Tasks::datadeps), in a task, or in code of a rank that has no `ctx`.
///
/// Errors: as [`Tasks::scope`](crate::Tasks::scope).
#[track_caller]
pub fn datadeps<'env, R>(
    f: impl for<'scope> FnOnce(&'scope DataDeps<'scope, 'env>) -> Result<R>,
) -> Result<R> {
    datadeps::enter(group_here(), Location::caller(), f)
}

/// Whether the task that runs here has been cancelled, or its rank has failed: a long one asks now and
/// then, and returns.
pub fn is_cancelled() -> bool {
    Header::here().is_some_and(Header::is_cancelled)
}
