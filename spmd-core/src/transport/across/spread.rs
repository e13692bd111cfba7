//! How the ranks of a communicator lie in several processes, in each of which one leads (`lead.rs`).

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::joined::Across;
use super::leaders::Leaders;
use super::now::Now;
use crate::group::Group;
use crate::transport::fabric::Processes;
use crate::transport::shared::World;

/// How the ranks of a communicator lie in processes.
pub(crate) struct Spread {
    pub(super) across: Arc<Across>,
    leaders: Arc<Leaders>,
    /// Of each process that holds some, the ranks, ascending, as the communicator numbers them.
    pub(super) members: Vec<Vec<usize>>,
    /// Of each rank, which of those processes holds it.
    pub(super) places: Vec<usize>,
    /// The ranks of each process follow those of the one before.
    pub(super) ordered: bool,
    /// Whether this is the block's own communicator, and each process has one rank.
    pub(super) lone_ranks: bool,
    /// Whether steps hold their process up, which costs less than to ask again and again whether
    /// they are complete. All processes do the same, since libraries take the two for different
    /// calls. It must be known of each that nobody else in it can be waited for: that no other
    /// communicator has been made since all had none.
    pub(super) blocking: AtomicBool,
}

impl Deref for Spread {
    type Target = Leaders;

    #[inline]
    fn deref(&self) -> &Leaders {
        &self.leaders
    }
}

impl Spread {
    /// The ranks of `group` in `processes`, which are those that hold some of them, in the order of
    /// their lowest, in the communicator of this number and board, which is the block's own if it is
    /// `primary`. Its lead makes it [known](Spread::be_known).
    pub(crate) fn new(
        across: Arc<Across>,
        group: &Group,
        processes: Arc<dyn Processes>,
        (context, board): (u64, usize),
        primary: bool,
    ) -> Arc<Spread> {
        let (members, places) = Spread::lay_out(&across, group);
        let homes = members.iter().map(|ranks| across.process_of(group.world(ranks[0]))).collect();
        let ordered = members.iter().flatten().copied().eq(0..group.len());
        let leads: Vec<u32> = members.iter().map(|ranks| group.world(ranks[0]) as u32).collect();
        let lead = leads[processes.rank()] as usize;
        let now = Now::new(context, board, lead, leads);
        let lone_ranks = primary && across.each == 1 && !across.survives();
        let blocking = AtomicBool::new(lone_ranks);
        let leaders = Arc::new(Leaders::new(processes, homes, now, primary));
        Arc::new(Spread { across, leaders, members, places, ordered, lone_ranks, blocking })
    }

    /// Has the watch look at it.
    pub(crate) fn be_known(&self) {
        self.across.know(&self.leaders);
    }

    /// Of each of those, the ranks, ascending, as the communicator numbers them.
    pub(crate) fn members(&self) -> &[Vec<usize>] {
        &self.members
    }

    /// `rank` is through with this communicator.
    pub(crate) fn drop_by(&self, world: &World, rank: usize) {
        if rank == self.now().lead() {
            self.across.close_account(world, &self.leaders);
        }
    }

    pub(crate) fn across(&self) -> &Arc<Across> {
        &self.across
    }

    /// The ranks of each process that holds some of a group, and of each rank the process.
    fn lay_out(across: &Across, group: &Group) -> (Vec<Vec<usize>>, Vec<usize>) {
        let mut number = vec![usize::MAX; across.fabric.processes()];
        let mut members = Vec::<Vec<usize>>::new();
        let mut places = Vec::with_capacity(group.len());
        for (rank, member) in group.iter().enumerate() {
            let process = across.process_of(member);
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
