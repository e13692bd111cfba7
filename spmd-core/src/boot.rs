//! How a process becomes a rank: what the launcher puts into its environment, the arena that both
//! map, and the settings that users give through `SPMD_*` variables.

use std::panic::Location;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::block::Spmd;
use crate::block::{Arena, Shared, Work, check_all_received, run_rank};
use crate::comm::beyond::Beyond;
use crate::ctx::Ctx;
pub use crate::environment::{NCCL, PROTOCOL, variables};
use crate::environment::{positive, variable};
use crate::error::{Error, Result};
use crate::plane::{Plane, Planes};
pub use crate::resources::Resources;
use crate::settings::Settings;
pub use crate::settings::{begin_trace, tuned};
pub use crate::transport::cluster::{Alarm, NOT_STARTED, raise_alarm};
use crate::transport::fabric::Fabric;
use crate::transport::shared::Endpoint;
use crate::wait;

#[cfg(target_os = "linux")]
mod job;
mod process;
#[cfg(target_os = "linux")]
pub use job::Job;
pub use process::Process;

/// What this process is to the launcher.
enum LaunchRole {
    /// There is none, or one that cannot see into the process.
    SingleRank,
    /// It runs all ranks.
    #[cfg(target_os = "linux")]
    All(job::VisibleArena),
    /// It runs so many ranks of a world that lives in several processes.
    Cluster(Process),
    /// It is one rank.
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "it needs Linux"))]
    Rank(LaunchedPlace),
}

/// This process's place in the launcher's world: its end, and how many blocks it has entered.
struct LaunchedPlace {
    endpoint: Arc<Endpoint>,
    blocks: Mutex<u32>,
}

static ENTRY: OnceLock<std::result::Result<LaunchRole, String>> = OnceLock::new();

/// Runs `f` on the ranks of the launched world that this process hosts, and gives their results:
/// one under `spmdrun` with process ranks, all with thread or virtual ranks, and one, rank 0 of
/// 1, without a launcher. A program may enter the world several times, on all ranks. It is an error
/// on a rank, of whichever block and with or without a launcher: a rank opens blocks of its own
/// with [`spmd`](crate::spmd()).
///
/// It returns when all ranks have left the block, so that nothing is still on the way: on a rank
/// that has failed, or was stopped, at once. Such a rank can enter the world again, as all do whose
/// failure was dealt with: it then waits until the others have left the block before.
///
/// Errors: that of this process's rank, or what stopped it; messages that nobody received; the
/// launcher's environment cannot be used. A panic of a process rank goes on as a panic.
///
/// ```
/// use spmd::prelude::*;
///
/// fn main() -> Result<()> {
///     run(|ctx| {
///         println!("rank {} of {}", ctx.rank(), ctx.size());
///         Ok(())
///     })?;
///     Ok(())
/// }
/// ```
#[track_caller]
pub fn run<R, F>(f: F) -> Result<Vec<R>>
where
    F: Fn(&Ctx) -> Result<R> + Sync,
    R: Send,
{
    run_with(|| Ok(None), &[], f)
}

/// Finds what joins this process to others, if something does.
pub type Attach = fn() -> Result<Option<Arc<dyn Fabric>>>;

/// [`run`] where `attach` finds what joins this process to others, if it was not started by
/// `spmdrun` alone, and `planes` carry out what they serve.
#[doc(hidden)]
#[track_caller]
pub fn run_with<R, F>(attach: Attach, planes: &[Arc<dyn Plane>], f: F) -> Result<Vec<R>>
where
    F: Fn(&Ctx) -> Result<R> + Sync,
    R: Send,
{
    let site = Location::caller();
    let with_planes = |block: Spmd| planes.iter().cloned().fold(block, Spmd::plane);
    if !wait::current().is_null() {
        return Err(entered_twice());
    }
    match entered(attach) {
        Ok(LaunchRole::Rank(place)) => {
            let shared = Shared::new(vec![()], |ctx: &Ctx, ()| f(ctx));
            run_as_process(place, planes, &shared, site)?;
            Ok(shared.results())
        }
        #[cfg(target_os = "linux")]
        Ok(LaunchRole::All(shown)) => {
            let arena = shown.memory()?.map_or(Arena::Own, Arena::Given);
            with_planes(alone()?).run_at(site, arena, f)
        }
        Ok(LaunchRole::Cluster(process)) => {
            let block = process.block().bind(Settings::from_environment()?.bind);
            process.run_at(site, with_planes(block), f)
        }
        Ok(LaunchRole::SingleRank) => with_planes(alone()?).run_at(site, Arena::Own, f),
        Err(text) => Err(Error::boot(text.clone())),
    }
}

/// Where this process is, found out when it is first asked for.
fn entered(attach: Attach) -> &'static Result<LaunchRole, String> {
    ENTRY.get_or_init(|| {
        enter(attach).map_err(|error| match error {
            Error::Boot(boot) => boot.text,
            other => other.to_string(),
        })
    })
}

/// A block of all ranks, where they live in this process alone.
///
/// Errors: the environment cannot be used, or wants several processes.
fn alone() -> Result<Spmd> {
    let settings = Settings::from_environment()?;
    let several = settings.ranks.filter(|ranks| *ranks > 1);
    if let (Some(ranks), Some("processes")) = (several, variable(variables::AS)?.as_deref()) {
        let (name, kind) = (variables::RANKS, variables::AS);
        return Err(Error::boot(format!(
            "{name}={ranks} gives a process that runs alone its ranks, which are no processes as \
             {kind} says; start them by `spmdrun --ranks {ranks}`, or set {kind} to threads or virtual"
        )));
    }
    Ok(Spmd::new(settings.ranks.unwrap_or(1)).bind(settings.bind))
}

/// The world that this fabric joins, where there is one.
fn enter_cluster(attach: Attach) -> Result<LaunchRole> {
    let each = positive(variables::RANKS_PER_PROCESS, "a number of ranks")?.unwrap_or(1);
    wait::starting_own_threads(|| match attach()? {
        None => Ok(LaunchRole::SingleRank),
        Some(fabric) => Process::join(fabric, each).map(LaunchRole::Cluster),
    })
}

/// This process with so many ranks, unless it is one of several that were started together: each of
/// them would be a world of its own.
#[cfg(target_os = "linux")]
fn enter_alone(attach: Attach, ranks: usize) -> Result<LaunchRole> {
    let processes = attach()?.map_or(1, |fabric| fabric.processes());
    if processes == 1 {
        return Ok(LaunchRole::SingleRank);
    }
    let (name, each) = (variables::RANKS, variables::RANKS_PER_PROCESS);
    Err(Error::boot(format!(
        "{name}={ranks} gives a process that runs alone its ranks, but this is one of {processes} that \
         a launcher has started together; unset {name}, and say by {each} how many ranks each of them \
         has"
    )))
}

#[cfg(target_os = "linux")]
fn enter(attach: Attach) -> Result<LaunchRole> {
    if let Some(ranks) = Settings::from_environment()?.ranks {
        return match job::VisibleArena::find(ranks)? {
            Some(shown) => Ok(LaunchRole::All(shown)),
            None => enter_alone(attach, ranks),
        };
    }
    let endpoint = job::attach()?.map(Arc::new);
    let place = |endpoint| LaunchRole::Rank(LaunchedPlace { endpoint, blocks: Mutex::new(0) });
    endpoint.map_or_else(|| enter_cluster(attach), |endpoint| Ok(place(endpoint)))
}

#[cfg(not(target_os = "linux"))]
fn enter(attach: Attach) -> Result<LaunchRole> {
    match variable(variables::ARENA)? {
        None => enter_cluster(attach),
        Some(_) => Err(Error::unavailable(
            "a world of process ranks".into(),
            "this system is not Linux".into(),
            "use spmdrun --as threads or --as virtual".into(),
        )),
    }
}

/// A rank is in the world, or in a block that is its own.
fn entered_twice() -> Error {
    let why = "spmd::run was called inside the world that it enters; a block within a rank is \
               opened with spmd(n, ..)";
    Error::argument(why.into())
}

fn run_as_process(
    place: &LaunchedPlace,
    planes: &[Arc<dyn Plane>],
    work: &dyn Work,
    site: &'static Location<'static>,
) -> Result<()> {
    let Some(mut blocks) = place.blocks.try_lock() else {
        return Err(entered_twice());
    };
    let (endpoint, block) = (&place.endpoint, *blocks + 1);
    let _running = wait::RankThread::new(&endpoint.world.running);
    endpoint.wait_for_the_block_before(block, site)?;
    *blocks = block;
    let beyond = Arc::new(Beyond { cluster: None, offload: Planes::of(planes) });
    match run_rank(endpoint, &beyond, block, work, 0, site) {
        Ok(result) => result?,
        Err(panic) => std::panic::resume_unwind(panic),
    }
    endpoint.wait_for_the_end(block, site)?;
    // What comes from here on, with the others gone from the block, was never to be received.
    check_all_received(endpoint, block)
}
