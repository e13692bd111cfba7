//! How the ranks of a communicator lie in several processes, in each of which one leads
//! (`leader.rs`).

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use super::joined::Cluster;
use super::leader_group::Leaders;
use super::now::Now;
use crate::error::Result;
use crate::group::Group;
use crate::transport::fabric::ProcessGroup;
use crate::transport::shared::World;

/// How the ranks of a communicator lie in processes.
pub(crate) struct Hierarchy {
    pub(super) cluster: Arc<Cluster>,
    leaders: Arc<Leaders>,
    pub(super) ranks: Arc<RanksInProcesses>,
    /// Whether this is the block's own communicator, and each process has one rank.
    pub(super) lone_ranks: bool,
    /// Whether steps hold their process up, which costs less than to ask again and again whether
    /// they are complete. All processes do the same, since libraries take the two for different
    /// calls. It must be known of each that nobody else in it can be waited for: that no other
    /// communicator, and so no window, has been made since all had none.
    pub(super) blocking: AtomicBool,
    /// How many there have been of these.
    pub(super) blocking_steps: AtomicU32,
    /// Whether it is a persistent call's: whether its started calls are all the same.
    pub(super) repeats: AtomicBool,
    /// The same for its started calls, once there are some.
    started: OnceLock<Arc<Hierarchy>>,
}

/// Which ranks of a communicator live in which processes.
pub(super) struct RanksInProcesses {
    /// Of each process that holds some, the ranks, ascending, as the communicator numbers them.
    pub(super) members: Vec<Vec<usize>>,
    /// Of each rank, which of those processes holds it.
    pub(super) places: Vec<usize>,
    /// The ranks of each process follow those of the one before.
    pub(super) ordered: bool,
}

impl Deref for Hierarchy {
    type Target = Leaders;

    #[inline]
    fn deref(&self) -> &Leaders {
        &self.leaders
    }
}

/// The only track that is used where a communicator spans processes: Open MPI cannot make two
/// duplicates of a communicator at a time.
pub(crate) const STARTED: usize = 1;

impl Hierarchy {
    /// The ranks of `group` in `processes`, which are those that hold some of them, in the order of
    /// their lowest, in the communicator of this number and area, which is the block's own if it is
    /// `primary`. Its leader makes it [known](Hierarchy::be_known).
    pub(crate) fn new(
        cluster: Arc<Cluster>,
        group: &Group,
        processes: Arc<dyn ProcessGroup>,
        (context, area): (u64, usize),
        primary: bool,
    ) -> Arc<Hierarchy> {
        let (members, places) = Hierarchy::lay_out(&cluster, group);
        let homes = members.iter().map(|ranks| cluster.process_of(group.world(ranks[0]))).collect();
        let ordered = members.iter().flatten().copied().eq(0..group.len());
        let leaders: Arc<[u32]> =
            members.iter().map(|ranks| group.world(ranks[0]) as u32).collect();
        let leader = leaders[processes.rank()] as usize;
        let now = Now::new(context, area, leader, leaders);
        let ranks = Arc::new(RanksInProcesses { members, places, ordered });
        let lone_ranks = primary && cluster.each == 1 && !cluster.survives();
        let blocking = AtomicBool::new(lone_ranks);
        let leaders = Arc::new(Leaders::new(processes, homes, now, primary));
        Arc::new(Hierarchy {
            cluster,
            leaders,
            ranks,
            lone_ranks,
            blocking,
            blocking_steps: AtomicU32::new(0),
            repeats: AtomicBool::new(false),
            started: OnceLock::new(),
        })
    }

    /// Whether each process holds a single rank.
    pub(crate) fn is_flat(&self) -> bool {
        self.ranks.places.len() == self.ranks.members.len()
    }

    /// Whether this is the block's own communicator, and each process has one rank.
    pub(crate) fn has_lone_ranks(&self) -> bool {
        self.lone_ranks
    }

    /// A persistent call has this for its own, before its first start.
    pub(crate) fn repeat(&self) {
        self.repeats.store(true, Relaxed);
    }

    /// The same ranks on the track of started calls, where `area` is that of its leader.
    pub(crate) fn started(&self, area: usize) -> Arc<Hierarchy> {
        let make = || {
            Arc::new(Hierarchy {
                cluster: self.cluster.clone(),
                leaders: Arc::new(self.leaders.on_track(STARTED, area)),
                ranks: self.ranks.clone(),
                lone_ranks: false,
                blocking: AtomicBool::new(false),
                blocking_steps: AtomicU32::new(0),
                repeats: AtomicBool::new(self.repeats.load(Relaxed)),
                started: OnceLock::new(),
            })
        };
        self.started.get_or_init(make).clone()
    }

    /// The rank starts a call on a track. Its leader begins to join the processes for that, if they
    /// are not, and no step of the communicator holds its process up any more.
    pub(crate) fn start(&self, track: &Hierarchy, rank: usize) -> Result<()> {
        self.cluster.has_requests();
        if rank == self.now().leader() {
            self.blocking.store(false, Relaxed);
            if !track.have_begun() {
                track.join(self.processes()?)?;
                track.be_known();
            }
        }
        Ok(())
    }

    /// The track of started calls, if its processes are being joined.
    #[inline]
    pub(super) fn joining(&self) -> Option<&Hierarchy> {
        let track = self.started.get().filter(|track| track.processes().is_err())?;
        track.have_begun().then_some(track)
    }

    /// Has the failure detector look at it.
    pub(crate) fn be_known(&self) {
        self.cluster.register(&self.leaders);
    }

    /// Of each of those, the ranks, ascending, as the communicator numbers them.
    pub(crate) fn members(&self) -> &[Vec<usize>] {
        &self.ranks.members
    }

    /// `rank` is through with this communicator.
    pub(crate) fn drop_by(&self, world: &World, rank: usize) {
        if rank == self.now().leader() && self.have_begun() {
            self.cluster.close_account(world, &self.leaders);
        }
    }

    pub(crate) fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }

    /// The ranks of each process that holds some of a group, and of each rank the process.
    fn lay_out(cluster: &Cluster, group: &Group) -> (Vec<Vec<usize>>, Vec<usize>) {
        let mut number = vec![usize::MAX; cluster.fabric.processes()];
        let mut members = Vec::<Vec<usize>>::new();
        let mut places = Vec::with_capacity(group.len());
        for (rank, member) in group.iter().enumerate() {
            let process = cluster.process_of(member);
            if number[process] == usize::MAX {
                number[process] = members.len();
                members.push(Vec::new());
            }
            members[number[process]].push(rank);
            places.push(number[process]);
        }
        (members, places)
    }
}
