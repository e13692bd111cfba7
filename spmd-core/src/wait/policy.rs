//! How a world's waits wait, and what each must know besides its condition.

use std::sync::OnceLock;
use std::time::Duration;

use super::fences::Fences;
use super::threads;
use crate::error::{Error, Result};
use crate::progress::Progress;

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
    /// Who goes on with started collectives besides their rank.
    pub(crate) progress: Progress,
}

/// Cores that this process may use (affinity and control groups count).
pub(crate) fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

impl Policy {
    /// For ranks on `cores` cores, `elsewhere` of them in other processes.
    pub(crate) const fn new(cores: usize, elsewhere: usize) -> Policy {
        let (spins, spins_shared, yields) = (4000, 2, 20);
        let (fences, progress) = (Fences::Symmetric, Progress::Calls);
        Policy { spins, spins_shared, yields, cores, elsewhere, fences, progress }
    }

    pub(crate) fn with(self, fences: Fences) -> Policy {
        Policy { fences, ..self }
    }

    /// The same for ranks whose started collectives go on like this.
    pub(crate) fn progressing(self, progress: Progress) -> Policy {
        Policy { progress, ..self }
    }

    /// Whether so many threads of this process and those elsewhere have a core each.
    pub(crate) fn has_cores_for(&self, threads: usize) -> bool {
        threads + self.elsewhere <= self.cores
    }

    /// Whether the threads that run ranks here, and those elsewhere, are more than their cores.
    #[inline]
    pub(crate) fn shares_cores(&self) -> bool {
        !self.has_cores_for(threads::running().max(1))
    }

    /// How often the program may poll in a row before others are let run.
    pub(crate) fn polls(&self) -> u32 {
        if self.shares_cores() { POLLS_SHARED } else { POLLS }
    }

    /// [`Policy::patience`] of a thread beside a rank that computes: on a core that both share it
    /// sleeps at once. Who is woken gets the core soon, who has yielded it only in its turn.
    pub(super) fn patience_beside(&self, polled: bool) -> (u32, u32) {
        let (spins, yields) = self.patience(polled);
        let shared = !self.has_cores_for(threads::running());
        (spins, if shared { 0 } else { yields })
    }

    /// How often to poll, and then how often to yield.
    pub(super) fn patience(&self, polled: bool) -> (u32, u32) {
        match (self.shares_cores(), polled) {
            (false, true) => (POLLED_SPINS, POLLED_YIELDS),
            (false, false) => (self.spins, 0),
            (true, true) => (self.spins_shared, POLLED_YIELDS),
            (true, false) => (self.spins_shared, self.yields),
        }
    }
}

/// What a wait must know besides its condition.
pub(crate) trait WaitHooks {
    /// A reason to give up, if there is one; asked at every look at the condition, so cheap.
    fn interrupted(&self) -> Option<Error>;
    /// A thread, or a task that is suspended, says from now on, until [`WaitHooks::awake`], that it
    /// sleeps.
    fn asleep(&mut self) {}
    /// The wait is over, one that was overdue at least once or of who has said that it sleeps.
    fn awake(&mut self);
    /// The wait has lasted this long: puts it on record, and makes the rare checks (peers that
    /// left, cycles, time limits). Called about ten times a second. An error ends the wait.
    /// `ready` looks at the condition.
    fn overdue(&mut self, waited: Duration, ready: &mut dyn FnMut() -> bool) -> Result<()>;
    /// Calls that this agent has started have gone on: it may act although its own wait lasts.
    fn calls_went_on(&mut self) {}
    /// Does at once what a peer has asked for that cannot wait until this wait is over: makes room
    /// for its messages. Whether one has asked. Cheap if not.
    fn serve(&mut self) -> bool {
        false
    }
}

/// How many looks at the condition lie between two at what peers ask for.
pub(super) const SERVE_EVERY: u32 = 16;

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
pub(super) const FIRST_SLEEP: Duration = Duration::from_millis(20);
pub(super) const LONGEST_SLEEP: Duration = Duration::from_millis(160);
