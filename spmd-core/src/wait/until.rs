//! The one function in which every wait of the library waits.

use std::mem::take;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::bell::Bell;
use super::current;
use super::fences::Fences;
use super::fleet::{self, Resumed, Suspension};
use super::threads;
use crate::error::{Error, Result};
use crate::fault::say;

/// How the waits of a world wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    /// Rounds of polling before a thread sleeps, where every rank has a core of its own.
    pub(crate) spins: u32,
    /// The same where ranks share cores: whoever is waited for may need this one.
    pub(crate) spins_shared: u32,
    /// How often a thread then lets others run on its core before it sleeps.
    pub(crate) yields: u32,
    /// Cores that the ranks of this world share with nobody else that is known.
    pub(crate) cores: usize,
    /// Ranks of this world that run on threads of other processes.
    pub(crate) elsewhere: usize,
    pub(crate) fences: Fences,
}

/// Cores that this process may use (affinity and control groups count).
pub(crate) fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

impl Policy {
    /// For ranks on `cores` cores, `elsewhere` of them in other processes.
    pub(crate) fn new(cores: usize, elsewhere: usize) -> Policy {
        let (spins, spins_shared, yields) = (4000, 2, 20);
        Policy { spins, spins_shared, yields, cores, elsewhere, fences: Fences::Symmetric }
    }

    pub(crate) fn with(self, fences: Fences) -> Policy {
        Policy { fences, ..self }
    }

    /// Whether so many threads of this process and those elsewhere have a core each.
    pub(crate) fn has_cores_for(&self, threads: usize) -> bool {
        threads + self.elsewhere <= self.cores
    }

    /// How often the program may poll in a row before others are let run.
    pub(crate) fn polls(&self) -> u32 {
        if self.has_cores_for(threads::running().max(1)) { POLLS } else { POLLS_SHARED }
    }

    /// How often to poll, and then how often to yield.
    fn patience(&self, polled: bool) -> (u32, u32) {
        match (self.has_cores_for(threads::running().max(1)), polled) {
            (true, true) => (POLLED_SPINS, POLLED_YIELDS),
            (true, false) => (self.spins, 0),
            (false, true) => (self.spins_shared, POLLED_YIELDS),
            (false, false) => (self.spins_shared, self.yields),
        }
    }
}

/// What a wait must know besides its condition.
pub(crate) trait Watch {
    /// A reason to give up, if there is one; asked at every look at the condition, so cheap.
    fn interrupted(&self) -> Option<Error>;
    /// A thread says from now on, until [`Watch::awake`], that it sleeps.
    fn asleep(&mut self) {}
    /// The wait is over, one that was overdue at least once or of a thread that slept.
    fn awake(&mut self);
    /// The wait has lasted this long: puts it on record, and makes the rare checks (peers that
    /// left, circles, time limits). Called about ten times a second. An error ends the wait.
    /// `ready` looks at the condition.
    fn overdue(&mut self, waited: Duration, ready: &mut dyn FnMut() -> bool) -> Result<()>;
    /// Does at once what a peer has asked for that cannot wait until this wait is over: makes room
    /// for its messages. Whether one has asked. Cheap if not.
    fn serve(&mut self) -> bool {
        false
    }
}

/// How many looks at the condition lie between two at what peers ask for.
const SERVE_EVERY: u32 = 16;

/// How often to look for what is polled before others are let run: each look may take the time of
/// a system call, and who is waited for may need this core.
pub(super) const POLLED_SPINS: u32 = 64;

/// How often to yield before a sleep from which nobody wakes, as what is waited for is polled.
pub(super) const POLLED_YIELDS: u32 = 1000;

/// How often the program may poll for messages in a row before others are let run, as any poll may
/// have been in vain only by chance: where each rank has a core of its own, and where not.
const POLLS: u32 = 256;
const POLLS_SHARED: u32 = 16;

/// A sleeper looks up by itself after this time, doubling up to [`LONGEST_SLEEP`].
const FIRST_SLEEP: Duration = Duration::from_millis(20);
const LONGEST_SLEEP: Duration = Duration::from_millis(160);

/// Waits until `poll` gives a value, however this agent waits: a thread spins or yields, then
/// sleeps on the bell; a coroutine is suspended. A value that is there wins over an interruption.
///
/// Whoever makes the condition true rings `bell` afterwards.
#[inline(always)]
pub(crate) fn until<T>(
    bell: Bell<'_>,
    policy: &Policy,
    watch: &mut impl Watch,
    mut poll: impl FnMut() -> Option<T>,
) -> Result<T> {
    if let Some(value) = poll() {
        return Ok(value);
    }
    if fleet::in_coroutine() {
        return wait_as_coroutine(bell, watch, &mut poll);
    }
    let (spins, yields) = policy.patience(bell.is_polled());
    // A look at what is polled may itself let others run, who keep a busy core for milliseconds.
    let start = bell.is_polled().then(Instant::now);
    let lasts = || start.is_some_and(|start| start.elapsed() > FIRST_SLEEP);
    let mut served = false;
    for spin in 1..=spins {
        std::hint::spin_loop();
        if let Some(value) = poll() {
            return Ok(value);
        }
        if spin % SERVE_EVERY == 0 {
            served = watch.serve();
            if served || lasts() {
                break;
            }
        }
    }
    for _ in 0..yields {
        if lasts() {
            break;
        }
        std::thread::yield_now();
        if let Some(value) = poll() {
            return Ok(value);
        }
        served |= watch.serve();
        if served || watch.interrupted().is_some() {
            break;
        }
    }
    let mut found = None;
    let slow = wait_as_thread(bell, (spins, yields), served, watch, &mut || {
        if found.is_none() {
            found = poll();
        }
        found.is_some()
    });
    match (found, slow) {
        (Some(value), _) => Ok(value),
        (None, Err(error)) => Err(error),
        (None, Ok(())) => unreachable!("a wait ends with its condition or an error"),
    }
}

/// [`until`] for a virtual rank.
#[inline(always)]
pub(crate) fn until_woken<T>(
    bell: Bell<'_>,
    watch: &mut impl Watch,
    mut poll: impl FnMut() -> Option<T>,
) -> Result<T> {
    match poll() {
        Some(value) => Ok(value),
        None => wait_as_coroutine(bell, watch, &mut poll),
    }
}

/// Waits until `done`, which nothing but its condition ends: for blocks that an agent opened, and
/// for peers that still use its memory. If that is impossible (a virtual rank that is panicking
/// cannot let its peers run), the process ends rather than let them use memory that is gone.
pub(crate) fn until_done(bell: Bell<'_>, mut done: impl FnMut() -> bool) {
    let policy = Policy { spins: 100, spins_shared: 100, yields: 0, ..Policy::new(1, 0) };
    if until(bell, &policy, &mut Stubborn, || done().then_some(())).is_err() {
        say(format_args!("cannot wait for peers that use memory of this rank; aborting"));
        std::process::abort();
    }
}

/// The watch of a wait that nothing ends but its condition.
struct Stubborn;

impl Watch for Stubborn {
    fn interrupted(&self) -> Option<Error> {
        None
    }
    fn awake(&mut self) {}
    fn overdue(&mut self, _: Duration, _: &mut dyn FnMut() -> bool) -> Result<()> {
        Ok(())
    }
}

/// Whether to give up, the condition having been false just now.
fn interrupted(watch: &dyn Watch, ready: &mut dyn FnMut() -> bool) -> Result<bool> {
    match watch.interrupted() {
        None => Ok(false),
        Some(_) if ready() => Ok(true),
        Some(error) => Err(error),
    }
}

/// Serves peers as long as they ask for something, which who sends many messages does again and
/// again: polls and yields as at the start of a wait after each time. Whether the wait is over.
fn serve(
    (spins, yields): (u32, u32),
    watch: &mut dyn Watch,
    ready: &mut dyn FnMut() -> bool,
) -> bool {
    let start = Instant::now();
    let mut idle = 0;
    loop {
        if ready() {
            return true;
        }
        if (idle % SERVE_EVERY == 0 || idle > spins) && watch.serve() {
            idle = 0;
            // Others may ask without end: the wait's own checks come in time all the same.
            if watch.interrupted().is_some() || start.elapsed() > FIRST_SLEEP {
                return false;
            }
        }
        idle += 1;
        match idle {
            _ if idle <= spins => std::hint::spin_loop(),
            _ if idle <= spins + yields => std::thread::yield_now(),
            _ => return false,
        }
    }
}

/// Waits until `ready`, `served` if a peer has asked for something just now.
#[cold]
fn wait_as_thread(
    bell: Bell<'_>,
    patience: (u32, u32),
    mut served: bool,
    watch: &mut dyn Watch,
    ready: &mut dyn FnMut() -> bool,
) -> Result<()> {
    watch.asleep();
    let start = Instant::now();
    let mut sleep = FIRST_SLEEP;
    let mut checked = Duration::ZERO;
    let mut step = || {
        // Before this one says that it sleeps, which costs a fence on all cores.
        if (take(&mut served) || watch.serve()) && serve(patience, watch, ready) {
            return Ok(true);
        }
        let ticket = bell.announce_thread();
        if ready() || interrupted(watch, ready)? {
            return Ok(true);
        }
        served = watch.serve();
        if !served {
            bell.sleep(ticket, sleep);
        }
        let waited = start.elapsed();
        if waited < checked + sleep {
            return Ok(ready());
        }
        checked = waited;
        sleep = (sleep * 2).min(LONGEST_SLEEP);
        if ready() || interrupted(watch, ready)? {
            return Ok(true);
        }
        watch.overdue(waited, ready)?;
        Ok(ready())
    };
    let outcome = loop {
        match step() {
            Ok(false) => {}
            Ok(true) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    watch.awake();
    outcome
}

/// Inlined into its caller, as is the suspension into it: see [`fleet::suspend`].
#[inline(always)]
fn wait_as_coroutine<T>(
    bell: Bell<'_>,
    watch: &mut impl Watch,
    poll: &mut impl FnMut() -> Option<T>,
) -> Result<T> {
    let at_home = bell.is_home();
    let what = if at_home { Suspension::Wake } else { Suspension::Poll };
    let mut start: Option<Instant> = None;
    let outcome = loop {
        if at_home
            && bell.announce_coroutine()
            && let Some(value) = poll()
        {
            break Ok(value);
        }
        if let Some(error) = watch.interrupted() {
            break poll().ok_or(error);
        }
        if !at_home {
            watch.serve();
        }
        let why = current::across(|| fleet::suspend_for(what));
        if let Some(value) = poll() {
            break Ok(value);
        }
        match why {
            Resumed::Woken => {}
            Resumed::Refused => break Err(refused()),
            Resumed::Sweep => {
                if let Some(outcome) = sweep(watch, &mut start, poll) {
                    break outcome;
                }
            }
        }
    };
    if start.is_some() {
        watch.awake();
    }
    outcome
}

#[cold]
#[inline(never)]
fn refused() -> Error {
    let why = "a rank that is panicking cannot wait for others; don't communicate in Drop";
    Error::argument(why.into())
}

/// Makes the rare checks of a coroutine: the end of its wait, if they find one. Not inlined, so
/// that what they need lies on the stack only meanwhile: the fewer lines of it a rank that waits
/// touches, the better.
#[cold]
#[inline(never)]
fn sweep<T>(
    watch: &mut impl Watch,
    start: &mut Option<Instant>,
    poll: &mut impl FnMut() -> Option<T>,
) -> Option<Result<T>> {
    let mut found = None;
    let checked = overdue(watch, start, &mut || {
        found = found.take().or_else(&mut *poll);
        found.is_some()
    });
    found.map(Ok).or_else(|| checked.err().map(Err))
}

/// A worker has looked after all its coroutines: the wait has lasted. It is measured from the
/// first such look on, as the worker's clock may be older than the wait before.
#[cold]
fn overdue(
    watch: &mut dyn Watch,
    start: &mut Option<Instant>,
    ready: &mut dyn FnMut() -> bool,
) -> Result<()> {
    let now = fleet::coarse_now();
    let start = *start.get_or_insert(now);
    if interrupted(watch, ready)? {
        return Ok(());
    }
    watch.overdue(now.saturating_duration_since(start), ready)
}

#[cfg(all(test, not(loom)))]
mod tests;
