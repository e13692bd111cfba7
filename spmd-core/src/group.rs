//! Which ranks of the world a communicator holds.

use std::cell::Cell;
use std::sync::Arc;

/// The members of a communicator, in rank order.
#[derive(Clone, Debug)]
pub(crate) enum Group {
    /// All ranks of a world of this size.
    World(usize),
    /// These world ranks.
    Some(Arc<[u32]>),
}

impl Group {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        match self {
            Group::World(size) => *size,
            Group::Some(ranks) => ranks.len(),
        }
    }

    /// The world rank of a member.
    #[inline]
    pub(crate) fn world(&self, rank: usize) -> usize {
        match self {
            Group::World(_) => rank,
            Group::Some(ranks) => ranks[rank] as usize,
        }
    }

    /// The rank here of a world rank, if it is a member.
    pub(crate) fn local(&self, world: usize) -> Option<usize> {
        match self {
            Group::World(size) => (world < *size).then_some(world),
            Group::Some(ranks) => ranks.iter().position(|r| *r as usize == world),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> + Clone + '_ {
        (0..self.len()).map(|rank| self.world(rank))
    }
}

/// What a communicator is to the failure handling: a number, a block, its members.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    /// Never 0, never used twice by a rank.
    pub(crate) context: u64,
    /// Which entry into the world; 1 is the first.
    pub(crate) block: u32,
    pub(crate) group: Group,
    /// Those of its members that share this process's arena, in the same order.
    pub(crate) here: Group,
    /// How many faults there were when it was last seen that none of them concerns this one.
    pub(crate) faults_seen: Cell<u32>,
}

/// Numbers of communicators below this belong to blocks.
pub(crate) const FIRST_CONTEXT: u64 = 1 << 32;

impl Scope {
    pub(crate) fn new(context: u64, block: u32, group: Group, here: Group) -> Scope {
        Scope { context, block, group, here, faults_seen: Cell::new(0) }
    }

    /// Whether this is a block's own communicator, not one that the program has made.
    #[inline]
    pub(crate) fn is_primary(&self) -> bool {
        self.context < FIRST_CONTEXT
    }
}
