//! How a task is spawned: its name, its priority, what it asks for, how often it is tried.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use spmd_core::Result;
use spmd_core::internal::{PARTS, parts};

use crate::about::{About, Priority};
use crate::choice::Either;
use crate::group::Group;
use crate::header::Header;
use crate::inputs::{Inputs, put_after};
use crate::processor::Processor;
use crate::rank::group_here;
use crate::request::{Asks, Request};
use crate::task::Task;
use crate::work::{Once, Retried};

/// A task that is about to be spawned. See [`Tasks::task`](crate::Tasks::task), and
/// [`TaskScope::task`](crate::TaskScope::task) for one that borrows: `W` is where it will be.
///
/// It is spawned before its rank ends:
///
/// ```compile_fail
/// use spmd::prelude::*;
///
/// let late = spmd(1, |ctx| Ok(ctx.task()));
/// ```
#[must_use = "a task does nothing before `spawn`"]
pub struct TaskOptions<W> {
    pub(crate) whose: W,
    name: Option<Box<str>>,
    priority: Priority,
    request: Request,
    /// Whether it has code for the host and for GPUs.
    has_both: bool,
}

/// A task of the rank: see [`TaskOptions`].
pub struct OfRank<'r>(
    /// Of the rank that has made this; else whose it is that spawns the task.
    Option<&'r Arc<Group>>,
);

impl fmt::Debug for OfRank<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OfRank").finish_non_exhaustive()
    }
}

impl<W> fmt::Debug for TaskOptions<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("TaskOptions");
        fields.field("name", &self.name).field("priority", &self.priority);
        fields.field("asks", &format_args!("{}", self.request)).finish_non_exhaustive()
    }
}

impl<'r> TaskOptions<OfRank<'r>> {
    pub(crate) fn new(group: Option<&'r Arc<Group>>) -> TaskOptions<OfRank<'r>> {
        TaskOptions::of(OfRank(group))
    }
}

impl<W> TaskOptions<W> {
    pub(crate) fn of(whose: W) -> TaskOptions<W> {
        let (name, priority, request, has_both) = Default::default();
        TaskOptions { whose, name, priority, request, has_both }
    }

    /// What reports call the task, besides the line that spawns it.
    pub fn name(mut self, name: &str) -> TaskOptions<W> {
        self.name = Some(name.into());
        self
    }

    /// Whether workers take it before or after others.
    pub fn priority(mut self, priority: Priority) -> TaskOptions<W> {
        self.priority = priority;
        self
    }

    /// How many workers the task takes; 1 without this. With 0 it takes none: it only drives a device, or
    /// waits for something outside, on a thread beside the workers, of which a process has up to 64. With
    /// more than 1 it has threads of its own: it begins when so many workers have nothing else to do, and
    /// the others begin nothing until it is over.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(1, |ctx| {
    ///     let waits = ctx.task().cpu(0).spawn(|| {
    ///         std::thread::sleep(std::time::Duration::from_millis(5));
    ///         Ok("the device is done")
    ///     });
    ///     // The workers do something else meanwhile.
    ///     assert_eq!(ctx.spawn(|| Ok(6 * 7)).take()?, 42);
    ///     assert_eq!(waits.take()?, "the device is done");
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// Errors, of [`Task::fetch`]: the process has fewer workers.
    pub fn cpu(mut self, workers: usize) -> TaskOptions<W> {
        self.request.cpu = workers;
        self
    }

    /// The task takes so many GPUs of its process while it is under way: [`resource_ids`] says which.
    /// The process has those that are declared (`gpu=2`, `gpu=(0,1),(2,3)`, by `spmdrun --resources` or
    /// [`Spmd::resources`](spmd_core::Spmd::resources)), else as many as `CUDA_VISIBLE_DEVICES` names. Several
    /// are of one group where a group has so many, and those that the tasks had whose values this one uses
    /// are preferred.
    ///
    /// ```
    /// use spmd::prelude::*;
    /// use spmd::tasks::resource_ids;
    ///
    /// Spmd::new(1).resources("gpu=(0,1),(2,3)").run(|ctx| {
    ///     let pair = ctx.task().gpu(2).spawn(|| Ok(resource_ids("gpu")));
    ///     assert!([vec![0, 1], vec![2, 3]].contains(&pair.take()?));
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// Errors, of [`Task::fetch`]: the process has fewer.
    pub fn gpu(mut self, count: usize) -> TaskOptions<W> {
        self.request.add("gpu", (count as u64).saturating_mul(PARTS));
        self
    }

    /// The task takes so much of a resource of its process, of which there is what is declared, while it is
    /// under way: in millionths, or in whole units where these have numbers. Tasks that ask for some of the
    /// same get it in the order in which they came, by their priorities.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// Spmd::new(1).resources("license=1").run(|ctx| {
    ///     // Two of these run at a time.
    ///     let half = |i| ctx.task().resource("license", 0.5).spawn(move || Ok(i));
    ///     let sum: usize = spmd::tasks::Task::wait_all((0..6).map(half).collect())?.iter().sum();
    ///     assert_eq!(sum, 15);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// Errors, of [`Task::fetch`]: the process has less, or no such resource.
    ///
    /// # Panics
    /// The amount is not a number from a millionth to 10⁹.
    pub fn resource(mut self, name: &str, amount: f64) -> TaskOptions<W> {
        let parts = parts(amount).unwrap_or_else(|| panic!("{amount} is no amount of {name}"));
        self.request.add(name, parts);
        self
    }

    /// The task has code for the host and for a GPU, and asks [`processor_here`] which of it is to run (StarPU's
    /// codelets). When all is there that it needs, that is chosen where it should be over first: by what waits
    /// there, what its [`Data::placed`](crate::Data::placed) take to come there, and how long tasks of its
    /// name have taken there; one that has not been tried is tried. With a GPU it has one for itself, as by
    /// [`TaskOptions::gpu`]; a process that has none leaves it to the host. [`Task::explain`] says why.
    ///
    /// Its code is over when it returns: what it puts into a stream of the device counts for nobody.
    ///
    /// ```
    /// use spmd::prelude::*;
    /// use spmd::Mirror;
    /// use spmd::tasks::{Processor, Scope, processor_here};
    ///
    /// # struct DeviceBuffer(Vec<f64>);
    /// # impl Mirror<Vec<f64>> for DeviceBuffer {
    /// #     fn to_gpu(host: &Vec<f64>, _: u32) -> Result<DeviceBuffer> {
    /// #         Ok(DeviceBuffer(host.clone()))
    /// #     }
    /// #     fn to_host(&self) -> Result<Vec<f64>> {
    /// #         Ok(self.0.clone())
    /// #     }
    /// #     fn bytes(host: &Vec<f64>) -> usize {
    /// #         8 * host.len()
    /// #     }
    /// # }
    /// # fn sum_on_device(numbers: &DeviceBuffer) -> Result<f64> {
    /// #     Ok(numbers.0.iter().sum())
    /// # }
    /// Spmd::new(1).resources("gpu=1").run(|ctx| {
    ///     let numbers = Data::placed::<DeviceBuffer>(vec![0.5; 1000]);
    ///     ctx.datadeps(|d| {
    ///         let sum = |numbers: &spmd::tasks::Placed<Vec<f64>, DeviceBuffer>| match processor_here() {
    ///             Processor::Host => Ok(numbers.host()?.iter().sum::<f64>()),
    ///             Processor::Gpu(gpu) => sum_on_device(&*numbers.gpu(gpu)?),
    ///         };
    ///         let chosen = d.task().name("sum").host_or_gpu().spawn((d.read(&numbers),), sum);
    ///         assert_eq!(chosen.take()?, 500.0);
    ///         // As Dagger's `scope=Dagger.scope(cuda_gpu=1)`.
    ///         let on_gpu = ctx.with_scope(Scope::gpu(0), || {
    ///             Ok(d.task().name("sum").host_or_gpu().spawn((d.read(&numbers),), sum))
    ///         })?;
    ///         assert_eq!(on_gpu.take()?, 500.0);
    ///         Ok(())
    ///     })
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// Errors, of [`Task::fetch`]: its scope has GPUs that the process has not, where it has others.
    pub fn host_or_gpu(mut self) -> TaskOptions<W> {
        self.has_both = true;
        self
    }

    /// Tries the task again, so many times at most, after an error or a panic. The last one counts. It keeps
    /// what it has asked for meanwhile.
    ///
    /// ```
    /// use spmd::prelude::*;
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
    /// # Ok::<(), Error>(())
    /// ```
    pub fn retry(self, times: usize) -> RetriedTask<W> {
        RetriedTask { options: self, times }
    }

    /// Where the task will be, and what is said of it.
    pub(crate) fn parts(self) -> (W, Option<Box<About>>) {
        let TaskOptions { whose, name, priority, request, has_both } = self;
        let mut about = About { name, priority, ..About::default() };
        if has_both {
            let mut with_gpu = request.clone();
            if !with_gpu.amounts.iter().any(|(name, _)| **name == *"gpu") {
                with_gpu.add("gpu", PARTS);
            }
            about.either = Some(Box::new(Either::new(Some(request), Some(with_gpu))));
        } else if request != Request::default() {
            about.asks = Some(Arc::new(Asks::new(request)));
        }
        (whose, Some(Box::new(about)))
    }
}

impl OfRank<'_> {
    fn group(self) -> Arc<Group> {
        self.0.cloned().unwrap_or_else(group_here)
    }
}

impl TaskOptions<OfRank<'_>> {
    /// Spawns the task: [`Tasks::spawn`](crate::Tasks::spawn).
    #[track_caller]
    pub fn spawn<T, F>(self, work: F) -> Task<T>
    where
        F: FnOnce() -> Result<T> + Send + 'static,
        T: Send + 'static,
    {
        let (whose, about) = self.parts();
        Task::put(&whose.group(), (Location::caller(), about), Once(work))
    }

    /// Spawns it after others: [`Tasks::spawn_after`](crate::Tasks::spawn_after).
    #[track_caller]
    pub fn spawn_after<I, F, T>(self, inputs: I, work: F) -> Task<T>
    where
        I: Inputs<F, T>,
        T: Send + 'static,
    {
        let (whose, about) = self.parts();
        put_after(&whose.group(), (Location::caller(), about), inputs, work)
    }
}

/// A task that is about to be spawned, and that is tried again. See [`TaskOptions::retry`].
#[derive(Debug)]
#[must_use = "a task does nothing before `spawn`"]
pub struct RetriedTask<W> {
    options: TaskOptions<W>,
    times: usize,
}

impl<W> RetriedTask<W> {
    /// Where it will be, what is said of it, and what it does.
    pub(crate) fn parts<F>(self, work: F) -> (W, Option<Box<About>>, Retried<F>) {
        let (whose, about) = self.options.parts();
        (whose, about, Retried { work, tries: self.times.saturating_add(1) })
    }
}

impl RetriedTask<OfRank<'_>> {
    /// Spawns the task, which may be carried out several times, one after the other.
    #[track_caller]
    pub fn spawn<T, F>(self, work: F) -> Task<T>
    where
        F: FnMut() -> Result<T> + Send + 'static,
        T: Send + 'static,
    {
        let (whose, about, work) = self.parts(work);
        Task::put(&whose.group(), (Location::caller(), about), work)
    }
}

/// Which code the task that runs here is to run: see [`TaskOptions::host_or_gpu`]. `Host` of all others.
pub fn processor_here() -> Processor {
    Header::here().and_then(Header::either).map_or(Processor::Host, Either::processor)
}

/// The numbers of the units that the task which runs here has been given of a resource, lowest first: none
/// if it has asked for none.
pub fn resource_ids(name: &str) -> Vec<u32> {
    let asks = Header::here().and_then(Header::asks);
    let units = asks.map(|asks| asks.granted()).unwrap_or_default();
    units.into_iter().filter(|(it, _)| **it == *name).flat_map(|(_, units)| units).collect()
}
