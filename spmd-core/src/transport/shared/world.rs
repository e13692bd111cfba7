//! What all ranks of a world share, as one process sees it.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use super::combining::CombiningBarrier;
use super::commons::Commons;
use super::memory::Memory;
use super::queue::Queue;
use super::suspicion::Wide;
use crate::clock::clock_ms;
use crate::mode::Mode;
use crate::resources::Resources;
use crate::transport::fabric::Simulated;
use crate::tuning::Tuning;
use crate::wait::scheduler::{self, Home};
use crate::wait::{self, Bell, Policy};

/// What all ranks of one world share, as this process sees it.
pub(crate) struct World {
    pub(crate) memory: Memory,
    pub(crate) mode: Mode,
    pub(crate) policy: Policy,
    pub(crate) timeout: Option<Duration>,
    pub(crate) tuning: Tuning,
    /// Where virtual ranks live, each known once it has started.
    pub(super) homes: Box<[OnceLock<Home>]>,
    /// Where virtual ranks meet.
    pub(super) combining: Option<CombiningBarrier>,
    /// A rank that was still in its block when somebody looked last.
    pub(super) seen: AtomicUsize,
    /// Whether ranks of this process have taken part in an agreement.
    pub(super) agreeing: AtomicBool,
    /// Threads that sleep, or are about to, on the bells of virtual ranks.
    pub(super) sleeping_threads: AtomicUsize,
    /// Ranks of this process that wait until nobody uses their memory.
    pub(super) taking_back: AtomicUsize,
    /// Searches for cycles among all ranks of this process.
    pub(super) wide: Mutex<Wide>,
    /// Threads of this process that run ranks of this world.
    pub(crate) running: Arc<AtomicUsize>,
    /// Mailboxes of ranks without rings.
    pub(super) queues: Box<[Queue]>,
    /// What ranks of this process make together.
    pub(super) commons: Commons,
    /// The ranks that use this arena: all, but of a world that lives in several processes.
    pub(super) local: Range<usize>,
    /// Whether something joins this process to others without common memory.
    pub(crate) joined: bool,
    /// What whoever waits in this process does for others, once there has been something, and how
    /// many things there are for which they may ask.
    service: OnceLock<Weak<dyn Service>>,
    served: AtomicUsize,
    /// What is known of this process, if it is one of several in one of the system's.
    simulated: Option<Simulated>,
    /// What the process has for tasks, where its block says that.
    pub(crate) resources: Option<Resources>,
}

/// What a process does for others, while its ranks wait.
pub(crate) trait Service: Send + Sync {
    /// Does what others have asked for by now; whether there was something.
    fn serve(&self, world: &World) -> bool;
}

/// The states in [`layout::Head::state`].
pub(crate) mod state {
    pub(crate) const INSIDE: u64 = 1;
    pub(crate) const LEFT: u64 = 2;
    pub(crate) const FAILED: u64 = 3;
}

impl World {
    pub(crate) fn new(
        memory: Memory,
        mode: Mode,
        policy: Policy,
        timeout: Option<Duration>,
        tuning: Tuning,
        combining: Option<CombiningBarrier>,
        local: Option<Range<usize>>,
    ) -> World {
        let ranks = memory.layout.ranks;
        let joined = local.is_some();
        let local = local.unwrap_or(0..ranks);
        let homes = if mode == Mode::Virtual { ranks } else { 0 };
        let rings = mode != Mode::Virtual && memory.layout.rings && !joined;
        let queues = if rings { 0 } else { ranks };
        let window = tuning.window;
        World {
            memory,
            mode,
            policy,
            timeout,
            tuning,
            combining,
            seen: AtomicUsize::new(0),
            agreeing: AtomicBool::new(false),
            sleeping_threads: AtomicUsize::new(0),
            wide: Mutex::default(),
            taking_back: AtomicUsize::new(0),
            running: Arc::default(),
            homes: (0..homes).map(|_| OnceLock::new()).collect(),
            queues: (0..queues).map(|_| Queue::new(window, ranks)).collect(),
            commons: Default::default(),
            local,
            joined,
            service: OnceLock::new(),
            served: AtomicUsize::new(0),
            simulated: None,
            resources: None,
        }
    }

    /// The same world in such a process.
    pub(crate) fn simulated(self, simulated: Option<Simulated>) -> World {
        World { simulated, ..self }
    }

    /// The same world with these for its tasks.
    pub(crate) fn with(self, resources: Option<Resources>) -> World {
        World { resources, ..self }
    }

    /// Whether every thread of this process runs ranks of this world, or only waits for a block to
    /// end. Where that cannot be told, no.
    pub(crate) fn nobody_else_runs(&self) -> bool {
        match self.simulated {
            Some(simulated) => !simulated.other_threads,
            None => wait::nobody_else_runs(&self.running),
        }
    }

    /// Where every thread of this process runs ranks of this world, or waits in the library: how
    /// many of the program's own threads have ended such a wait so far.
    pub(super) fn all_wait(&self) -> Option<usize> {
        let counted = self.simulated.is_none();
        counted.then(|| wait::all_wait(&self.running)).flatten()
    }

    /// The ranks that use this arena: all, but of a world that lives in several processes.
    pub(crate) fn local(&self) -> Range<usize> {
        self.local.clone()
    }

    pub(crate) fn size(&self) -> usize {
        self.memory.layout.ranks
    }

    /// The mailbox of a rank, where ranks have no rings.
    #[inline]
    pub(crate) fn queue(&self, rank: usize) -> Option<&Queue> {
        self.queues.get(rank)
    }

    /// Whether ranks reach each other's buffers wherever they lie.
    #[inline]
    pub(crate) fn one_address_space(&self) -> bool {
        self.mode != Mode::Processes && !self.tuning.unreachable
    }

    /// The coroutine that runs here is the home of `rank`.
    pub(crate) fn set_home(&self, rank: usize) {
        if let (Some(place), Some(home)) = (self.homes.get(rank), scheduler::current()) {
            let _ = place.set(home);
        }
    }

    /// Where a virtual rank lives, once it has started.
    pub(super) fn home(&self, rank: usize) -> Option<&Home> {
        self.homes.get(rank)?.get()
    }

    #[inline]
    pub(crate) fn bell(&self, rank: usize) -> Bell<'_> {
        let word = &self.memory.bell(rank).word;
        match self.mode {
            Mode::Processes => Bell::shared(word).with(self.policy.fences),
            Mode::Threads => Bell::new(word, None).with(self.policy.fences),
            Mode::Virtual => {
                let one_worker =
                    self.combining.as_ref().is_some_and(CombiningBarrier::has_one_worker);
                Bell::new(word, self.homes[rank].get()).unasked(one_worker)
            }
        }
    }

    /// Wakes all who sleep in the combining barrier, after a change there.
    #[inline]
    pub(crate) fn ring_combining(&self, combining: &CombiningBarrier) {
        let one_worker = combining.has_one_worker();
        if !one_worker {
            self.publish();
        }
        for (word, first) in combining.bells() {
            let bell = Bell::common(word, self.homes[first].get());
            bell.unasked(one_worker).ring_after_fence();
        }
    }

    /// The fence between a change and the look at the bells of those who may wait for it.
    #[inline]
    pub(crate) fn publish(&self) {
        self.policy.fences.light();
    }

    /// Wakes every agent of every rank, those too that wait in the combining barrier.
    pub(crate) fn ring_all(&self) {
        self.publish();
        if self.wake_workers() {
            return;
        }
        self.local().for_each(|rank| self.bell(rank).unasked(true).ring_after_fence());
    }

    /// Wakes every agent of every rank by a look at each worker, where all agents that sleep are
    /// virtual ranks: when all of thousands fail, each of them wakes all. A thread that says later
    /// than this looks that it sleeps, looks itself, before it does, at what was changed before
    /// this.
    fn wake_workers(&self) -> bool {
        let Some(combining) = &self.combining else { return false };
        let started = |rank: usize| self.homes[rank].get().is_some();
        let woken = self.sleeping_threads.load(Relaxed) == 0 && combining.firsts().all(started);
        if woken {
            combining.firsts().for_each(|rank| self.wake_worker_of(rank));
        }
        woken
    }

    /// Makes all virtual ranks ready that share the worker of this one, which has entered the
    /// block.
    pub(crate) fn wake_worker_of(&self, rank: usize) {
        if let Some(home) = self.homes[rank].get() {
            home.wake_all();
        }
    }

    /// Enters or leaves a block on behalf of `rank`.
    pub(crate) fn set_state(&self, rank: usize, block: u32, state: u64) {
        self.memory.head(rank).state.store(u64::from(block) << 2 | state, Release);
        // Nobody but processes waits for a rank to leave, and nobody but who agrees on something
        // for a state of failure.
        let awaited = self.mode == Mode::Processes || self.agreeing.load(Relaxed);
        if state != state::INSIDE && awaited {
            self.ring_all();
        }
    }

    /// The block that `rank` has entered last, 0 before the first.
    pub(crate) fn block_of(&self, rank: usize) -> u32 {
        (self.memory.head(rank).state.load(Acquire) >> 2) as u32
    }

    /// Whether `rank` can take no more part in `block`: it has ended it, or its process is gone.
    pub(crate) fn has_ended(&self, rank: usize, block: u32) -> bool {
        let word = self.memory.head(rank).state.load(Acquire);
        let (at, state) = ((word >> 2) as u32, word & 3);
        at > block
            || (at == block && (state == state::LEFT || state == state::FAILED))
            || self.is_dead(rank)
    }

    /// Whether `rank` has ended `block` otherwise than by leaving it properly. Its fault tells
    /// why, unless a hostile peer has spoilt it.
    pub(crate) fn has_failed(&self, rank: usize, block: u32) -> bool {
        let word = self.memory.head(rank).state.load(Acquire);
        let (at, state) = ((word >> 2) as u32, word & 3);
        let gone_on = at > block && !self.memory.failure(rank, block).holds(block.into());
        let left = gone_on || (at == block && state == state::LEFT);
        !left && self.has_ended(rank, block)
    }

    /// Whether the kernel has confirmed that the rank's process is gone.
    pub(crate) fn is_dead(&self, rank: usize) -> bool {
        self.memory.bell(rank).dead.load(Acquire) != 0
    }

    /// From now on others may ask for one thing more, and whoever waits in this process does this.
    /// There is one service in a process.
    pub(crate) fn serve_by(&self, service: Weak<dyn Service>) {
        let _ = self.service.set(service);
        self.served.fetch_add(1, Relaxed);
    }

    /// Others ask for one thing less.
    pub(crate) fn serves_less(&self) {
        self.served.fetch_sub(1, Relaxed);
    }

    /// Whether others may need this process although no rank of it waits for anything of theirs.
    #[inline]
    pub(crate) fn is_needed(&self) -> bool {
        self.served.load(Relaxed) > 0
    }

    /// Whether others may have asked for something at any time.
    pub(crate) fn has_served(&self) -> bool {
        self.service.get().is_some()
    }

    /// Does what others have asked for by now; whether there was something.
    #[inline]
    pub(crate) fn serve(&self) -> bool {
        self.is_needed()
            && self.service.get().and_then(Weak::upgrade).is_some_and(|it| it.serve(self))
    }

    /// Milliseconds of a clock that all processes of the host share.
    pub(crate) fn now_ms(&self) -> u64 {
        clock_ms()
    }
}
