//! Which ranks of the world a communicator holds.

use std::cell::{Cell, OnceCell};
use std::ops::Deref;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::*;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::fault::Fault;

/// Tracks of a communicator, on each of which one started call is under way at a time. Each has a
/// area of its own.
pub(crate) const TRACKS: usize = 4;

/// The members of a communicator, in rank order.
#[derive(Clone, Debug)]
pub(crate) enum Group {
    /// All ranks of a world of this size.
    World(usize),
    /// These world ranks.
    Some(Members),
}

/// A list of world ranks.
#[derive(Clone, Debug)]
pub(crate) struct Members {
    ranks: Arc<[u32]>,
    /// Each is above the one before, as in most groups: so one is found without a look at all.
    ascending: bool,
}

impl Deref for Members {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        &self.ranks
    }
}

impl Members {
    fn position(&self, world: usize) -> Option<usize> {
        let world = u32::try_from(world).ok()?;
        match self.ascending {
            true => self.ranks.binary_search(&world).ok(),
            false => self.ranks.iter().position(|rank| *rank == world),
        }
    }
}

impl Group {
    /// These world ranks, in this order.
    pub(crate) fn of(ranks: impl Iterator<Item = usize>) -> Group {
        let ranks: Arc<[u32]> = ranks.map(|rank| rank as u32).collect();
        Group::Some(Members { ascending: ranks.is_sorted_by(|one, next| one < next), ranks })
    }

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

    /// The lowest world rank among the members.
    pub(crate) fn lowest(&self) -> usize {
        match self {
            Group::World(_) => 0,
            Group::Some(members) if members.ascending => {
                members.first().map_or(0, |rank| *rank as usize)
            }
            Group::Some(members) => members.iter().min().map_or(0, |rank| *rank as usize),
        }
    }

    /// The rank here of a world rank, if it is a member.
    pub(crate) fn local(&self, world: usize) -> Option<usize> {
        match self {
            Group::World(size) => (world < *size).then_some(world),
            Group::Some(ranks) => ranks.position(world),
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
    /// Its place on the areas of its members.
    pub(crate) area: usize,
    pub(crate) group: Group,
    /// Those of its members that share this process's arena, in the same order.
    pub(crate) here: Group,
    /// How many faults there were when it was last seen that none of them concerns this one.
    pub(crate) faults_seen: Cell<u32>,
    /// Faults up to this number do not concern it.
    pub(crate) examined: Cell<u32>,
    /// What has stopped it, once this rank knows.
    pub(crate) fault: OnceCell<Box<Fault>>,
    /// The rank has the communicator, and with it its page of the area.
    pub(crate) held: bool,
    /// Nobody but the rank's own agent can use it: it does not count among those that any thread may
    /// have.
    pub(crate) confined: bool,
    /// Which of the communicator's tracks of started calls it is; 0 for all other calls.
    pub(crate) track: usize,
    /// Of a communicator that the program has made: what its ranks in this process share.
    pub(crate) together: Option<Arc<Together>>,
}

/// What the ranks of one process have found out about a communicator, so that not each looks at
/// all.
#[derive(Debug, Default)]
pub(crate) struct Together {
    /// How far they have looked for who still uses it.
    left: Mutex<(CommRecord, usize)>,
    /// As [`Scope::examined`].
    examined: AtomicU32,
    /// As [`Scope::fault`].
    fault: OnceLock<Fault>,
}

/// What a communicator came to, by a rank's account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CommRecord {
    /// How many rounds there were, on its area and on those of its tracks.
    pub(crate) rounds: [u64; 1 + TRACKS],
    pub(crate) agreements: u64,
    /// Whether the rank has stopped it.
    pub(crate) stopped: bool,
}

impl Together {
    /// Whether all members `here` have left what ended like this. Who has left does not come back.
    pub(crate) fn is_over(
        &self,
        account: CommRecord,
        here: &Group,
        has_left: impl Fn(usize) -> bool,
    ) -> bool {
        let mut looked = self.left.lock();
        if looked.0 != account {
            *looked = (account, 0);
        }
        while looked.1 < here.len() && has_left(here.world(looked.1)) {
            looked.1 += 1;
        }
        looked.1 == here.len()
    }
}

/// Numbers of communicators below this belong to blocks.
pub(crate) const FIRST_CONTEXT: u64 = 1 << 32;

impl Scope {
    pub(crate) fn new(context: u64, block: u32, area: usize, group: Group, here: Group) -> Scope {
        let (faults_seen, examined, fault) = Default::default();
        let (held, confined, track, together) = (true, false, 0, None);
        Scope {
            context,
            block,
            area,
            group,
            here,
            faults_seen,
            examined,
            fault,
            held,
            confined,
            track,
            together,
        }
    }

    /// What does not concern `parent` does not concern this part of it, which was made later.
    pub(crate) fn within(self, parent: &Scope) -> Scope {
        self.faults_seen.set(parent.faults_seen.get());
        self.examined.set(parent.examined());
        self
    }

    /// What has stopped it, if another rank of this process knows.
    pub(crate) fn fault_of_others(&self) -> Option<Fault> {
        self.together.as_ref()?.fault.get().cloned()
    }

    /// Faults up to this number do not concern it, as far as ranks of this process know.
    pub(crate) fn examined(&self) -> u32 {
        let together = self.together.as_ref().map_or(0, |it| it.examined.load(Relaxed));
        self.examined.get().max(together)
    }

    /// This rank has seen that none up to this number does.
    pub(crate) fn has_examined(&self, last: u32) {
        self.examined.set(last);
        if let Some(together) = &self.together {
            together.examined.fetch_max(last, Relaxed);
        }
    }

    /// This rank knows what has stopped it.
    pub(crate) fn has_stopped(&self, fault: &Fault) {
        let _ = self.fault.set(Box::new(fault.clone()));
        if let Some(together) = &self.together {
            let _ = together.fault.set(fault.clone());
        }
    }

    /// Whether this is a block's own communicator, not one that the program has made.
    #[inline]
    pub(crate) fn is_primary(&self) -> bool {
        self.context < FIRST_CONTEXT
    }
}
