//! Blocks: `spmd(n, ..)`, the builder behind it, and what every rank does at its start and end.

use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::time::Duration;

use parking_lot::Mutex;

use crate::call::{Call, Kind};
use crate::ctx::Ctx;

use crate::error::{Error, Result};
use crate::fault::{Cause, Fault, note_panics, panic_text};
use crate::transport::shared::layout::Layout;
use crate::transport::shared::memory::Memory;
use crate::transport::shared::{Endpoint, Mode, Reach, World, state};
use crate::wait::{self, Policy, Running, fleet};
use crate::{boot, comm, ctx};

/// Runs `f` on `n` ranks, each a thread, and gives their results in rank order. `f` may borrow
/// from the caller.
///
/// Errors: that of the first rank that failed; the others were stopped by it. Messages that
/// nobody received.
///
/// ```
/// # use spmd_core::{spmd, Result};
/// let ranks = spmd(4, |ctx| Ok(ctx.rank() * 10))?;
/// assert_eq!(ranks, [0, 10, 20, 30]);
/// # Ok::<(), spmd_core::Error>(())
/// ```
#[track_caller]
pub fn spmd<R, F>(n: usize, f: F) -> Result<Vec<R>>
where
    F: Fn(&Ctx) -> Result<R> + Sync,
    R: Send,
{
    Spmd::new(n).run(f)
}

/// To which cores the ranks of a block are bound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Bind {
    /// To none: the system decides.
    #[default]
    None,
    /// Rank i to the i-th of the cores that this process may use, over again where there are
    /// more ranks.
    Cores,
    /// Rank i to the i-th of these cores, over again where there are more ranks.
    List(Vec<usize>),
    /// Rank i to the i-th of these sets of cores, over again where there are more ranks.
    Sets(Vec<Vec<usize>>),
}

/// Sets up a block.
///
/// ```
/// # use spmd_core::{Spmd, Result};
/// let shares = vec![vec![1, 2], vec![3]];
/// let sums = Spmd::new(2).virtual_ranks().run_with(shares, |_ctx, share| {
///     Ok(share.iter().sum::<i32>())
/// })?;
/// assert_eq!(sums, [3, 3]);
/// # Ok::<(), spmd_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Spmd {
    ranks: usize,
    mode: Option<Mode>,
    stack_size: Option<usize>,
    workers: Option<usize>,
    timeout: Option<Duration>,
    name: String,
    bind: Bind,
    forced: Vec<(String, String)>,
    segment: Option<usize>,
    unreachable: bool,
}

impl Spmd {
    /// A block of `ranks` ranks: threads, unless `SPMD_AS` says otherwise.
    pub fn new(ranks: usize) -> Spmd {
        Spmd {
            ranks,
            mode: None,
            stack_size: None,
            workers: None,
            timeout: None,
            name: "rank".into(),
            bind: Bind::None,
            forced: Vec::new(),
            segment: None,
            unreachable: false,
        }
    }

    /// Ranks are OS threads.
    pub fn threads(mut self) -> Spmd {
        self.mode = Some(Mode::Threads);
        self
    }

    /// Ranks are coroutines on a few worker threads: thousands fit on a laptop. What such a rank
    /// may not do: hold an OS lock (a `MutexGuard`) across a call of this library, or rely on
    /// thread-locals, which it shares with other ranks.
    pub fn virtual_ranks(mut self) -> Spmd {
        self.mode = Some(Mode::Virtual);
        self
    }

    /// Bytes of stack of each rank. Without it: `SPMD_STACK_SIZE`, else 1 MiB for a virtual rank
    /// and Rust's default for a thread.
    pub fn stack_size(mut self, bytes: usize) -> Spmd {
        self.stack_size = Some(bytes);
        self
    }

    /// Worker threads of virtual ranks. Without it: the cores that this process may use.
    pub fn workers(mut self, workers: usize) -> Spmd {
        self.workers = Some(workers);
        self
    }

    /// How long a call may wait. Without it: `SPMD_TIMEOUT` in seconds, else for ever.
    pub fn timeout(mut self, limit: Duration) -> Spmd {
        self.timeout = Some(limit);
        self
    }

    /// What ranks are called in panic messages and debuggers: `name 3`. Without it: `rank 3`.
    pub fn name(mut self, name: impl Into<String>) -> Spmd {
        self.name = name.into();
        self
    }

    /// Binds ranks (virtual ranks: their workers) to cores. Linux only; elsewhere ignored.
    pub fn bind(mut self, bind: Bind) -> Spmd {
        self.bind = bind;
        self
    }

    /// Uses this algorithm for this call wherever it can serve: `force("allreduce", "tree")`.
    pub fn force(mut self, call: impl Into<String>, algorithm: impl Into<String>) -> Spmd {
        self.forced.push((call.into(), algorithm.into()));
        self
    }

    /// Bytes of a segment, where large data go through staging areas.
    pub fn segment(mut self, bytes: usize) -> Spmd {
        self.segment = Some(bytes);
        self
    }

    /// Ranks take each other's buffers for unreachable and what comes from others for unchecked,
    /// as ranks in processes of their own must: for tests of these paths.
    #[doc(hidden)]
    pub fn unreachable_buffers(mut self) -> Spmd {
        self.unreachable = true;
        self
    }

    /// Runs `f` on every rank; results in rank order. Errors: as [`spmd`].
    #[track_caller]
    pub fn run<R, F>(self, f: F) -> Result<Vec<R>>
    where
        F: Fn(&Ctx) -> Result<R> + Sync,
        R: Send,
    {
        self.run_at(Location::caller(), None, f)
    }

    /// [`Spmd::run`], called at `site`, in an arena that the launcher has made, if one is given.
    pub(crate) fn run_at<R, F>(
        self,
        site: &'static Location<'static>,
        memory: Option<Memory>,
        f: F,
    ) -> Result<Vec<R>>
    where
        F: Fn(&Ctx) -> Result<R> + Sync,
        R: Send,
    {
        let shares = vec![(); self.ranks];
        self.run_all(site, memory, shares, |ctx, ()| f(ctx))
    }

    /// Runs `f` on every rank, the i-th share going to rank i; results in rank order.
    ///
    /// Errors: as [`spmd`]; the number of shares is not the number of ranks.
    #[track_caller]
    pub fn run_with<A, R, F>(self, shares: Vec<A>, f: F) -> Result<Vec<R>>
    where
        F: Fn(&Ctx, A) -> Result<R> + Sync,
        A: Send,
        R: Send,
    {
        self.run_all(Location::caller(), None, shares, f)
    }

    fn run_all<A, R, F>(
        self,
        site: &'static Location<'static>,
        memory: Option<Memory>,
        shares: Vec<A>,
        f: F,
    ) -> Result<Vec<R>>
    where
        F: Fn(&Ctx, A) -> Result<R> + Sync,
        A: Send,
        R: Send,
    {
        let n = self.ranks;
        if n == 0 {
            return Err(Error::Argument("a block needs at least one rank".into()));
        }
        if shares.len() != n {
            let given = shares.len();
            return Err(Error::Argument(format!("{given} shares were given for {n} ranks")));
        }
        let settings = boot::Settings::from_environment()?;
        let mode = self.mode.or(settings.mode).unwrap_or(Mode::Threads);
        let cores = settings.cores.unwrap_or_else(wait::cores);
        let policy = Policy::new(cores, 0);
        let timeout = self.timeout.or(settings.timeout);
        let heap_bytes = if self.unreachable { 64 << 20 } else { 0 };
        let own = || Memory::anonymous(Layout::anonymous(n, heap_bytes));
        let memory = memory.map_or_else(own, Ok)?;
        let mut tuning = settings.tuning;
        for (call, algorithm) in &self.forced {
            boot::check_forced(call, algorithm).map_err(Error::Argument)?;
        }
        tuning.forced.splice(0..0, self.forced.iter().cloned());
        tuning.segment = self.segment.unwrap_or(tuning.segment).max(64);
        tuning.unreachable = self.unreachable;
        let world = Arc::new(World::new(memory, mode, policy, timeout, tuning));
        let ends: Vec<_> =
            (0..n).map(|rank| Arc::new(Endpoint::new(world.clone(), rank))).collect();
        let shares: Vec<_> = shares.into_iter().map(|share| Mutex::new(Some(share))).collect();
        let results: Vec<_> = (0..n).map(|_| Mutex::new(None)).collect();
        let body = |rank: usize| {
            let share = shares[rank].lock().take().expect("each rank starts once");
            let result = run_rank(&ends[rank], 1, |ctx| f(ctx, share));
            *results[rank].lock() = Some(result.unwrap_or_else(|panic| {
                Err(Error::Panicked { rank, message: panic_text(&*panic) })
            }));
        };
        match mode {
            Mode::Virtual => self.run_virtual(settings.stack_size, cores, &body)?,
            _ => self.run_threads(&world, settings.stack_size, &body)?,
        }
        let results = results.into_iter().map(|slot| slot.into_inner().expect("every rank ended"));
        let values = first_cause(&world, results.collect())?;
        world.check_calls(1, &Call::new(Kind::End, site))?;
        for end in &ends {
            check_all_received(end, |_| true)?;
        }
        Ok(values)
    }

    fn run_threads(
        &self,
        world: &World,
        stack: Option<usize>,
        body: &(dyn Fn(usize) + Sync),
    ) -> Result<()> {
        let n = self.ranks;
        let cores = self.cores();
        let finished = Finished::new();
        std::thread::scope(|scope| {
            for rank in 0..n {
                let mut thread = std::thread::Builder::new().name(format!("{} {rank}", self.name));
                if let Some(bytes) = self.stack_size.or(stack) {
                    thread = thread.stack_size(bytes);
                }
                let cores = cores.get(rank % cores.len().max(1)).cloned().unwrap_or_default();
                let finished = &finished;
                let running = Running::new();
                let spawned = thread.spawn_scoped(scope, move || {
                    let _running = running;
                    bind_to(&cores);
                    body(rank);
                    finished.one_more();
                });
                if let Err(error) = spawned {
                    // The ranks that do run are told, and end.
                    let cause =
                        Cause::Returned(format!("its thread could not be started: {error}"));
                    world.raise(Reach::Rank { rank, block: 1 }, &Fault::Rank { rank, cause });
                    finished.wait_for(rank);
                    return Err(Error::system(format!("starting thread {rank} of {n}"), error));
                }
            }
            finished.wait_for(n);
            Ok(())
        })
    }

    fn run_virtual(
        &self,
        stack: Option<usize>,
        cores: usize,
        body: &(dyn Fn(usize) + Sync),
    ) -> Result<()> {
        let bound = self.cores();
        let workers = self.workers.unwrap_or(cores).clamp(1, self.ranks);
        let mut options = fleet::FleetOptions::new(self.ranks, workers);
        options.stack_size = self.stack_size.or(stack).unwrap_or(fleet::DEFAULT_STACK_SIZE);
        options.name = format!("{} worker ", self.name);
        options.bind = Box::new(move |worker| {
            bind_to(bound.get(worker % bound.len().max(1)).map_or(&[], Vec::as_slice));
        });
        let finished = Finished::new();
        let _running: Vec<Running> = (0..workers).map(|_| Running::new()).collect();
        let panics = fleet::run(&options, body, &|| finished.one_more(), |_| finished.wait_for(1))?;
        // `body` catches what a rank's own code does; what is left is a rank without a stack.
        match panics.into_iter().flatten().next() {
            Some(panic) => Err(Error::User(panic_text(&*panic).into())),
            None => Ok(()),
        }
    }

    fn cores(&self) -> Vec<Vec<usize>> {
        let each = |cores: &[usize]| cores.iter().map(|core| vec![*core]).collect();
        match &self.bind {
            Bind::None => Vec::new(),
            Bind::Cores => each(&allowed_cores()),
            Bind::List(cores) => each(cores),
            Bind::Sets(sets) => sets.clone(),
        }
    }
}

/// Ranks that have ended, and the agent that waits for them.
struct Finished {
    count: AtomicUsize,
    word: crate::sync::atomic::AtomicU32,
    opener: Option<fleet::Home>,
}

impl Finished {
    fn new() -> Finished {
        let opener = fleet::current();
        Finished {
            count: AtomicUsize::new(0),
            word: crate::sync::atomic::AtomicU32::new(0),
            opener,
        }
    }

    fn bell(&self) -> wait::Bell<'_> {
        wait::Bell::new(&self.word, self.opener.as_ref())
    }

    fn one_more(&self) {
        self.count.fetch_add(1, AcqRel);
        self.bell().ring();
    }

    fn wait_for(&self, ranks: usize) {
        // A helper thread of a rank may hold a communicator and open a block; then some are alive.
        let alone = ctx::current().is_null() && comm::extra_comms() == 0;
        let _opener = wait::Opener::new(alone);
        wait::until_done(self.bell(), || self.count.load(Acquire) >= ranks);
    }
}

/// What a rank does: enter the block, run the program's closure, leave the block, telling the
/// others how it went. A panic is given back as the error side.
pub(crate) fn run_rank<R>(
    endpoint: &Arc<Endpoint>,
    block: u32,
    f: impl FnOnce(&Ctx) -> Result<R>,
) -> std::thread::Result<Result<R>> {
    let (world, rank) = (&endpoint.world, endpoint.rank);
    world.settle(rank);
    world.set_state(rank, block, state::INSIDE);
    note_panics();
    let ctx = Ctx::new(endpoint.clone(), block);
    let entered = ctx.enter();
    let outcome = catch_unwind(AssertUnwindSafe(|| f(&ctx)));
    drop(entered);
    drop(ctx);
    let own = |cause| Some(Fault::Rank { rank, cause });
    let fault = match &outcome {
        Ok(Ok(_)) => None,
        // What stopped this rank also stops those that wait for it on other communicators.
        Ok(Err(error)) => error
            .fault()
            .filter(|fault| world.has_recorded(fault))
            .cloned()
            .or_else(|| own(Cause::Returned(error.to_string()))),
        Err(panic) => own(Cause::Panicked(panic_text(&**panic))),
    };
    let left = if let Some(fault) = fault {
        world.raise(Reach::Rank { rank, block }, &fault);
        state::FAILED
    } else {
        state::LEFT
    };
    if world.mode == Mode::Processes {
        // The board of the next block, which was that of the one before this: all have left it.
        endpoint.clear_board(((block + 1) % 2) as usize);
    }
    world.set_state(rank, block, left);
    outcome
}

/// All values, or the error of the rank that failed first.
fn first_cause<R>(world: &World, mut results: Vec<Result<R>>) -> Result<Vec<R>> {
    if results.iter().all(|result| result.is_ok()) {
        return results.into_iter().collect();
    }
    let first = world.first_fault(|_| true).and_then(|fault| fault.rank());
    let failed = first.filter(|rank| results[*rank].is_err());
    let failed = failed.or_else(|| results.iter().position(|result| result.is_err()));
    match results.swap_remove(failed.expect("a result is an error")) {
        Err(error) => Err(error),
        Ok(_) => unreachable!("it was just seen to be an error"),
    }
}

/// Complains about messages that nobody has received.
pub(crate) fn check_all_received(
    endpoint: &Endpoint,
    concerns: impl Fn(u64) -> bool,
) -> Result<()> {
    let Some((count, first)) = endpoint.unreceived(concerns)? else { return Ok(()) };
    let table = endpoint.world.memory.text(first.source as usize);
    Err(Error::Unreceived {
        rank: endpoint.rank,
        count,
        from: first.source as usize,
        tag: first.tag,
        len: first.count as usize,
        sent_at: format!("{}:{}", table.get(first.file), first.line),
    })
}

/// Cores that this process may use.
#[cfg(target_os = "linux")]
pub(crate) fn allowed_cores() -> Vec<usize> {
    let set = rustix::thread::sched_getaffinity(None).unwrap_or_default();
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect()
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn allowed_cores() -> Vec<usize> {
    Vec::new()
}

/// Binds the calling thread to these cores; none, or some that it may not use, are ignored, as
/// binding is only about speed.
fn bind_to(cores: &[usize]) {
    #[cfg(target_os = "linux")]
    if !cores.is_empty() {
        let mut set = rustix::thread::CpuSet::new();
        let known = cores.iter().filter(|core| **core < rustix::thread::CpuSet::MAX_CPU);
        known.for_each(|core| set.set(*core));
        let _ = rustix::thread::sched_setaffinity(None, &set);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = cores;
}
