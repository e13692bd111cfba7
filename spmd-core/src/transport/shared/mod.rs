//! The shared-memory transport: one protocol over two arenas, anonymous memory for threads and
//! virtual ranks, a sealed memfd for processes.
//!
//! A rank writes its own segment, where peers read; beside it bells, notices and counts are all that
//! several write. So whatever a peer does to the memory that it can write, it can lie about itself, to
//! those that exchange data with it, and delay the others.

mod access;
pub(crate) mod agents;
pub(crate) mod board;
mod common;
pub(crate) mod contexts;
mod deadlock;
mod ending;
mod faults;
pub(crate) mod heap;
mod hub;
mod inbox;
mod lane;
pub(crate) mod layout;
pub(crate) mod memory;
pub(crate) mod outlived;
pub(crate) mod poller;
mod post;
pub use post::packed_if_apart;
mod queue;
pub(crate) mod record;
pub(crate) mod ring;
mod room;
mod single_copy;
mod spare;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;

pub use common::Common;
pub(crate) use faults::Reach;
use heap::SegmentHeap;
pub(crate) use hub::{Arrival, Begun, FEW, Hub, Seat};
use inbox::Inbox;
pub(crate) use inbox::Lent;
use memory::Memory;
use queue::Queue;

use crate::comm::polling::Hopeless;
use crate::fault::Fault;
use crate::group::Scope;
use crate::plane::{Numbered, Plane, Planes};
use crate::text::Interner;
use crate::transport::across::Across;
pub(crate) use crate::tuning::Tuning;
use crate::wait::fleet::Home;
use crate::wait::{Bell, Policy};

/// Where the ranks of a world run, as [`Ctx::mode`](crate::Ctx::mode) tells.
///
/// ```
/// # use spmd_core::{Mode, spmd};
/// spmd(2, |ctx| {
///     let together = ctx.mode() != Mode::Processes; // statics are shared
///     assert!(together);
///     Ok(())
/// })?;
/// # Ok::<(), spmd_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Each on an OS thread of this process.
    Threads,
    /// Each on a coroutine of this process.
    Virtual,
    /// Each in a process of its own.
    Processes,
}

/// What all ranks of one world share, as this process sees it.
pub(crate) struct World {
    pub(crate) memory: Memory,
    pub(crate) mode: Mode,
    pub(crate) policy: Policy,
    pub(crate) timeout: Option<Duration>,
    pub(crate) tuning: Tuning,
    /// Where virtual ranks live, each known once it has started.
    homes: Box<[OnceLock<Home>]>,
    /// Where virtual ranks meet.
    hub: Option<Hub>,
    /// A rank that was still in its block when somebody looked last.
    seen: AtomicUsize,
    /// Whether ranks of this process have taken part in an agreement.
    agreeing: AtomicBool,
    /// Threads that sleep, or are about to, on the bells of virtual ranks.
    sleeping_threads: AtomicUsize,
    /// Ranks of this process that wait until nobody uses their memory.
    taking_back: AtomicUsize,
    /// Searches for circles among all ranks of this process.
    wide: Mutex<deadlock::Wide>,
    /// Threads of this process that run ranks of this world.
    pub(crate) running: Arc<AtomicUsize>,
    /// Mailboxes of ranks without rings.
    queues: Box<[Queue]>,
    /// What ranks of this process make together.
    commons: common::Commons,
    /// What joins the processes of a world that lives in several, of which this is one's arena.
    pub(crate) across: Option<Arc<Across>>,
    planes: Vec<Arc<dyn Plane>>,
}

/// The states in [`layout::Head::state`].
pub(crate) mod state {
    pub(crate) const INSIDE: u64 = 1;
    pub(crate) const LEFT: u64 = 2;
    pub(crate) const FAILED: u64 = 3;
}

impl World {
    /// The same with these planes.
    pub(crate) fn with(self, planes: Vec<Arc<dyn Plane>>) -> World {
        World { planes, ..self }
    }

    /// The planes of a communicator that spans processes, or of another one.
    pub(crate) fn planes_of(&self, spans_processes: bool) -> Planes {
        let its = |plane: &&Arc<dyn Plane>| plane.spans_processes() == spans_processes;
        let planes: Vec<Numbered> =
            self.planes.iter().filter(its).cloned().map(Numbered::new).collect();
        (!planes.is_empty()).then(|| planes.into())
    }

    pub(crate) fn new(
        memory: Memory,
        mode: Mode,
        policy: Policy,
        timeout: Option<Duration>,
        tuning: Tuning,
        hub: Option<Hub>,
        across: Option<Arc<Across>>,
    ) -> World {
        let ranks = memory.layout.ranks;
        let homes = if mode == Mode::Virtual { ranks } else { 0 };
        let rings = mode != Mode::Virtual && memory.layout.rings && across.is_none();
        let queues = if rings { 0 } else { ranks };
        let window = tuning.window;
        World {
            memory,
            mode,
            policy,
            timeout,
            tuning,
            hub,
            seen: AtomicUsize::new(0),
            agreeing: AtomicBool::new(false),
            sleeping_threads: AtomicUsize::new(0),
            wide: Mutex::default(),
            taking_back: AtomicUsize::new(0),
            running: Arc::default(),
            homes: (0..homes).map(|_| OnceLock::new()).collect(),
            queues: (0..queues).map(|_| Queue::new(window, ranks)).collect(),
            commons: Default::default(),
            across,
            planes: Vec::new(),
        }
    }

    /// The ranks that use this arena: all, but of a world that lives in several processes.
    pub(crate) fn local(&self) -> Range<usize> {
        self.across.as_ref().map_or(0..self.size(), |across| across.local())
    }

    pub(crate) fn size(&self) -> usize {
        self.memory.layout.ranks
    }

    /// Whether ranks reach each other's buffers wherever they lie.
    #[inline]
    pub(crate) fn one_address_space(&self) -> bool {
        self.mode != Mode::Processes && !self.tuning.unreachable
    }

    /// The coroutine that runs here is the home of `rank`.
    pub(crate) fn settle(&self, rank: usize) {
        if let (Some(place), Some(home)) = (self.homes.get(rank), crate::wait::fleet::current()) {
            let _ = place.set(home);
        }
    }

    /// Where a virtual rank lives, once it has started.
    fn home(&self, rank: usize) -> Option<&Home> {
        self.homes.get(rank)?.get()
    }

    #[inline]
    pub(crate) fn bell(&self, rank: usize) -> Bell<'_> {
        let word = &self.memory.bell(rank).word;
        match self.mode {
            Mode::Processes => Bell::shared(word).with(self.policy.fences),
            Mode::Threads => Bell::new(word, None).with(self.policy.fences),
            Mode::Virtual => {
                let one_worker = self.hub.as_ref().is_some_and(Hub::has_one_worker);
                Bell::new(word, self.homes[rank].get()).unasked(one_worker)
            }
        }
    }

    /// Wakes all who sleep in the hub, after a change there.
    #[inline]
    pub(crate) fn ring_hub(&self, hub: &Hub) {
        let one_worker = hub.has_one_worker();
        if !one_worker {
            self.publish();
        }
        for (word, first) in hub.bells() {
            let bell = Bell::common(word, self.homes[first].get());
            bell.unasked(one_worker).ring_after_fence();
        }
    }

    /// The fence between a change and the look at the bells of those who may wait for it.
    #[inline]
    pub(crate) fn publish(&self) {
        self.policy.fences.light();
    }

    /// Wakes every agent of every rank, those too that wait in the hub.
    pub(crate) fn ring_all(&self) {
        self.publish();
        if self.wake_workers() {
            return;
        }
        self.local().for_each(|rank| self.bell(rank).unasked(true).ring_after_fence());
    }

    /// Wakes every agent of every rank by a look at each worker, where all agents that sleep are virtual
    /// ranks: when all of thousands fail, each of them wakes all. A thread that says later than this
    /// looks that it sleeps, looks itself, before it does, at what was changed before this.
    fn wake_workers(&self) -> bool {
        let Some(hub) = &self.hub else { return false };
        let started = |rank: usize| self.homes[rank].get().is_some();
        let woken = self.sleeping_threads.load(Relaxed) == 0 && hub.firsts().all(started);
        if woken {
            hub.firsts().for_each(|rank| self.wake_worker_of(rank));
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

    /// Milliseconds of a clock that all processes of the host share.
    pub(crate) fn now_ms(&self) -> u64 {
        clock_ms()
    }
}

/// Nanoseconds of a clock that all processes of the host share.
#[cfg(target_os = "linux")]
pub(crate) fn clock_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // By the C library, which finds the clock under valgrind, too, where rustix crashes.
    // SAFETY: it writes to `now`, which is borrowed by nobody else, and to nothing besides. For a
    // clock that every kernel has it does not fail; if it did, `now` would be the zeros above.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn clock_ns() -> u64 {
    static START: OnceLock<std::time::Instant> = OnceLock::new();
    START.get_or_init(std::time::Instant::now).elapsed().as_nanos() as u64
}

/// The same in milliseconds.
pub(crate) fn clock_ms() -> u64 {
    clock_ns() / 1_000_000
}

/// One rank's end of a world.
pub(crate) struct Endpoint {
    pub(crate) world: Arc<World>,
    pub(crate) rank: usize,
    pub(crate) interner: Interner,
    agents: agents::Agents,
    /// Live communicators besides the block's own: other threads may hold them.
    pub(crate) extra_comms: AtomicUsize,
    pub(crate) hopeless: Hopeless,
    inbox: Mutex<Inbox>,
    /// Rings to other processes, made at the first message.
    rings: Box<[Mutex<Option<ring::RingWriter>>]>,
    contexts: Mutex<contexts::Contexts>,
    outlived: Mutex<outlived::Outlived>,
    /// The last faults that have stopped communicators of this rank.
    told: Mutex<VecDeque<Fault>>,
    /// Waits of others that this rank has ended, as long as they do not know.
    condemned: Mutex<Vec<agents::Wait>>,
    pub(crate) heap: Arc<SegmentHeap>,
}

impl Endpoint {
    pub(crate) fn new(world: Arc<World>, rank: usize) -> Endpoint {
        let boards = world.memory.layout.boards;
        let rings = if world.queues.is_empty() { world.size() } else { 0 };
        let inbox = Mutex::new(Inbox::new());
        let heap = Arc::new(SegmentHeap::new(world.clone(), rank));
        Endpoint {
            rank,
            interner: Interner::new(),
            agents: agents::Agents::new(),
            extra_comms: AtomicUsize::new(0),
            hopeless: Hopeless::default(),
            inbox,
            rings: (0..rings).map(|_| Mutex::new(None)).collect(),
            contexts: Mutex::new(contexts::Contexts::new(boards)),
            outlived: Mutex::default(),
            told: Mutex::default(),
            condemned: Mutex::default(),
            heap,
            world,
        }
    }

    #[inline]
    pub(crate) fn bell(&self) -> Bell<'_> {
        self.world.bell(self.rank)
    }

    /// Where the ranks of this communicator meet, if they are virtual and it is the block's own.
    #[inline]
    pub(crate) fn hub(&self, scope: &Scope) -> Option<&Hub> {
        self.world.hub.as_ref().filter(|_| scope.is_primary())
    }
}
