//! One rank's end of its world's arena.

use std::ops::Deref;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::agents::{Agents, Wait};
use super::combining::CombiningBarrier;
use super::contexts::Contexts;
use super::departed::Departed;
use super::faults::told::Told;
use super::health::LookedAfter;
use super::member::Member;
use super::polls::Hopeless;
use super::rank_tasks::RankTasks;
use super::ring::RingWriter;
use super::single_copy::Paces;
use super::unexpected::UnexpectedMessages;
use super::window::Retired;
use super::world::World;
use crate::group::Scope;
use crate::wait::{Bell, HasBell, HelperThread};

/// One rank's end of a world.
pub(crate) struct Endpoint {
    member: Member,
    pub(super) agents: Agents,
    /// Live communicators besides the block's own: other threads may hold them.
    pub(crate) extra_comms: AtomicUsize,
    pub(crate) hopeless: Hopeless,
    pub(super) inbox: Mutex<UnexpectedMessages>,
    /// Rings to other processes, made at the first message.
    pub(super) rings: Box<[Mutex<Option<RingWriter>>]>,
    /// How fast long messages come by the ways that there are.
    pub(super) paces: Paces,
    pub(super) contexts: Mutex<Contexts>,
    pub(super) departed: Mutex<Departed>,
    /// The faults that it has been told of.
    pub(super) told: Mutex<Told>,
    /// Waits of others that this rank has ended, as long as they do not know.
    pub(super) condemned: Mutex<Vec<Wait>>,
    /// What carries out the calls that the rank has started in its block, if something does.
    pub(super) helper: Mutex<Option<Arc<HelperThread>>>,
    /// What runs tasks of the rank, once there have been some.
    pub(crate) tasks: OnceLock<Arc<dyn RankTasks>>,
    /// How many of its agents wait for a task, which may be another rank's.
    pub(super) fetches: AtomicUsize,
    /// Parts of windows that are gone here; at most one for each area.
    pub(crate) retired_parts: Mutex<Vec<Retired>>,
    /// What its waits look after while they last.
    pub(crate) health: LookedAfter,
}

impl Deref for Endpoint {
    type Target = Member;

    #[inline(always)]
    fn deref(&self) -> &Member {
        &self.member
    }
}

impl HasBell for Endpoint {
    fn bell_of_awaited(&self) -> Bell<'_> {
        self.member.bell().polled(self.world.joined)
    }
}

impl Endpoint {
    pub(crate) fn new(world: Arc<World>, rank: usize) -> Endpoint {
        let areas = world.memory.layout.areas;
        let rings = if world.queue(rank).is_none() { world.size() } else { 0 };
        Endpoint {
            member: Member::new(world, rank),
            agents: Agents::new(),
            extra_comms: AtomicUsize::new(0),
            hopeless: Hopeless::default(),
            inbox: Mutex::new(UnexpectedMessages::new()),
            rings: (0..rings).map(|_| Mutex::new(None)).collect(),
            paces: Paces::default(),
            contexts: Mutex::new(Contexts::new(areas)),
            departed: Mutex::default(),
            told: Mutex::default(),
            condemned: Mutex::default(),
            helper: Mutex::default(),
            tasks: OnceLock::new(),
            fetches: AtomicUsize::new(0),
            retired_parts: Mutex::default(),
            health: LookedAfter::default(),
        }
    }

    /// Does what others have asked for that cannot wait until a wait of this rank is over. Whether
    /// there was something.
    #[inline]
    pub(super) fn serve(&self) -> bool {
        let made_room = self.make_room();
        self.world.serve() || made_room
    }

    /// Where the ranks of this communicator meet, if they are virtual and it is the block's own:
    /// for one call at a time.
    #[inline]
    pub(crate) fn combining(&self, scope: &Scope) -> Option<&CombiningBarrier> {
        self.world.combining.as_ref().filter(|_| scope.is_primary() && scope.track == 0)
    }
}
