//! Collectives of a communicator whose ranks live in several processes.

use std::cell::Cell;
use std::sync::Arc;

use super::communicator::Comm;
use super::internals::Internals;
use crate::call::Call;
use crate::element::DType;
use crate::error::Result;
use crate::op::ErasedOp;
use crate::transport::cluster::Leader;
use crate::transport::fabric::ProcessGroup;
use crate::transport::shared::collective::Round;

impl Comm {
    /// The handle by which an MPI library knows the processes of this communicator, for calls of
    /// MPI by the program itself: the bits of an `MPI_Comm` of MPI's standard ABI. `None` where
    /// ranks share memory. Any rank may call it.
    ///
    /// The handle is good as long as this communicator. MPI serves one thread at a time here
    /// (`MPI_THREAD_SERIALIZED`): no rank of the process makes a call of this library meanwhile, and
    /// with [`Progress::Thread`](crate::Progress::Thread) no started call or message is under way.
    /// What goes over it must not be mixed up with this library's own: use `MPI_Comm_dup` of it.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// // Threads need no MPI.
    /// assert_eq!(spmd(2, |ctx| Ok(ctx.mpi_handle()))?, [None; 2]);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn mpi_handle(&self) -> Option<usize> {
        let processes = self.hierarchy.as_ref()?.processes().ok()?;
        Some(processes.handle())
    }
}

impl<'a> Internals<'a> {
    /// Whether its ranks live in several processes without common memory.
    #[inline]
    pub fn spans_processes(self) -> bool {
        self.0.hierarchy.is_some()
    }

    /// Whether it is the block's own, and each of its processes holds a single rank: the only communicator of
    /// which calls [may block](Internals::may_block).
    pub fn has_lone_ranks(self) -> bool {
        self.0.hierarchy.as_ref().is_some_and(|hierarchy| hierarchy.has_lone_ranks())
    }

    /// Has the processes meet, and tells all ranks alike whether the next call may hold them up in the library that
    /// joins them: if nobody else in any of them can be waited for. That is so until the call is over, as there is nobody but the rank
    /// that makes it. All ranks call it, of a communicator that [has lone ranks](Internals::has_lone_ranks).
    ///
    /// Errors: the ranks have made different calls; as of a collective.
    pub fn may_block(self, call: &Call<'_>) -> Result<bool> {
        let may = Cell::new(false);
        let meet = |leader: &Leader<'_, ()>| {
            leader.meet()?;
            may.set(leader.blocks());
            Ok(())
        };
        // SAFETY: no memory is named.
        unsafe { self.collective_on_cluster(call, (), meet)? };
        Ok(may.get())
    }

    /// Whether what joins its processes folds elements of this type with this operation, in an order of its own.
    pub fn library_folds(self, dtype: &DType, op: &ErasedOp<'_>) -> bool {
        let processes = self.0.hierarchy.as_ref().and_then(|hierarchy| hierarchy.processes().ok());
        processes.is_some_and(|processes| processes.folds(dtype, op))
    }

    /// Whether what joins its processes takes memory of a device as that of the host, in this one.
    pub fn takes_devices(self) -> bool {
        self.0.beyond.cluster.as_ref().is_some_and(|cluster| cluster.fabric.takes_devices())
    }

    /// What joins its ranks: `shm`, or `mpi`.
    pub fn transport(self) -> &'static str {
        if self.0.beyond.cluster.is_some() { "mpi" } else { "shm" }
    }

    /// What joins its processes, in that library's own words. `None` where ranks share memory.
    pub fn library(self) -> Option<&'a str> {
        self.0.beyond.cluster.as_ref().map(|cluster| cluster.fabric.name())
    }

    /// Whether a library beneath must not fold in an order of its own.
    pub fn is_reproducible(self) -> bool {
        self.0.endpoint.world.tuning.reproducible
    }

    /// Runs a collective of ranks that live in several processes: in each, `leader` on one of them,
    /// while the others wait. All ranks call it, in the same order, with a `P` of the same type.
    ///
    /// # Safety
    /// What `leader` does with the `P`s of all ranks of its process is sound as long as these are
    /// in this call.
    pub unsafe fn collective_on_cluster<P: Copy>(
        self,
        call: &Call<'_>,
        part: P,
        leader: impl FnOnce(&Leader<'_, P>) -> Result<()>,
    ) -> Result<()> {
        let hierarchy = self.0.hierarchy.as_ref().expect("the communicator spans processes");
        self.collective(call, |round| {
            let others;
            let own = [&raw const part];
            let parts = match round.size() {
                1 => &own[..],
                // SAFETY: `part` stays where it is until this call of `collective` is over, or
                // nobody reads it any more; nobody writes it.
                _ => match unsafe { meet_leader(round, call, own[0])? } {
                    Some(parts) => {
                        others = parts;
                        &others[..]
                    }
                    None => return Ok(()),
                },
            };
            hierarchy.leader(round, parts, leader)?;
            // SAFETY: the leader has met all ranks, in stage 1 of `meet_leader`, or there is nobody
            // else.
            unsafe { round.all_met() };
            if parts.len() > 1 {
                round.publish(2);
            }
            Ok(())
        })
    }
}

/// Shows `part` to the leader of this process, which gets those of all ranks here, ascending. The
/// others get none, and the leader is through when this returns.
///
/// Errors: the ranks' calls do not fit together; as those of a round.
///
/// # Safety
/// `part` stays where it is until the round is over, or nobody reads it any more; nobody writes it.
#[inline(never)]
unsafe fn meet_leader<P>(
    round: &Round<'_>,
    call: &Call<'_>,
    part: *const P,
) -> Result<Option<Vec<*const P>>> {
    // SAFETY: it stays where it is until the round is over, or nobody reads it any more; nobody
    // writes it (this function's contract).
    unsafe { round.expose(PART, part.cast(), size_of::<P>()) };
    let rules = rules(call);
    round.set_number(RULES, rules);
    round.set_number(COUNT, call.count as u64);
    if round.rank() != 0 {
        round.publish_to(1, 0);
        round.wait_for(0, 2)?;
        // SAFETY: the leader has met all ranks in stage 1 before it came to stage 2.
        unsafe { round.all_met() };
        return Ok(None);
    }
    round.publish(1);
    round.wait_for_all(1)?;
    if (0..round.size()).any(|peer| round.number_of(peer, RULES) != rules) {
        return Err(round.disagree("different element types"));
    }
    if (0..round.size()).any(|peer| round.number_of(peer, COUNT) != call.count as u64) {
        return Err(round.disagree("different counts"));
    }
    let parts = (0..round.size()).map(|peer| match peer {
        0 => Ok(part),
        _ => {
            let shown = round.reach(peer, PART, size_of::<P>())?;
            shown.map(|place| place.cast()).ok_or_else(|| round.lied(peer))
        }
    });
    Ok(Some(parts.collect::<Result<Vec<*const P>>>()?))
}

/// By which, and by the count, the leader writes into the buffers of others. That they make the same
/// call is a matter of a hash; how long these are, and that the leader looks at what their type has
/// to be looked at, must not be.
fn rules(call: &Call<'_>) -> u64 {
    let (size, checked) = call.dtype.map_or((0, false), |it| (it.size, it.valid.is_some()));
    call.kind as u64 | u64::from(checked) << 8 | u64::from(size) << 32
}

/// The number under which a rank says its rules.
const RULES: usize = 0;

/// The number under which a rank says its count.
const COUNT: usize = 1;

/// What a rank gives and gets when sets of processes are made.
#[derive(Clone, Copy)]
struct Made {
    members: *const usize,
    count: usize,
    out: *mut Option<Arc<dyn ProcessGroup>>,
}

impl Internals<'_> {
    /// The processes that hold these ranks of this communicator: `None` where it does not span
    /// processes, or `members` is empty. All ranks of it call this, those with the same members get
    /// the same.
    pub fn processes_of(
        self,
        call: &Call<'_>,
        members: &[usize],
    ) -> Result<Option<Arc<dyn ProcessGroup>>> {
        let mut result = None;
        if !self.spans_processes() {
            return Ok(result);
        }
        let out = &raw mut result;
        let made = Made { members: members.as_ptr(), count: members.len(), out };
        // SAFETY: the members and the result of each rank stay where they are during the call, in
        // which the leader alone touches them.
        unsafe { self.collective_on_cluster(call, made, make_processes)? };
        Ok(result)
    }
}

/// Makes the sets of processes for which there are members here.
fn make_processes(leader: &Leader<'_, Made>) -> Result<()> {
    leader.in_turn(|| make_in_turn(leader))
}

/// Makes them in the same order everywhere, so that no two processes wait for each other. Where
/// others go on when a process fails, all make each set together: only that can be ended.
fn make_in_turn(leader: &Leader<'_, Made>) -> Result<()> {
    // SAFETY: `Comm::processes_of` keeps them.
    let members = |made: &Made| unsafe { std::slice::from_raw_parts(made.members, made.count) };
    let mut parts: Vec<Made> = leader.parts().filter(|made| made.count > 0).collect();
    parts.sort_unstable_by_key(|made| members(made)[0]);
    let groups = parts.chunk_by(|one, other| members(one)[0] == members(other)[0]);
    // Those of one process have an arena.
    let groups = groups.filter(|group| processes_of(leader, members(&group[0])).len() > 1);
    let (together, all) = (leader.hierarchy.cluster().survives(), leader.hierarchy.processes()?);
    let mut groups = groups.peekable();
    loop {
        let mine = groups.peek().map_or(NO_GROUP, |group| members(&group[0])[0] as u64);
        let next = if together { leader.least(mine)? } else { mine };
        if next == NO_GROUP {
            return Ok(());
        }
        let group = groups.next_if(|_| mine == next).unwrap_or_default();
        let processes = group.first().map_or(vec![], |made| processes_of(leader, members(made)));
        let set = match together {
            true => all.part(&processes),
            false => all.subset(&processes, next as u32).map(Some),
        };
        let set = set.map_err(|error| leader.explain(error))?;
        for made in group {
            // SAFETY: as above.
            unsafe { *made.out = set.clone() };
        }
    }
}

/// More than any rank.
const NO_GROUP: u64 = u64::MAX;

/// The processes that hold these ranks, in the order of their lowest.
fn processes_of(leader: &Leader<'_, Made>, group: &[usize]) -> Vec<usize> {
    let mut seen = vec![false; leader.processes()];
    let processes = group.iter().map(|rank| leader.process_of(*rank));
    processes.filter(|process| !std::mem::replace(&mut seen[*process], true)).collect()
}

/// Which of a rank's exposures is its `P`.
const PART: usize = 0;
