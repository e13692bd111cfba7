//! Running a block in this process: its ranks on threads or coroutines, and its outcome.

use std::panic::Location;
use std::sync::Arc;

use parking_lot::Mutex;

use super::finished::{Ended, Finished};
use super::{Arena, Shared, Spmd, Work, check_all_received, run_rank};
use crate::affinity::{Bind, allowed_cores, bind_to};
use crate::algorithm::find;
use crate::call::{Call, Kind};
use crate::comm::IN_OPERATION;
use crate::comm::beyond::Beyond;
use crate::ctx::Ctx;
use crate::error::{Error, Panicked, Reentrant, Result};
use crate::fault::{Cause, Fault};
use crate::known::warn_of_unknown;
use crate::mode::Mode;
use crate::panics::{discard, panic_text};
use crate::plane::Planes;
use crate::settings::{Settings, measured, trace};
use crate::transport::shared::contexts::RANK_BITS;
use crate::transport::shared::layout::ArenaLayout;
use crate::transport::shared::memory::Memory;
use crate::transport::shared::{CombiningBarrier, Endpoint, FaultScope, World};
use crate::wait::{self, Fences, Policy, RankThread, scheduler};

/// The most ranks of a block: their numbers are parts of larger ones.
const MAX_RANKS: usize = 1 << RANK_BITS;

impl Spmd {
    /// Runs `f` on all ranks of this process, each with its share; what they return, in order.
    pub(super) fn run_all<A, R, F>(
        self,
        site: &'static Location<'static>,
        arena: Arena,
        shares: Vec<A>,
        f: F,
    ) -> Result<Vec<R>>
    where
        F: Fn(&Ctx, A) -> Result<R> + Sync,
        A: Send,
        R: Send,
    {
        self.check(site, &arena, shares.len())?;
        let shared = Shared::new(shares, f);
        self.run_work(site, arena, &shared)?;
        Ok(shared.results())
    }

    /// Refuses what cannot run.
    fn check(&self, site: &'static Location<'static>, arena: &Arena, shares: usize) -> Result<()> {
        let n = self.ranks;
        if wait::is_in_operation() {
            let (call, meanwhile) = (format!("spmd at {site}"), IN_OPERATION);
            return Err(Error::Reentrant(Box::new(Reentrant { call, meanwhile })));
        }
        if scheduler::in_coroutine() && std::thread::panicking() {
            let why = "a virtual rank that is panicking cannot wait for a block; don't open one in \
                       Drop";
            return Err(Error::misuse("spmd", site, why));
        }
        if n == 0 {
            return Err(Error::misuse("spmd", site, "a block needs at least one rank"));
        }
        if self.name.contains('\0') {
            let why = format!("no thread can be named {:?}, which contains a NUL", self.name);
            return Err(Error::misuse("spmd", site, why));
        }
        let total = arena.cluster().map_or(n, |cluster| cluster.size());
        if total > MAX_RANKS {
            let why = format!("a block has at most {MAX_RANKS} ranks, not {total}");
            return Err(Error::misuse("spmd", site, why));
        }
        if shares != n {
            let why = format!("{shares} shares were given for {n} ranks");
            return Err(Error::misuse("spmd", site, why));
        }
        Ok(())
    }

    fn run_work(
        self,
        site: &'static Location<'static>,
        arena: Arena,
        work: &dyn Work,
    ) -> Result<()> {
        let n = self.ranks;
        let cluster = arena.cluster().cloned();
        let total = cluster.as_ref().map_or(n, |cluster| cluster.size());
        warn_of_unknown();
        let settings = Settings::from_environment()?;
        let mode = self.mode.or(settings.mode).unwrap_or(Mode::Threads);
        if mode == Mode::Threads {
            check_threads(n)?;
        }
        let cores = settings.cores.unwrap_or_else(wait::cores);
        let beside = cluster.as_ref().map_or(1, |cluster| cluster.processes_beside());
        let workers = self.workers.unwrap_or(cores / beside).clamp(1, n);
        let threads = if mode == Mode::Virtual { workers } else { n };
        let elsewhere = (beside - 1) * threads;
        let alone = mode == Mode::Threads && n <= cores;
        let policy = Policy::new(cores, elsewhere).with(Fences::new(false, alone));
        let policy = policy.progressing(self.progress.unwrap_or(settings.progress));
        let timeout = self.timeout.or(settings.timeout);
        let heap_bytes = if self.unreachable { 64 << 20 } else { 0 };
        let memory = match arena {
            Arena::Given(memory) => memory,
            _ => Memory::anonymous(ArenaLayout::anonymous(total, heap_bytes))?,
        };
        let segment = self.segment.map(|bytes| bytes.max(64)).or(settings.segment);
        let resources = self.resources.as_deref().map(str::parse).transpose();
        let resources = resources
            .map_err(|why: String| Error::misuse("spmd", site, format!("resources: {why}")))?;
        let mut tuning = settings.tuning.with(measured(mode, total)?, segment);
        for (call, algorithm) in &self.forced {
            let (kind, forced) = find(call.name(), algorithm.name()).map_err(|why| {
                Error::misuse("spmd", site, format!("force({call:?}, {algorithm:?}): {why}"))
            })?;
            tuning.forced.force(kind, forced);
        }
        tuning.trace = match &cluster {
            Some(cluster) => cluster.trace().cloned(),
            None => trace()?,
        };
        tuning.unreachable = self.unreachable;
        tuning.chaos = self.chaos.or(tuning.chaos);
        let settled = cluster.as_ref().map(|cluster| cluster.window());
        tuning.window = self.window.or(settled).unwrap_or(tuning.window);
        let combining =
            (mode == Mode::Virtual && cluster.is_none()).then(|| CombiningBarrier::new(n, workers));
        let local = cluster.as_ref().map(|cluster| cluster.local());
        let simulated = cluster.as_ref().and_then(|cluster| cluster.fabric.simulated());
        let world = World::new(memory, mode, policy, timeout, tuning, combining, local);
        let world = world.simulated(simulated).with(resources);
        let world = Arc::new(world);
        let offload = Planes::of(&self.planes);
        let beyond = Arc::new(Beyond { cluster: cluster.clone(), offload });
        let ends: Vec<_> =
            world.local().map(|rank| Arc::new(Endpoint::new(world.clone(), rank))).collect();
        cluster.iter().for_each(|cluster| cluster.enter(&world));
        let results: Vec<_> = (0..n).map(|_| Mutex::new(None)).collect();
        let body = |index: usize| {
            let result = run_rank(&ends[index], &beyond, 1, work, index, site);
            let rank = ends[index].rank;
            *results[index].lock() = Some(result.unwrap_or_else(|panic| {
                let message = panic_text(&*panic);
                discard(panic);
                Err(Error::Panicked(Box::new(Panicked { rank, message })))
            }));
        };
        match mode {
            // The only rank of this process, which is not to differ from a process rank.
            Mode::Threads if n == 1 && cluster.is_some() => {
                let _running = RankThread::new(&world.running);
                body(0);
            }
            Mode::Virtual => self.run_virtual(&world, settings.stack_size, workers, &body)?,
            _ => self.run_threads(&world, settings.stack_size, &body)?,
        }
        let results = results.into_iter().map(|slot| slot.into_inner().expect("every rank ended"));
        let outcome = first_cause(&world, results.collect());
        if let Some(cluster) = &cluster {
            match &outcome {
                Ok(()) => cluster.finish(&world, 1, &Call::new(Kind::End, site))?,
                Err(error) => cluster.give_up(error),
            }
        }
        outcome?;
        let end = Call::new(Kind::End, site);
        for rank in ends.iter().filter(|_| cluster.as_ref().is_some_and(|it| it.survives())) {
            rank.miss_nobody(1, &end)?;
        }
        if !ends.iter().any(|end| end.has_lost()) {
            world.check_calls(1, &end).or_else(|differ| {
                // What stopped the block's communicator comes before what differs because of it.
                ends.iter().try_for_each(|rank| rank.miss_nobody(1, &end)).and(Err(differ))
            })?;
        }
        for end in &ends {
            check_all_received(end, 1)?;
        }
        Ok(())
    }

    fn run_threads(
        &self,
        world: &World,
        stack: Option<usize>,
        body: &(dyn Fn(usize) + Sync),
    ) -> Result<()> {
        let n = self.ranks;
        let (cores, first) = (self.cores(), world.local().start);
        let finished = Finished::new();
        std::thread::scope(|scope| {
            for index in 0..n {
                let rank = first + index;
                let mut thread = std::thread::Builder::new().name(format!("{} {rank}", self.name));
                if let Some(bytes) = self.stack_size.or(stack) {
                    thread = thread.stack_size(bytes);
                }
                let cores = cores.get(index % cores.len().max(1)).cloned().unwrap_or_default();
                let finished = &finished;
                let running = RankThread::new(&world.running);
                let spawned = thread.spawn_scoped(scope, move || {
                    let _running = running;
                    let _ended = Ended(finished);
                    bind_to(&cores);
                    body(index);
                });
                if let Err(error) = spawned {
                    // The ranks that do run are told, and end.
                    let cause =
                        Cause::Returned(format!("its thread could not be started: {error}"));
                    world.raise(FaultScope::Rank { rank, block: 1 }, &Fault::Rank { rank, cause });
                    finished.wait_for(index);
                    return Err(Error::system(
                        format!(
                            "starting thread {rank} of {n} (fewer ranks or a smaller stack may help)"
                        ),
                        error,
                    ));
                }
            }
            finished.wait_for(n);
            Ok(())
        })
    }

    fn run_virtual(
        &self,
        world: &Arc<World>,
        stack: Option<usize>,
        workers: usize,
        body: &(dyn Fn(usize) + Sync),
    ) -> Result<()> {
        let bound = self.cores();
        let mut options = scheduler::SchedulerOptions::new(self.ranks, workers);
        options.stack_size = self.stack_size.or(stack).unwrap_or(scheduler::DEFAULT_STACK_SIZE);
        options.name = format!("{} worker ", self.name);
        // Each counts until its thread ends, which may be before the block does.
        let count = |_| Mutex::new(Some(RankThread::new(&world.running)));
        let running: Vec<_> = (0..workers.clamp(1, self.ranks)).map(count).collect();
        options.bind = Box::new(move |worker| {
            bind_to(bound.get(worker % bound.len().max(1)).map_or(&[], Vec::as_slice));
            Box::new(running[worker].lock().take())
        });
        let shared = world.clone();
        options.missing = Box::new(move |index| {
            let rank = shared.local().start + index;
            let cause = Cause::Returned("the system gave it no stack".into());
            shared.raise(FaultScope::Rank { rank, block: 1 }, &Fault::Rank { rank, cause });
        });
        let finished = Finished::new();
        if !world.policy.has_cores_for(workers) {
            options.spins = 0;
        }
        let panics =
            scheduler::run(&options, body, &|| finished.one_more(), |_| finished.wait_for(1))?;
        // `body` catches what a rank's own code does; what is left is a rank without a stack.
        match panics.into_iter().flatten().next() {
            Some(panic) => Err(panic_text(&*panic).into()),
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

/// Refuses more threads than fit into a process.
fn check_threads(n: usize) -> Result<()> {
    let most = most_threads();
    if n <= most {
        return Ok(());
    }
    Err(Error::unavailable(
        format!("a block of {n} thread ranks"),
        format!("a process has address ranges for about {most} threads"),
        "use virtual ranks, or fewer; the system's limit is vm.max_map_count".into(),
    ))
}

/// How many threads fit into a process, beyond which the standard library aborts it. Each has a
/// stack and one for signals, with a guard before each of them: four address ranges.
#[cfg(target_os = "linux")]
fn most_threads() -> usize {
    let limit = std::fs::read_to_string("/proc/sys/vm/max_map_count");
    let limit = limit.ok().and_then(|text| text.trim().parse::<usize>().ok()).unwrap_or(65_530);
    // Some are for everything else.
    (limit - limit / 16) / 4
}

#[cfg(not(target_os = "linux"))]
fn most_threads() -> usize {
    usize::MAX
}

/// The error of the rank that failed first, if one has.
fn first_cause(world: &World, mut results: Vec<Result<()>>) -> Result<()> {
    if results.iter().all(|result| result.is_ok()) {
        return Ok(());
    }
    let first = world.faults().first().and_then(|(_, fault)| fault.rank());
    let first = first.and_then(|rank| rank.checked_sub(world.local().start));
    let failed = first.filter(|index| results.get(*index).is_some_and(Result::is_err));
    let failed = failed.or_else(|| results.iter().position(|result| result.is_err()));
    results.swap_remove(failed.expect("a result is an error"))
}
