//! Spawning tasks.

use std::panic::Location;

use serde::Serialize;
use serde::de::DeserializeOwned;
use spmd_core::{Ctx, Result};

use crate::datadeps::{self, DataDeps};
use crate::graph::TaskGraph;
use crate::inputs::{Inputs, put_after};
use crate::mutable::{Mutable, Shard, make_mutable, make_shard, make_shard_per_worker};
use crate::options::{OfRank, TaskOptions};
use crate::placement::Scope;
use crate::placing::enter_scope;
use crate::rank::group_of;
use crate::remote::function::RemoteFn;
use crate::remote::spawn::put_on;
use crate::scope::{TaskScope, enter};
use crate::sequence::Sequence;
use crate::stream::{StreamEnds, make_stream};
use crate::task::Task;
use crate::work::Once;

/// Tasks of a rank, for its [`Ctx`]. A task itself spawns others by the functions of the same names
/// ([`spawn`](crate::spawn()), [`spawn_after`](crate::spawn_after), [`task`](crate::task()),
/// [`scope`](crate::scope())).
///
/// But for [`Tasks::mutable`], [`Tasks::shard`], [`Tasks::shard_per_worker`] and [`Tasks::stream`], they are calls of one rank, in which
/// the others have no part. A task takes with it what it needs (`move`), and may return anything that is `Send`, or an error. When the rank's closure has
/// returned, its tasks are still completed; an error or a panic of one that nobody has asked for is
/// then an error of the rank. If the rank fails, those that have not begun are cancelled.
///
/// The idea, and most of the names, are those of Dagger.jl.
pub trait Tasks {
    /// Spawns a task: `work` is carried out once, by a worker of this process, or by who fetches the
    /// task before one has come to it.
    ///
    /// Errors, of [`Task::fetch`]: what the task returned or panicked with; the system has refused
    /// threads for the workers.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let squares = spmd(2, |ctx| {
    ///     let me = ctx.rank();
    ///     let square = ctx.spawn(move || Ok(me * me));
    ///     // The rank does something else, then asks.
    ///     square.take()
    /// })?;
    /// assert_eq!(squares, [0, 1]);
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn spawn<T, F>(&self, work: F) -> Task<T>
    where
        F: FnOnce() -> Result<T> + Send + 'static,
        T: Send + 'static;

    /// Spawns a task that needs the values of others, up to eight in a tuple or any number of one type
    /// in a slice (of tasks, or of references to them): it is carried out when they are there. If one of them has none, it fails with that
    /// one's cause, without being carried out.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(1, |ctx| {
    ///     let parts: Vec<Task<u64>> = (0..10).map(|i| ctx.spawn(move || Ok(i * i))).collect();
    ///     let sum = ctx.spawn_after(&parts[..], |parts| Ok(parts.iter().copied().sum::<u64>()));
    ///     let name = ctx.spawn(|| Ok("squares"));
    ///     let text = ctx.spawn_after((&name, &sum), |name, sum| Ok(format!("{name}: {sum}")));
    ///     assert_eq!(text.take()?, "squares: 285");
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn spawn_after<I, F, T>(&self, inputs: I, work: F) -> Task<T>
    where
        I: Inputs<F, T>,
        T: Send + 'static;

    /// A task with a name, a priority, a number of tries, or one that asks for something besides a worker.
    ///
    /// ```
    /// use spmd::prelude::*;
    /// use spmd::tasks::Priority;
    ///
    /// spmd(1, |ctx| {
    ///     let urgent = ctx.task().name("urgent").priority(Priority::High).spawn(|| Ok(1));
    ///     assert_eq!(urgent.take()?, 1);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    fn task(&self) -> TaskOptions<OfRank<'_>>;

    /// Spawns a task behind the others of a sequence: it begins when the one before is over, well or not,
    /// and they are carried out in this order, one at a time.
    ///
    /// ```
    /// use spmd::prelude::*;
    /// use spmd::tasks::Sequence;
    /// use std::sync::{Arc, Mutex};
    ///
    ///
    /// spmd(1, |ctx| {
    ///     let (log, in_order) = (Arc::new(Mutex::new(Vec::new())), Sequence::new());
    ///     let write = |line: usize| {
    ///         let log = log.clone();
    ///         ctx.spawn_sequential(&in_order, move || Ok(log.lock().unwrap().push(line)))
    ///     };
    ///     Task::wait_all((0..10).map(write).collect())?;
    ///     assert_eq!(*log.lock().unwrap(), Vec::from_iter(0..10));
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn spawn_sequential<T, F>(&self, sequence: &Sequence, work: F) -> Task<T>
    where
        F: FnOnce() -> Result<T> + Send + 'static,
        T: Send + 'static;

    /// Spawns a task on a rank: a function that [`remote!`](crate::remote!) has made known is run by
    /// that one's workers, whatever the rank itself does, with these arguments, which travel as bytes
    /// (serde), as does its value. The task is over when all is that the function has spawned. Not
    /// for ranks of several hosts, or joined by MPI.
    ///
    /// The ranks serve each other until the tasks of all are over, at the end of the block. If the task is
    /// cancelled, that rank is told: a function that it has begun learns of that by
    /// [`is_cancelled`](crate::is_cancelled), and the task is over when the function is.
    ///
    /// Errors, of [`Task::fetch`]: what the function has returned or panicked with, as text; nobody knows it;
    /// there is no such rank; a rank has failed ([`Error::PeerFailed`](spmd_core::Error::PeerFailed) is the
    /// cause): after that no rank runs tasks for another one.
    ///
    /// ```
    /// use spmd::prelude::*;
    /// use spmd::tasks::remote;
    ///
    /// fn sum(from: u64, to: u64) -> Result<u64> {
    ///     Ok((from..to).sum())
    /// }
    /// remote!(sum);
    ///
    /// # fn main() -> Result<()> {
    /// spmd(2, |ctx| {
    ///     let other = 1 - ctx.rank();
    ///     let task = ctx.spawn_on(other, sum, (1, 5));
    ///     assert_eq!(task.take()?, 10);
    ///     Ok(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    fn spawn_on<F, A, R>(&self, rank: usize, function: F, args: A) -> Task<R>
    where
        F: RemoteFn<A, R>,
        A: Serialize,
        R: DeserializeOwned + Send + 'static;

    /// [`Tasks::spawn_on`] a rank that the library chooses. Such tasks wait on the rank that has spawned
    /// them, and each rank is given two for each of its workers, and another one when it is through with one:
    /// so ranks with little to do take from those with much. A task whose arguments take longer to move than
    /// it runs, as was learnt of others of the same function, stays. [`Task::explain`] tells what was chosen, and
    /// why.
    ///
    /// Errors, of [`Task::fetch`]: as of [`Tasks::spawn_on`].
    ///
    /// ```
    /// use spmd::prelude::*;
    /// use spmd::tasks::remote;
    ///
    /// fn square(x: u64) -> Result<u64> {
    ///     Ok(x * x)
    /// }
    /// remote!(square);
    ///
    /// # fn main() -> Result<()> {
    /// spmd(2, |ctx| {
    ///     let tasks = (0..10).map(|x| ctx.spawn_any(square, (x,))).collect();
    ///     assert_eq!(Task::wait_all(tasks)?.iter().sum::<u64>(), 285);
    ///     Ok(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    fn spawn_any<F, A, R>(&self, function: F, args: A) -> Task<R>
    where
        F: RemoteFn<A, R>,
        A: Serialize,
        R: DeserializeOwned + Send + 'static;

    /// Runs `f`, in which what is spawned runs in this scope alone, with all that it spawns in turn: on these
    /// ranks, workers, GPUs ([`Scope`]). A scope within a scope is where both are. Not for other threads that `f`
    /// starts.
    ///
    /// Errors: the scope is empty, by itself or within the one around it; what `f` returns. A task that cannot run
    /// anywhere in it fails at once, and says why.
    ///
    /// ```
    /// use spmd::prelude::*;
    /// use spmd::tasks::{Scope, remote, resource_ids};
    ///
    /// fn rank() -> Result<usize> {
    ///     Ok(spmd::tasks::rank_here())
    /// }
    /// remote!(rank);
    ///
    /// # fn main() -> Result<()> {
    /// Spmd::new(3).resources("gpu=4").run(|ctx| {
    ///     let ranks = ctx.with_scope(Scope::rank(1) | Scope::rank(2), || {
    ///         Task::wait_all((0..4).map(|_| ctx.spawn_any(rank, ())).collect())
    ///     })?;
    ///     assert!(ranks.iter().all(|rank| [1, 2].contains(rank)));
    ///     let gpu = ctx.with_scope(Scope::gpu(3), || {
    ///         ctx.task().gpu(1).spawn(|| Ok(resource_ids("gpu"))).take()
    ///     })?;
    ///     assert_eq!(gpu, [3]);
    ///     Ok(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    fn with_scope<R>(&self, scope: Scope, f: impl FnOnce() -> Result<R>) -> Result<R>;

    /// Makes an object that lives on one rank: `make` runs there alone. All ranks call it, with the same
    /// `rank`, and get its name. The rank itself uses it by [`Mutable::with`], and so do tasks that are sent there
    /// ([`Tasks::spawn_on`]) with the name among their arguments: the object never moves. It ends
    /// with the block, when no task of any rank is left.
    ///
    /// Errors: as those of a broadcast from that rank.
    ///
    /// ```
    /// use spmd::prelude::*;
    /// use spmd::tasks::{Mutable, remote};
    ///
    /// fn push(list: Mutable<Vec<u64>>, value: u64) -> Result<usize> {
    ///     list.with(|list| {
    ///         list.push(value);
    ///         list.len()
    ///     })
    /// }
    /// remote!(push);
    ///
    /// # fn main() -> Result<()> {
    /// spmd(3, |ctx| {
    ///     let list = ctx.mutable(1, Vec::new)?;
    ///     ctx.spawn_on(list.rank(), push, (list, ctx.rank() as u64)).take()?;
    ///     ctx.barrier()?;
    ///     if ctx.rank() == 1 {
    ///         assert_eq!(list.with(|list| list.iter().sum::<u64>())?, 3);
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    fn mutable<T: Send + 'static>(
        &self,
        rank: usize,
        make: impl FnOnce() -> T,
    ) -> Result<Mutable<T>>;

    /// Makes an object on each rank, of which tasks use that of the rank that they run on
    /// ([`Shard::with`]): a cache, a file, a count. All ranks call it. It ends as [`Tasks::mutable`]'s does.
    ///
    /// Errors: as those of a barrier.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let counts = spmd(2, |ctx| {
    ///     let count = ctx.shard(|| 0)?;
    ///     let tasks = (0..10).map(|_| ctx.spawn(move || count.with(|n| *n += 1)));
    ///     Task::wait_all(tasks.collect())?;
    ///     count.with(|n| *n)
    /// })?;
    /// assert_eq!(counts, [10, 10]);
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn shard<T: Send + 'static>(&self, make: impl FnOnce() -> T) -> Result<Shard<T>>;

    /// Makes an object for each worker of this rank's process, of which a task uses that of the worker that it
    /// runs on: scratch memory, a generator of random numbers. One more is for code that runs on none: the rank's
    /// own, and tasks without a worker. `make` runs here so many times. All ranks call it; otherwise it is as
    /// [`Tasks::shard`].
    ///
    /// Errors: as those of a barrier.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(1, |ctx| {
    ///     let scratch = ctx.shard_per_worker(|| Vec::with_capacity(1000))?;
    ///     let sum = |i| {
    ///         ctx.spawn(move || {
    ///             scratch.with(|numbers| {
    ///                 numbers.clear();
    ///                 numbers.extend(0..i);
    ///                 numbers.iter().sum::<u64>()
    ///             })
    ///         })
    ///     };
    ///     assert_eq!(Task::wait_all((0..5).map(sum).collect())?, [0, 0, 1, 3, 6]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn shard_per_worker<T: Send + 'static>(&self, make: impl FnMut() -> T) -> Result<Shard<T>>;

    /// Makes a stream from one rank to another, for pipelines that go on: as a
    /// [`channel`](crate::channel()), but between ranks. All ranks call it, with the same ends and depth; the rank
    /// `from` gets the end where values go in, `to` that where they come out, and the others none. Values travel
    /// as bytes (serde). `depth` of them at most have been sent and not received: who sends more waits. When all senders
    /// are gone, what is still there is received, and then the end: `None`. When all receivers are, sending is an
    /// error, once that is known.
    ///
    /// Errors: as those of an allreduce and a split; the ranks name different ends; there is no such rank.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     // Each rank is a stage.
    ///     let (numbers, inbox) = ctx.stream::<u64>(0, 1, 8)?;
    ///     let (squares, outbox) = ctx.stream::<u64>(1, 2, 8)?;
    ///     if let Some(numbers) = numbers {
    ///         (0..100).try_for_each(|x| numbers.send(x))?;
    ///     }
    ///     if let (Some(inbox), Some(squares)) = (inbox, squares) {
    ///         inbox.iter().try_for_each(|x| x.and_then(|x| squares.send(x * x)))?;
    ///     }
    ///     if let Some(outbox) = outbox {
    ///         assert_eq!(outbox.iter().sum::<Result<u64>>()?, 328_350);
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn stream<T: Serialize + DeserializeOwned + Send + 'static>(
        &self,
        from: usize,
        to: usize,
        depth: usize,
    ) -> Result<StreamEnds<T>>;

    /// Tasks that borrow: all that `f` spawns in the scope are over when this returns, whatever `f`
    /// does.
    ///
    /// Errors: what `f` returns; what a task has returned or panicked with that nobody has asked for.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(1, |ctx| {
    ///     let mut squares = [1, 2, 3, 4];
    ///     ctx.scope(|s| {
    ///         for x in &mut squares {
    ///             s.spawn(move || Ok(*x *= *x));
    ///         }
    ///         Ok(())
    ///     })?;
    ///     assert_eq!(squares, [1, 4, 9, 16]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn scope<'env, R>(
        &self,
        f: impl for<'scope> FnOnce(&'scope TaskScope<'scope, 'env>) -> Result<R>,
    ) -> Result<R>;

    /// Tasks that say which [`Data`](crate::Data) they read and write: they have the effect that they would have one after the
    /// other, in the order in which they are spawned, and run at the same time as far as that goes. They
    /// may borrow, and are over when this returns, whatever `f` does (Dagger's `spawn_datadeps`).
    ///
    /// Errors: as [`Tasks::scope`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(1, |ctx| {
    ///     let (mut a, b) = (Data::new(vec![1.0, 2.0]), Data::new(vec![0.0; 2]));
    ///     ctx.datadeps(|d| {
    ///         // Both read `a`, and may do so at the same time ..
    ///         d.spawn((d.read(&a), d.write(&b)), |a, b| Ok(b.copy_from_slice(a)));
    ///         let norm = d.spawn((d.read(&a),), |a| Ok(a.iter().map(|x| x * x).sum::<f64>()));
    ///         // .. this one comes after both.
    ///         d.spawn((d.write(&a), d.read(&b)), |a, b| Ok(a.extend_from_slice(b)));
    ///         assert_eq!(norm.take()?, 5.0);
    ///         Ok(())
    ///     })?;
    ///     assert_eq!(a.get_mut(), &[1.0, 2.0, 1.0, 2.0]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn datadeps<'env, R>(
        &self,
        f: impl for<'scope> FnOnce(&'scope DataDeps<'scope, 'env>) -> Result<R>,
    ) -> Result<R>;

    /// Records the tasks that this rank spawns from now on, for [`Tasks::task_graph`]: the first `limit` of
    /// them, with eight times as many arrows, in about 200 bytes each. What was recorded before is
    /// forgotten. Without this call nothing is recorded, and a task takes no memory for it.
    fn record_tasks(&self, limit: usize);

    /// The graph of the tasks of this rank that are recorded, in the language of Graphviz: each with its name,
    /// line and state (waiting, ready, running, over, failed, cancelled), and what it needs.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(1, |ctx| {
    ///     ctx.record_tasks(1000);
    ///     let a = ctx.task().name("a").spawn(|| Ok(1));
    ///     let b = ctx.spawn_after((&a,), |a| Ok(a + 1));
    ///     assert_eq!(b.take()?, 2);
    ///     // For `dot -Tsvg tasks.dot > tasks.svg`.
    ///     let text = ctx.task_graph().to_string();
    ///     assert!(text.starts_with("digraph tasks {") && text.contains("t0 -> t1;"), "{text}");
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    fn task_graph(&self) -> TaskGraph;
}

impl Tasks for Ctx {
    #[track_caller]
    fn spawn<T, F>(&self, work: F) -> Task<T>
    where
        F: FnOnce() -> Result<T> + Send + 'static,
        T: Send + 'static,
    {
        let site = Location::caller();
        Task::put(group_of(self.internals()), (site, None), Once(work))
    }

    #[track_caller]
    fn spawn_after<I, F, T>(&self, inputs: I, work: F) -> Task<T>
    where
        I: Inputs<F, T>,
        T: Send + 'static,
    {
        let site = Location::caller();
        put_after(group_of(self.internals()), (site, None), inputs, work)
    }

    #[track_caller]
    fn spawn_sequential<T, F>(&self, sequence: &Sequence, work: F) -> Task<T>
    where
        F: FnOnce() -> Result<T> + Send + 'static,
        T: Send + 'static,
    {
        sequence.put(group_of(self.internals()), Location::caller(), work)
    }

    #[track_caller]
    fn spawn_on<F, A, R>(&self, rank: usize, function: F, args: A) -> Task<R>
    where
        F: RemoteFn<A, R>,
        A: Serialize,
        R: DeserializeOwned + Send + 'static,
    {
        put_on(group_of(self.internals()), Location::caller(), Some(rank), (function, args))
    }

    #[track_caller]
    fn spawn_any<F, A, R>(&self, function: F, args: A) -> Task<R>
    where
        F: RemoteFn<A, R>,
        A: Serialize,
        R: DeserializeOwned + Send + 'static,
    {
        put_on(group_of(self.internals()), Location::caller(), None, (function, args))
    }

    fn task(&self) -> TaskOptions<OfRank<'_>> {
        TaskOptions::new(Some(group_of(self.internals())))
    }

    #[track_caller]
    fn with_scope<R>(&self, scope: Scope, f: impl FnOnce() -> Result<R>) -> Result<R> {
        enter_scope(Location::caller(), scope, f)
    }

    #[track_caller]
    fn mutable<T: Send + 'static>(
        &self,
        rank: usize,
        make: impl FnOnce() -> T,
    ) -> Result<Mutable<T>> {
        make_mutable(self, rank, make, Location::caller())
    }

    #[track_caller]
    fn shard<T: Send + 'static>(&self, make: impl FnOnce() -> T) -> Result<Shard<T>> {
        make_shard(self, make, Location::caller())
    }

    #[track_caller]
    fn shard_per_worker<T: Send + 'static>(&self, make: impl FnMut() -> T) -> Result<Shard<T>> {
        make_shard_per_worker(self, make, Location::caller())
    }

    #[track_caller]
    fn stream<T: Serialize + DeserializeOwned + Send + 'static>(
        &self,
        from: usize,
        to: usize,
        depth: usize,
    ) -> Result<StreamEnds<T>> {
        make_stream(self, (from, to, depth), Location::caller())
    }

    #[track_caller]
    fn scope<'env, R>(
        &self,
        f: impl for<'scope> FnOnce(&'scope TaskScope<'scope, 'env>) -> Result<R>,
    ) -> Result<R> {
        enter(group_of(self.internals()).clone(), Location::caller(), f)
    }

    #[track_caller]
    fn datadeps<'env, R>(
        &self,
        f: impl for<'scope> FnOnce(&'scope DataDeps<'scope, 'env>) -> Result<R>,
    ) -> Result<R> {
        datadeps::enter(group_of(self.internals()).clone(), Location::caller(), f)
    }

    fn record_tasks(&self, limit: usize) {
        group_of(self.internals()).watch.record(limit);
    }

    fn task_graph(&self) -> TaskGraph {
        group_of(self.internals()).watch.graph()
    }
}
