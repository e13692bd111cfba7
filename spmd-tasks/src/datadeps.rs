//! Tasks that follow each other by the data that they use.

use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;
use std::sync::Arc;

use parking_lot::MutexGuard;
use spmd_core::{Error, Result};

use crate::about::About;
use crate::access::{Read, ReadAll, Write, WriteAll};
use crate::accesses::Accesses;
use crate::data::Data;
use crate::graph::Need;
use crate::group::Group;
use crate::header::follows;
use crate::inner::{AnyTask, Making};
use crate::options::TaskOptions;
use crate::place::{Before, Mode, Ordered, Place};
use crate::placing::placed;
use crate::processor::Home;
use crate::reduce::Reduce;
use crate::scope::{ScopedTask, until_over};
use crate::turns::Turn;
use crate::view::View;

/// Where tasks are spawned that say which data they use: see
/// [`Tasks::datadeps`](crate::Tasks::datadeps).
pub struct DataDeps<'scope, 'env: 'scope> {
    group: Arc<Group>,
    /// As in [`TaskScope`](crate::TaskScope).
    _scope: PhantomData<&'scope mut &'scope ()>,
    _env: PhantomData<&'env mut &'env ()>,
}

impl fmt::Debug for DataDeps<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataDeps").finish_non_exhaustive()
    }
}

impl<'scope> DataDeps<'scope, '_> {
    /// The task reads this (Dagger's `In`).
    pub fn read<V: View<'scope>>(&self, view: V) -> Read<V> {
        Read(view)
    }

    /// The task reads and writes this (Dagger's `InOut`).
    pub fn write<V: View<'scope>>(&self, view: V) -> Write<V> {
        Write(view, Mode::Write)
    }

    /// The task writes this without a look at what was there (Dagger's `Out`): it runs although the task
    /// before has failed that was to write it.
    pub fn overwrite<V: View<'scope>>(&self, view: V) -> Write<V> {
        Write(view, Mode::Overwrite)
    }

    /// The task reads all of these, of which there may be any number. It gets a `Vec`.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(1, |ctx| {
    ///     let (parts, sum) = (vec![Data::new(1), Data::new(2), Data::new(3)], Data::new(0));
    ///     ctx.datadeps(|d| {
    ///         d.spawn((d.write_all(&parts),), |parts| {
    ///             parts.into_iter().for_each(|part| *part *= 10);
    ///             Ok(())
    ///         });
    ///         d.spawn((d.read_all(&parts[1..]), d.write(&sum)), |parts, sum| {
    ///             *sum = parts.into_iter().sum();
    ///             Ok(())
    ///         });
    ///         Ok(())
    ///     })?;
    ///     assert_eq!(sum.into_inner(), 50);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn read_all<V: View<'scope>>(&self, views: impl IntoIterator<Item = V>) -> ReadAll<V> {
        ReadAll(views.into_iter().collect())
    }

    /// The task reads and writes all of these, of which there may be any number.
    pub fn write_all<V: View<'scope>>(&self, views: impl IntoIterator<Item = V>) -> WriteAll<V> {
        WriteAll(views.into_iter().collect(), Mode::Write)
    }

    /// The task writes all of these without a look at what was there.
    pub fn overwrite_all<V: View<'scope>>(
        &self,
        views: impl IntoIterator<Item = V>,
    ) -> WriteAll<V> {
        WriteAll(views.into_iter().collect(), Mode::Overwrite)
    }

    /// The task reads and writes these data, and those that are spawned one after the other and all say
    /// so may do it in any order, one at a time (StarPU's `STARPU_COMMUTE`). A task may say so of several
    /// data. It begins when nobody has any of them, and no worker waits for that.
    ///
    /// The result is the same every time only where the order of the tasks does not matter; of floating
    /// point numbers the order of a sum does: [`DataDeps::reduce`]. If one fails, those that have not
    /// begun do not run.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(1, |ctx| {
    ///     let found = Data::new(Vec::new());
    ///     ctx.datadeps(|d| {
    ///         for i in 0..10 {
    ///             d.spawn((d.commute(&found),), move |found| Ok(found.push(i)));
    ///         }
    ///         // After all of them.
    ///         d.spawn((d.write(&found),), |found| Ok(found.sort()));
    ///         Ok(())
    ///     })?;
    ///     assert_eq!(found.into_inner(), Vec::from_iter(0..10));
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn commute<T: Send + Sync>(&self, data: &'scope Data<T>) -> Write<&'scope Data<T>> {
        Write(data, Mode::Commute)
    }

    /// The task adds to these data: it gets a `&mut T` to what `identity` gives, when it begins, and waits
    /// for nobody who uses the data. `combine` adds what it has left there to the data, when it is its
    /// turn to write them (StarPU's `STARPU_REDUX`). So the data get the same bits whatever the order in
    /// which tasks are over: the parts are added one by one, in the order in which the tasks were
    /// spawned.
    ///
    /// A part is kept until those before it are added; of 256 at most for the same data: the task after
    /// them begins when the first one is added. If the task fails, it counts as one that was to write the
    /// data; a panic of `combine` is an error at the end.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(1, |ctx| {
    ///     let sum = Data::new(0.0);
    ///     ctx.datadeps(|d| {
    ///         for i in 1..=100 {
    ///             let part = d.reduce(&sum, || 0.0, |sum, part| *sum += part);
    ///             d.spawn((part,), move |part| Ok(*part = 1.0 / f64::from(i)));
    ///         }
    ///         Ok(())
    ///     })?;
    ///     assert_eq!(sum.into_inner(), (1..=100).fold(0.0, |sum, i| sum + 1.0 / f64::from(i)));
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn reduce<T, I, C>(
        &self,
        data: &'scope Data<T>,
        identity: I,
        combine: C,
    ) -> Reduce<'scope, T, I, C>
    where
        T: Send + Sync,
        I: FnOnce() -> T + Send,
        C: FnOnce(&mut T, T) + Send + 'scope,
    {
        Reduce::new(data, identity, combine)
    }

    /// Spawns a task that uses data, of which it gets references in this order.
    ///
    /// It begins when all tasks are over that were spawned before and whose use of the data does not go
    /// with its own: several may read, one alone writes. If a task has failed that was to write what this
    /// one reads, it fails with that one's cause, without being carried out.
    ///
    /// Errors, of [`ScopedTask::fetch`]: as of other tasks; some data are named twice, and written; a
    /// part of an array is not there.
    #[track_caller]
    pub fn spawn<A, F, T>(&'scope self, accesses: A, work: F) -> ScopedTask<'scope, T>
    where
        A: Accesses<'scope, F, T> + 'scope,
        F: Send + 'scope,
        T: Send + 'scope,
        A::Work: 'scope,
    {
        self.put((Location::caller(), None), accesses, work)
    }

    /// As [`Tasks::task`](crate::Tasks::task), for a task that uses data.
    ///
    /// ```
    /// use spmd::prelude::*;
    /// use spmd::tasks::{Priority, resource_ids};
    ///
    /// Spmd::new(1).resources("gpu=2").run(|ctx| {
    ///     let used = Data::new(Vec::new());
    ///     ctx.datadeps(|d| {
    ///         let task = d.task().name("first").priority(Priority::High).gpu(1);
    ///         task.spawn((d.write(&used),), |used| Ok(used.extend(resource_ids("gpu"))));
    ///         Ok(())
    ///     })?;
    ///     assert_eq!(used.into_inner(), [0]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn task(&'scope self) -> TaskOptions<&'scope Self> {
        TaskOptions::of(self)
    }

    fn put<A, F, T>(
        &'scope self,
        (site, about): (&'static Location<'static>, Option<Box<About>>),
        mut accesses: A,
        work: F,
    ) -> ScopedTask<'scope, T>
    where
        A: Accesses<'scope, F, T> + 'scope,
        F: Send + 'scope,
        T: Send + 'scope,
        A::Work: 'scope,
    {
        let mut about = placed(&self.group, about);
        let either = about.as_mut().and_then(|about| about.either.as_mut());
        let mut places = accesses.places();
        either.into_iter().for_each(|it| it.homes = homes(&places));
        places.sort_by_key(|place| (place.address(), place.how.region.rows.start));
        let refused = refusal(&mut places)
            .map(|why| Error::argument(format!("datadeps at {site}: a task {why}")));
        let making = Making::new(&self.group, site);
        if refused.is_some() || self.group.refusal().is_some() {
            // It asks for nothing any more.
            let about = about.map(|about| Box::new(About { asks: None, ..*about }));
            let task = making.task(about, accesses.work(Vec::new(), refused, work));
            task.is_made(&self.group);
            return ScopedTask::new(task);
        }
        // Whoever spawns a task on some of the same data at this time comes before it, or after it, on
        // all of them: orders are locked in one order.
        let mut orders: Vec<Locked<'_, '_>> = Vec::with_capacity(places.len());
        for places in places.chunk_by_mut(|a, b| a.is_of_same(b)) {
            orders.push((places[0].order.lock(), places));
        }
        let mut before = Before::default();
        for (order, places) in &mut orders {
            for place in places.iter().filter(|place| place.fold.is_none()) {
                order.before(&place.how, &mut before, &making);
            }
        }
        if let Some(turn) = Turn::of(before.queues) {
            about.get_or_insert_default().turn = Some(turn);
        }
        let task = making.task(about, accesses.work(before.well, None, work));
        // SAFETY: it borrows for `'scope`, and is of the group whose end is waited for before that.
        let shared = unsafe { making.shared(&task) };
        for (order, places) in &mut orders {
            for place in places.iter_mut() {
                uses(&shared, &mut **order, place, &making);
            }
        }
        drop(orders);
        task.asks(&self.group, || shared.clone());
        making.done(shared);
        ScopedTask::new(task)
    }
}

/// Where the data of a task are that are on the host or on GPUs.
fn homes(places: &[Place<'_>]) -> Vec<Arc<Home>> {
    places.iter().filter_map(|place| place.home.clone()).collect()
}

impl<'scope> TaskOptions<&'scope DataDeps<'scope, '_>> {
    /// Spawns the task: [`DataDeps::spawn`].
    #[track_caller]
    pub fn spawn<A, F, T>(self, accesses: A, work: F) -> ScopedTask<'scope, T>
    where
        A: Accesses<'scope, F, T> + 'scope,
        F: Send + 'scope,
        T: Send + 'scope,
        A::Work: 'scope,
    {
        let (deps, about) = self.parts();
        deps.put((Location::caller(), about), accesses, work)
    }
}

/// An order, and the places of a task there.
type Locked<'l, 'd> = (MutexGuard<'l, dyn Ordered + 'd>, &'l mut [Place<'d>]);

/// The task uses data after those that do now; or what it has made is added after them.
fn uses<'scope>(
    task: &AnyTask,
    order: &mut (dyn Ordered + 'scope),
    place: &mut Place<'scope>,
    making: &Making<'_>,
) {
    let Some(fold) = place.fold.take() else {
        return order.follows(task, &place.how);
    };
    let mut before = Before { well: vec![task.clone()], ..Before::default() };
    order.before(&place.how, &mut before, making);
    if let Some(over) = before.over {
        follows(task, over.header(), Need::Data);
    }
    // SAFETY: it borrows for `'scope`, and is of the group whose end is waited for before that.
    let fold = unsafe { making.inner(before.well, Some(fold)) };
    follows(&fold, task.header(), Need::Data);
    order.follows(&fold, &place.how);
}

/// Why a task cannot use these, which are sorted.
fn refusal(places: &mut [Place<'_>]) -> Option<String> {
    let wrong = places.iter_mut().find_map(|place| place.wrong.take());
    wrong.or_else(|| has_twice(places).then(|| "names data twice, and writes them".into()))
}

/// Whether something is there twice, and written.
fn has_twice(places: &[Place<'_>]) -> bool {
    let meet = |a: &Place<'_>, b: &Place<'_>| {
        let written = a.how.mode != Mode::Read || b.how.mode != Mode::Read;
        written && a.how.region.common(&b.how.region).is_some()
    };
    places.chunk_by(|a, b| a.is_of_same(b)).any(|places| {
        places.iter().enumerate().any(|(i, a)| {
            // Those behind begin in later rows.
            let may = |b: &&Place<'_>| b.how.region.rows.start < a.how.region.rows.end;
            places[i + 1..].iter().take_while(may).any(|b| meet(a, b))
        })
    })
}

/// Runs `f` with a place for such tasks, and waits for their end.
pub(crate) fn enter<'env, R>(
    around: Arc<Group>,
    site: &'static Location<'static>,
    f: impl for<'scope> FnOnce(&'scope DataDeps<'scope, 'env>) -> Result<R>,
) -> Result<R> {
    let group = Group::within(around);
    let deps = DataDeps { group: group.clone(), _scope: PhantomData, _env: PhantomData };
    until_over(&group, site, || f(&deps))
}
