//! What tasks inside ranks are built on (`spmd-tasks`): where a rank keeps them, how many workers its
//! process has for them, and waiting for one.

use std::any::Any;
use std::sync::Arc;

use crate::call::Call;
use crate::comm::Internals;
use crate::ctx::{self, Ctx};
use crate::error::{Error, Result};
use crate::mode::Mode;
use crate::resources::Resources;
use crate::settings::Settings;
use crate::trace::Trace;
use crate::transport::shared::{Common, RankTasks};
use crate::wait::{self, scheduler, tasks, threads};
use crate::{affinity, current};

/// What every rank does before its closure, if the program has one.
#[derive(Clone, Copy, Debug)]
pub struct RankHook(pub fn(&Ctx) -> Result<()>);

inventory::collect!(RankHook);

/// Does that.
///
/// Errors: a hook's.
pub(crate) fn begin(ctx: &Ctx) -> Result<()> {
    inventory::iter::<RankHook>().try_for_each(|hook| hook.0(ctx))
}

/// Counts this thread, as long as it lives, among those that do nothing of their own accord: it waits in
/// the library, or for those that do.
#[derive(Debug)]
pub struct HelperThread(threads::Helper);

impl HelperThread {
    #[allow(clippy::new_without_default, missing_docs)]
    pub fn new() -> HelperThread {
        HelperThread(threads::Helper::this())
    }
}

/// The workers that ranks of a process have for their tasks.
#[derive(Clone, Debug, Default)]
pub struct ProcessWorkers {
    /// How many: the process's share of the cores, and at least one.
    pub number: usize,
    /// Ranks of the process that have a thread each for themselves.
    pub ranks_with_threads: usize,
    /// The stack of a task, in bytes.
    pub stack_size: usize,
    /// How often an idle one looks for work before it gives its core away.
    pub spins: u32,
    /// What tasks may ask for besides.
    pub resources: Resources,
    /// Where they write down what they do, if they do.
    pub trace: Option<Arc<Trace>>,
}

/// What the ranks of a process have in common for their tasks.
const TASKS: (u64, u64) = (u64::MAX, u64::from_ne_bytes(*b"the pool"));

impl<'a> Internals<'a> {
    /// What runs tasks of this rank, made by `make` if nothing does yet.
    #[inline]
    pub fn tasks_of_rank<T: RankTasks>(self, make: impl FnOnce() -> Arc<T>) -> &'a T {
        let kept = self.endpoint().tasks.get_or_init(|| make());
        let kept: &dyn Any = &**kept;
        kept.downcast_ref().expect("one layer makes them")
    }

    /// Which rank of the world this is, and of how many.
    pub fn in_world(self) -> (usize, usize) {
        (self.endpoint().rank, self.endpoint().world.size())
    }

    /// Which of the ranks of its process this is.
    pub fn number_in_process(self) -> usize {
        let (world, rank) = (&self.endpoint().world, self.endpoint().rank);
        if world.mode == Mode::Processes { 0 } else { rank - world.local().start }
    }

    /// Where its calls and tasks are written down, if they are.
    pub fn trace(self) -> Option<&'a Arc<Trace>> {
        self.endpoint().world.tuning.trace.as_ref()
    }

    /// What `make` has made for the tasks of all ranks of this process.
    ///
    /// Errors: the environment cannot be used.
    pub fn tasks_of_process<T: Send + Sync + 'static>(
        self,
        make: impl FnOnce(ProcessWorkers) -> T,
    ) -> Result<Common<T>> {
        let world = &self.endpoint().world;
        let policy = &world.policy;
        // Virtual ranks share few threads.
        let (here, ranks_with_threads) = match world.mode {
            Mode::Processes => (1, 1),
            Mode::Threads => (world.local().len(), world.local().len()),
            Mode::Virtual => (world.local().len().min(policy.cores), 0),
        };
        let share = policy.cores * here / (here + policy.elsewhere).max(1);
        let settings = Settings::from_environment()?;
        let resources = world.resources.clone().unwrap_or(settings.resources);
        let number = resources.workers().unwrap_or(share.clamp(1, wait::cores()));
        let stack_size = settings.stack_size.unwrap_or(scheduler::DEFAULT_STACK_SIZE);
        let spins = if number + policy.elsewhere <= policy.cores { scheduler::SPINS } else { 0 };
        let trace = world.tuning.trace.clone();
        let workers =
            ProcessWorkers { number, ranks_with_threads, stack_size, spins, resources, trace };
        Ok(Common::of(world, TASKS, || make(workers)))
    }
}

/// Binds this thread to the cores that its process may use, whatever the thread that started it may.
pub fn bind_to_process() {
    affinity::bind_to(&affinity::cores_of_process());
}

/// Waits for `done`, of which `sleeper` is told; `what` says what that is, for reports.
///
/// Errors: on a rank's own agent, it waits in a cycle, or all ranks are stopped; elsewhere, `refused`
/// gives one. An operation of a reduction, a started call, or a virtual rank that is panicking cannot
/// wait.
pub fn wait_for_task(
    sleeper: &tasks::Sleeper,
    (call, what): (&Call<'_>, &dyn Fn() -> String),
    refused: &dyn Fn() -> Option<Error>,
    done: &mut dyn FnMut() -> bool,
) -> Result<()> {
    if wait::is_in_operation() || wait::is_started() {
        let why = "an operation of a reduction, and a started call, cannot wait for a task";
        return Err(Error::argument(format!("{call}: {why}")));
    }
    current::with(|rank| match rank {
        Some(rank) => {
            let comm = ctx::comm_of(rank).internals();
            comm.wait_for_tasks((call, Some(&what())), sleeper, done)
        }
        None => tasks::until_task(sleeper, refused, done),
    })
}

/// Whether whoever runs here cannot wait for others: a virtual rank, or a task, that is panicking.
pub fn cannot_wait() -> bool {
    wait::cannot_wait()
}

/// [`wait_for_task`] that nothing but `done` ends, for who has lent its memory to tasks.
pub fn wait_for_borrowers(sleeper: &tasks::Sleeper, done: impl FnMut() -> bool) {
    wait::until_done(sleeper.bell(), done);
}
