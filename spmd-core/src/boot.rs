//! How a process becomes a rank: what the launcher puts into its environment, the arena that both
//! map, and the settings that users give through `SPMD_*` variables.

use std::panic::Location;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;

use crate::block::{Arena, Shared, Work, check_all_received, run_rank};
use crate::ctx::Ctx;
use crate::error::{Error, Result};
use crate::plane::Plane;
pub use crate::transport::across::Alarm;
use crate::transport::across::{Across, Joined};
use crate::transport::fabric::Fabric;
use crate::transport::shared::{Endpoint, Mode, Tuning};
use crate::wait;
use crate::{Bind, Spmd};

#[cfg(target_os = "linux")]
mod job;
mod tuning;
#[cfg(target_os = "linux")]
pub use job::Job;
pub(crate) use tuning::measured;
pub use tuning::{begin_trace, tuned};

/// The version of what launcher and program say to each other.
pub const PROTOCOL: u32 = 2;

/// Names of the variables that the launcher sets for a rank.
pub mod variables {
    /// The rank of a process rank.
    pub const RANK: &str = "SPMD_RANK";
    /// How many ranks the job has.
    pub const SIZE: &str = "SPMD_SIZE";
    /// The file descriptor of the arena.
    pub const ARENA: &str = "SPMD_ARENA_FD";
    /// [`super::PROTOCOL`] of the launcher.
    pub const PROTOCOL: &str = "SPMD_PROTOCOL";
    /// How many ranks a process runs that is the whole job.
    pub const RANKS: &str = "SPMD_RANKS";
    /// What joins ranks: `shm` or `mpi`.
    pub const TRANSPORT: &str = "SPMD_TRANSPORT";
    /// Ranks of each process of a world that lives in several.
    pub const RANKS_PER_PROCESS: &str = "SPMD_RANKS_PER_PROCESS";
    /// Where ranks run: `threads` or `virtual`.
    pub const AS: &str = "SPMD_AS";
    /// How long a call may wait, in seconds.
    pub const TIMEOUT: &str = "SPMD_TIMEOUT";
    /// Bytes of stack of each rank.
    pub const STACK_SIZE: &str = "SPMD_STACK_SIZE";
    /// Cores that the job's ranks share.
    pub const CORES: &str = "SPMD_CORES";
    /// The cores of each thread rank, `0-1;2-3`.
    pub const CPUS: &str = "SPMD_CPUS";
    /// Algorithms to use, `allreduce=tree,reduce=chunked`.
    pub const FORCE: &str = "SPMD_FORCE";
    /// Bytes of the arena for each process rank.
    pub const ARENA_SIZE: &str = "SPMD_ARENA_SIZE";
    /// Bytes of a segment, where large data go through staging areas.
    pub const SEGMENT: &str = "SPMD_SEGMENT";
    /// A file of what was measured, by `spmd-perf tune`.
    pub const TUNING: &str = "SPMD_TUNING";
    /// What that file says of this job's process ranks.
    pub const TUNED: &str = "SPMD_TUNED";
    /// Bytes of messages that a rank keeps from each other one before it has received them.
    pub const WINDOW: &str = "SPMD_WINDOW";
    /// Large messages between processes: `1` reads them through the kernel.
    pub const SINGLE_COPY: &str = "SPMD_SINGLE_COPY";
    /// `1`: libraries beneath must not fold in an order of their own.
    pub const REPRODUCIBLE: &str = "SPMD_REPRODUCIBLE";
    /// `1`: ranks of different processes compare each call before they make it.
    pub const CHECK: &str = "SPMD_CHECK";
    /// A file to which every call is written down.
    pub const TRACE: &str = "SPMD_TRACE";
    /// Where `spmdrun` hears what has stopped a job under an MPI launcher, and a secret.
    pub const ALARM: &str = "SPMD_ALARM";
    /// The seed of delays before and after each call.
    pub const CHAOS: &str = "SPMD_CHAOS";
}

/// What the environment sets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    pub(crate) mode: Option<Mode>,
    pub(crate) ranks: Option<usize>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) stack_size: Option<usize>,
    pub(crate) cores: Option<usize>,
    pub(crate) bind: Bind,
    /// Bytes of a segment, whatever was measured.
    pub(crate) segment: Option<usize>,
    pub(crate) tuning: Tuning,
}

/// A variable's value, if it is set and not empty.
fn variable(name: &str) -> Result<Option<String>> {
    match std::env::var(name) {
        Ok(text) if text.is_empty() => Ok(None),
        Ok(text) => Ok(Some(text)),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => {
            Err(Error::Boot(format!("the variable {name} is not text")))
        }
    }
}

fn parsed<T: std::str::FromStr>(name: &str, what: &str) -> Result<Option<T>> {
    let Some(text) = variable(name)? else { return Ok(None) };
    let value = text.parse().ok();
    value.map(Some).ok_or_else(|| Error::Boot(format!("{name}={text} is not {what}")))
}

fn positive(name: &str, what: &str) -> Result<Option<usize>> {
    match parsed::<usize>(name, what)? {
        Some(0) => Err(Error::Boot(format!("{name}=0 is not {what}"))),
        value => Ok(value),
    }
}

impl Settings {
    pub(crate) fn from_environment() -> Result<Settings> {
        use variables::*;
        let mode = match variable(AS)?.as_deref() {
            None | Some("processes") => None,
            Some("threads") => Some(Mode::Threads),
            Some("virtual") => Some(Mode::Virtual),
            Some(other) => {
                let text = format!("{AS}={other} is not threads, virtual or processes");
                return Err(Error::Boot(text));
            }
        };
        let seconds = parsed::<f64>(TIMEOUT, "a number of seconds")?;
        let timeout = seconds.map(|seconds| {
            let limit = Duration::try_from_secs_f64(seconds).ok().filter(|limit| !limit.is_zero());
            limit.ok_or_else(|| {
                Error::Boot(format!(
                    "{TIMEOUT}={seconds} is not a time limit; write more than 0, or unset it"
                ))
            })
        });
        Ok(Settings {
            mode,
            ranks: positive(RANKS, "a number of ranks")?,
            timeout: timeout.transpose()?,
            stack_size: positive(STACK_SIZE, "a number of bytes")?,
            cores: positive(CORES, "a number of cores")?,
            bind: bind()?,
            segment: tuning::segment()?,
            tuning: tuning::tuning()?,
        })
    }
}

/// `0-1;2` as sets of cores.
fn bind() -> Result<Bind> {
    let Some(text) = variable(variables::CPUS)? else { return Ok(Bind::None) };
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        (first <= last && last < 65_536).then_some(first..=last)
    };
    let set = |set: &str| {
        let ranges: Option<Vec<_>> = set.split(',').map(range).collect();
        Some(ranges?.into_iter().flatten().collect())
    };
    let sets: Option<Vec<Vec<usize>>> = text.split(';').map(set).collect();
    let name = variables::CPUS;
    sets.map(Bind::Sets)
        .ok_or_else(|| Error::Boot(format!("{name}={text} is not a list of cores like 0-1;2-3")))
}

/// What this process is to the launcher.
enum Entry {
    /// There is none, or one that cannot see into the process.
    Alone,
    /// It runs all ranks.
    #[cfg(target_os = "linux")]
    All(job::Shown),
    /// It runs so many ranks of a world that lives in several processes.
    Across(Joined),
    /// It is one rank.
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "it needs Linux"))]
    Rank(Place),
}

/// This process's place in the launcher's world: its end, and how many blocks it has entered.
struct Place {
    endpoint: Arc<Endpoint>,
    blocks: Mutex<u32>,
}

static ENTRY: OnceLock<std::result::Result<Entry, String>> = OnceLock::new();

/// Runs `f` on the ranks of the launched world that this process hosts, and gives their results:
/// one under `spmdrun` with process ranks, all with thread or virtual ranks, and one, rank 0 of
/// 1, without a launcher. A program may enter the world several times, on all ranks. It is an error on
/// a rank, of whichever block and with or without a launcher: a rank opens blocks of its own with
/// [`spmd`](crate::spmd()).
///
/// It returns when all ranks have left the block, so that nothing is still on the way: on a rank that
/// has failed, or was stopped, at once. Such a rank can enter the world again, as all do whose
/// failure was dealt with: it then waits until the others have left the block before.
///
/// Errors: that of this process's rank, or what stopped it; messages that nobody received; the
/// launcher's environment cannot be used. A panic of a process rank goes on as a panic.
///
/// ```
/// # use spmd_core::{run, Result};
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
    run_with(|| Ok(None), None, f)
}

/// Finds what joins this process to others, if something does.
pub type Attach = fn() -> Result<Option<Arc<dyn Fabric>>>;

/// [`run`] where `attach` finds what joins this process to others, if it was not started by
/// `spmdrun` alone, over which `cluster` carries out collectives.
#[doc(hidden)]
#[track_caller]
pub fn run_with<R, F>(attach: Attach, cluster: Option<Arc<dyn Plane>>, f: F) -> Result<Vec<R>>
where
    F: Fn(&Ctx) -> Result<R> + Sync,
    R: Send,
{
    let site = Location::caller();
    if !wait::current().is_null() {
        return Err(entered_twice());
    }
    match entered(attach) {
        Ok(Entry::Rank(place)) => {
            let shared = Shared::new(vec![()], |ctx: &Ctx, ()| f(ctx));
            run_as_process(place, &shared, site)?;
            Ok(shared.results())
        }
        #[cfg(target_os = "linux")]
        Ok(Entry::All(shown)) => {
            let arena = shown.memory()?.map_or(Arena::Own, Arena::Given);
            alone()?.run_at(site, arena, f)
        }
        Ok(Entry::Across(joined)) => {
            let bind = Settings::from_environment()?.bind;
            let across = Arena::Across(Arc::new(Across::new(joined)));
            let block = Spmd::new(joined.each()).bind(bind);
            let block = cluster.into_iter().fold(block, Spmd::plane);
            block.run_at(site, across, f)
        }
        Ok(Entry::Alone) => alone()?.run_at(site, Arena::Own, f),
        Err(text) => Err(Error::Boot(text.clone())),
    }
}

/// Where this process is, found out when it is first asked for.
fn entered(attach: Attach) -> &'static Result<Entry, String> {
    ENTRY.get_or_init(|| {
        enter(attach).map_err(|error| match error {
            Error::Boot(text) => text,
            other => other.to_string(),
        })
    })
}

/// A block of all ranks, where they live in this process alone.
fn alone() -> Result<Spmd> {
    let settings = Settings::from_environment()?;
    Ok(Spmd::new(settings.ranks.unwrap_or(1)).bind(settings.bind))
}

/// The world that this fabric joins, where there is one.
fn enter_across(attach: Attach) -> Result<Entry> {
    let each = positive(variables::RANKS_PER_PROCESS, "a number of ranks")?.unwrap_or(1);
    let window = Settings::from_environment()?.tuning.window;
    wait::starting_own_threads(|| match attach()? {
        None => Ok(Entry::Alone),
        Some(fabric) => Joined::new(fabric, each, window).map(Entry::Across),
    })
}

/// This process with so many ranks, unless it is one of several that were started together: each of
/// them would be a world of its own.
#[cfg(target_os = "linux")]
fn enter_alone(attach: Attach, ranks: usize) -> Result<Entry> {
    let processes = attach()?.map_or(1, |fabric| fabric.processes());
    if processes == 1 {
        return Ok(Entry::Alone);
    }
    let (name, each) = (variables::RANKS, variables::RANKS_PER_PROCESS);
    Err(Error::Boot(format!(
        "{name}={ranks} gives a process that runs alone its ranks, but this is one of {processes} that \
         a launcher has started together; unset {name}, and say by {each} how many ranks each of them \
         has"
    )))
}

#[cfg(target_os = "linux")]
fn enter(attach: Attach) -> Result<Entry> {
    if let Some(ranks) = Settings::from_environment()?.ranks {
        return match job::Shown::find(ranks)? {
            Some(shown) => Ok(Entry::All(shown)),
            None => enter_alone(attach, ranks),
        };
    }
    let endpoint = job::attach()?.map(Arc::new);
    let place = |endpoint| Entry::Rank(Place { endpoint, blocks: Mutex::new(0) });
    endpoint.map_or_else(|| enter_across(attach), |endpoint| Ok(place(endpoint)))
}

#[cfg(not(target_os = "linux"))]
fn enter(attach: Attach) -> Result<Entry> {
    match variable(variables::ARENA)? {
        None => enter_across(attach),
        Some(_) => Err(Error::Unavailable {
            what: "a world of process ranks".into(),
            reason: "this system is not Linux".into(),
            remedy: "use spmdrun --as threads or --as virtual".into(),
        }),
    }
}

/// A rank is in the world, or in a block that is its own.
fn entered_twice() -> Error {
    let why = "spmd::run was called inside the world that it enters; a block within a rank is \
               opened with spmd(n, ..)";
    Error::Argument(why.into())
}

fn run_as_process(place: &Place, work: &dyn Work, site: &'static Location<'static>) -> Result<()> {
    let Some(mut blocks) = place.blocks.try_lock() else {
        return Err(entered_twice());
    };
    let (endpoint, block) = (&place.endpoint, *blocks + 1);
    let _running = wait::Running::new(&endpoint.world.running);
    endpoint.wait_for_the_block_before(block, site)?;
    *blocks = block;
    match run_rank(endpoint, block, work, 0) {
        Ok(result) => result?,
        Err(panic) => std::panic::resume_unwind(panic),
    }
    endpoint.wait_for_the_end(block, site)?;
    // What comes from here on, with the others gone from the block, was never to be received.
    check_all_received(endpoint, block)
}
