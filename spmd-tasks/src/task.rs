//! The handle of a task.

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::panic::Location;
use std::sync::Arc;

use spmd_core::internal::{Call, Kind, Sleeper, wait_for_task, worker_is_full};
use spmd_core::{Error, Result};

use crate::about::About;
use crate::arrivals::{Arrivals, Countdown};
use crate::failure::Failure;
use crate::group::{Group, given_up};
use crate::header::Header;
use crate::input::Input;
use crate::node::{Node, Valued, Work};
use crate::placing::placed;
use crate::pool::run_here;
use crate::rank::{group_here, note_here, watch_here};

/// A task that was spawned, and its value. See [`Tasks`](crate::Tasks).
///
/// To drop it leaves the task alone, which is carried out all the same; if it fails then, that is an
/// error of its rank at the end of the block.
pub struct Task<T>(Handle<'static, T>);

/// The same for a task that may borrow.
pub(crate) struct Handle<'a, T> {
    task: Arc<dyn Valued<T> + 'a>,
    /// It does not outlive the group of the task.
    scoped: bool,
    /// The value is reached from wherever this is.
    _value: PhantomData<T>,
}

impl<'a, T> Handle<'a, T> {
    fn new(task: Arc<dyn Valued<T>>) -> Handle<'static, T>
    where
        T: 'static,
    {
        Handle { task, scoped: false, _value: PhantomData }
    }

    /// Of a task whose group is there as long as the handle.
    pub(crate) fn scoped(task: Arc<dyn Valued<T> + 'a>) -> Handle<'a, T> {
        Handle { task, scoped: true, _value: PhantomData }
    }

    pub(crate) fn header(&self) -> &Header {
        self.task.header()
    }

    /// Waits until the task is over: carries it out here, if nobody has begun it.
    pub(crate) fn wait(&self, site: &'static Location<'static>) -> Result<()> {
        if self.is_over_here() {
            return Ok(());
        }
        let task = self.task.header();
        let sleeper = Arc::new(Sleeper::here());
        may_sleep(site)?;
        if !task.wakes(&sleeper) {
            return Ok(());
        }
        let waited = sleep(task, &sleeper, site, &mut || task.is_over());
        if waited.is_err() {
            task.forget_sleeper(&sleeper);
        }
        if task.is_over() { Ok(()) } else { waited }
    }

    /// Whether it is over. It is carried out here, if nobody has begun it and it needs nothing more.
    fn is_over_here(&self) -> bool {
        let task = self.task.header();
        if task.is_over() {
            return true;
        }
        task.is_ready()
            && task.asks().is_none()
            && task.either().is_none()
            && run_here(|| self.task.run())
            && task.is_over()
    }

    pub(crate) fn fetch(&self, site: &'static Location<'static>) -> Result<&T> {
        self.wait(site)?;
        let told = |failure: &Failure| {
            self.header().is_known();
            failure.error(self.header().described())
        };
        self.task.outcome().as_ref().map_err(told)
    }

    pub(crate) fn take(self, site: &'static Location<'static>) -> Result<T> {
        self.fetch(site)?;
        let task = self.task.header();
        while !task.is_unshared() {
            let sleeper = Arc::new(Sleeper::here());
            if task.wakes_when_unshared(&sleeper) {
                sleep(task, &sleeper, site, &mut || task.is_unshared())?;
            }
        }
        let this = ManuallyDrop::new(self);
        // SAFETY: it is not used any more where it was, nor dropped.
        let task = unsafe { std::ptr::read(&this.task) };
        // SAFETY: it is over, and this was the only one who uses the value, which is not freed by the
        // end of the handle, as that does not come.
        let outcome = unsafe { task.take() };
        outcome.map_err(|failure| failure.error(task.header().described()))
    }

    pub(crate) fn cancel(&self) {
        self.header().cancel();
        // What has not begun is over with that.
        if self.header().is_ready() {
            self.task.run();
        }
    }
}

/// Errors: too many wait on this worker.
fn may_sleep(site: &'static Location<'static>) -> Result<()> {
    if worker_is_full() {
        let why = "4,096 tasks of its worker wait already; wait for fewer at a time";
        return Err(Error::argument(format!("fetch at {site}: {why}")));
    }
    Ok(())
}

/// For so many tasks at a time one waits that waits for all: it is woken once, not for each.
const TOGETHER: usize = 64;

/// Waits until all of these are over, or one has failed.
fn wait_for_some<T: 'static>(tasks: &[Task<T>], site: &'static Location<'static>) -> Result<()> {
    // Behind one that has failed nobody waits.
    let headers = tasks.iter().map(|task| task.0.header());
    let before = headers.take_while(|task| task.failure().is_none());
    let left: Vec<&Header> = before.filter(|task| !task.is_over()).collect();
    // One that waits for itself is told so in its turn.
    let itself = |task: &&Header| Header::here().is_some_and(|here| std::ptr::eq(here, *task));
    let several = left.len() > 1 && !left.iter().any(itself);
    let Some(first) = left.first().filter(|_| several) else { return Ok(()) };
    may_sleep(site)?;
    let countdown = Arc::new(Countdown::here());
    // Not over before all are counted.
    countdown.add();
    for task in &left {
        countdown.add();
        if !task.counts_for(&countdown) {
            countdown.tell(task.failure().is_some());
        }
    }
    countdown.tell(false);
    let waited = sleep(first, countdown.sleeper(), site, &mut || countdown.is_over());
    left.iter().filter(|task| !task.is_over()).for_each(|task| task.forget_countdown(&countdown));
    waited
}

/// Waits for something of a task that this one is told of.
fn sleep(
    task: &Header,
    sleeper: &Sleeper,
    site: &'static Location<'static>,
    done: &mut dyn FnMut() -> bool,
) -> Result<()> {
    let here = Header::here();
    let call = Call::new(Kind::Fetch, site);
    if here.is_some_and(|here| std::ptr::eq(here, task)) {
        return Err(Error::argument(format!("{call}: {} waits for itself", task.described())));
    }
    let watch = watch_here();
    let _bar = watch.as_ref().and_then(|watch| watch.begins_wait(&call));
    // SAFETY: the task that runs here is not over.
    let gives_up = || here.is_some_and(|here| unsafe { here.group() }.gives_up());
    let refused = || gives_up().then(given_up);
    wait_for_task(sleeper, (&call, &|| task.described_waiting()), &refused, done)
}

impl<T> Drop for Handle<'_, T> {
    fn drop(&mut self) {
        let task = self.task.header();
        if task.is_left_early() {
            return;
        }
        if task.is_dropped()
            && let Some(failure) = task.failure()
            && !task.is_known()
        {
            match self.scoped {
                // SAFETY: the group lives as long as the handle.
                true => unsafe { task.group() }.note(failure, task.described()),
                false => group_here().note(failure, task.described()),
            }
        }
        if task.is_left() {
            // SAFETY: it has said so.
            note_here(unsafe { self.task.free() });
        }
    }
}

impl<T: 'static> Task<T> {
    pub(crate) fn new(task: Arc<dyn Valued<T>>) -> Task<T> {
        Task(Handle::new(task))
    }

    /// Spawns a task that needs no other one.
    pub(crate) fn put<W: Work<Value = T> + 'static>(
        group: &Arc<Group>,
        (site, about): (&'static Location<'static>, Option<Box<About>>),
        work: W,
    ) -> Task<T> {
        Task::put_anywhere(group, (site, placed(group, about)), work)
    }

    /// The same, whatever the scope is here.
    pub(crate) fn put_anywhere<W: Work<Value = T> + 'static>(
        group: &Arc<Group>,
        (site, about): (&'static Location<'static>, Option<Box<About>>),
        work: W,
    ) -> Task<T> {
        let task = Arc::new(Node::new(Header::new(group, site, about), work));
        task.asks(group, || task.clone());
        task.is_made(group);
        Task::new(task)
    }

    pub(crate) fn header(&self) -> &Header {
        self.0.header()
    }

    /// What a task that needs this one takes of it.
    pub(crate) fn input(&self) -> Input<T> {
        Input::new(self.0.task.clone())
    }

    /// The task's value, once it is over. If it has not begun, it is carried out here.
    ///
    /// On a worker, in another task, that one is suspended meanwhile, and the worker goes on with
    /// others: of one worker 4,096 tasks may be under way at a time.
    ///
    /// Errors: [`Error::TaskFailed`] with what it, or a task that it needs, returned or panicked with;
    /// [`Error::Cancelled`]; [`Error::Stopped`] if all that could end it wait for each other, with the
    /// tasks and lines; [`Error::Timeout`] where a limit was set.
    #[track_caller]
    pub fn fetch(&self) -> Result<&T> {
        self.0.fetch(Location::caller())
    }

    /// [`Task::fetch`] that gives the value itself, once the tasks that need it have been carried out.
    ///
    /// Errors: as [`Task::fetch`].
    #[track_caller]
    pub fn take(self) -> Result<T> {
        self.0.take(Location::caller())
    }

    /// Whether it is over, well or not.
    pub fn is_over(&self) -> bool {
        self.0.header().is_over()
    }

    /// Why it runs where it does, in words: which rank's workers carry it out and, where that was chosen
    /// ([`Tasks::spawn_any`](crate::Tasks::spawn_any)), by what it was; and what it asked for.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// Spmd::new(1).resources("gpu=2").run(|ctx| {
    ///     let task = ctx.task().name("fft").gpu(1).spawn(|| Ok(()));
    ///     task.fetch()?;
    ///     assert!(task.explain().ends_with("it asked for 1 gpu, and got gpu [0]"), "{}", task.explain());
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn explain(&self) -> String {
        self.0.header().explained()
    }

    /// Cancels it: if it has not begun, it never will; if it has, it may learn of that by
    /// [`is_cancelled`](crate::is_cancelled).
    pub fn cancel(&self) {
        self.0.cancel();
    }

    /// Waits for all, and gives their values in this order.
    ///
    /// Errors: that of the first one that has failed, in this order.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(1, |ctx| {
    ///     let tasks = (0..4).map(|i| ctx.spawn(move || Ok(i))).collect();
    ///     assert_eq!(Task::wait_all(tasks)?, [0, 1, 2, 3]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn wait_all(tasks: Vec<Task<T>>) -> Result<Vec<T>> {
        let site = Location::caller();
        let (mut values, mut left) = (Vec::with_capacity(tasks.len()), tasks.into_iter());
        while let Some(first) = left.as_slice().first() {
            if !first.0.is_over_here() {
                let some = &left.as_slice()[..left.len().min(TOGETHER)];
                wait_for_some(some, site)?;
            }
            values.extend(left.next().map(|task| task.0.take(site)).transpose()?);
        }
        Ok(values)
    }

    /// Waits for one of them, takes it out, and gives its place and value. Those behind it move up.
    ///
    /// Errors: its own; there is none.
    #[track_caller]
    pub fn wait_any(tasks: &mut Vec<Task<T>>) -> Result<(usize, T)> {
        let site = Location::caller();
        if tasks.is_empty() {
            return Err(Error::argument(format!("wait_any at {site}: there is no task")));
        }
        let index = match tasks.iter().position(|task| task.is_over()) {
            Some(index) => index,
            None => first_over(tasks, site)?,
        };
        Ok((index, tasks.remove(index).0.take(site)?))
    }

    /// Their values with their places, in the order in which they are over.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(1, |ctx| {
    ///     let tasks = (0..4).map(|i| ctx.spawn(move || Ok(10 * i))).collect();
    ///     for done in Task::as_completed(tasks) {
    ///         let (place, value) = done?;
    ///         assert_eq!(value, 10 * place);
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn as_completed(tasks: Vec<Task<T>>) -> Completed<T> {
        let arrivals = Arc::new(Arrivals::here());
        for (number, task) in tasks.iter().enumerate() {
            if !task.0.header().tells(&arrivals, number) {
                arrivals.tell(number);
            }
        }
        let left = tasks.len();
        let tasks = tasks.into_iter().map(Some).collect();
        Completed { tasks, left, arrivals, site: Location::caller() }
    }
}

/// Which of these is over first: none is yet.
fn first_over<T: 'static>(tasks: &[Task<T>], site: &'static Location<'static>) -> Result<usize> {
    let arrivals = Arc::new(Arrivals::here());
    let is_over = |number: &usize| !tasks[*number].0.header().tells(&arrivals, *number);
    let mut first = (0..tasks.len()).find(is_over);
    let waited = match first {
        Some(_) => Ok(()),
        None => sleep(tasks[0].0.header(), arrivals.sleeper(), site, &mut || {
            first = arrivals.take();
            first.is_some()
        }),
    };
    tasks.iter().for_each(|task| task.0.header().forget_arrivals(&arrivals));
    waited.map(|()| first.expect("the wait has ended with it"))
}

/// Tasks in the order in which they are over: see [`Task::as_completed`].
///
/// The values are waited for by whoever asks for the next one: who has made this.
#[must_use = "the tasks are waited for as it is iterated"]
pub struct Completed<T> {
    tasks: Vec<Option<Task<T>>>,
    left: usize,
    arrivals: Arc<Arrivals>,
    site: &'static Location<'static>,
}

impl<T: 'static> Iterator for Completed<T> {
    type Item = Result<(usize, T)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        let mut next = self.arrivals.take();
        if next.is_none() {
            let some = self.tasks.iter().flatten().next()?;
            let mut done = || {
                next = self.arrivals.take();
                next.is_some()
            };
            let header = some.0.header();
            if let Err(error) = sleep(header, self.arrivals.sleeper(), self.site, &mut done) {
                self.left = 0;
                return Some(Err(error));
            }
        }
        let number = next?;
        self.left -= 1;
        let task = self.tasks[number].take()?;
        Some(task.0.take(self.site).map(|value| (number, value)))
    }
}

impl<T> fmt::Debug for Completed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completed").field("left", &self.left).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Task<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let task = self.0.header();
        f.debug_tuple("Task").field(&task.described()).field(&task.is_over()).finish()
    }
}
