//! Going on when ranks fail: agreeing on something, and communicators of the survivors.

use std::panic::Location;

use super::cluster_agreement::AllProposals;
use super::communicator::Comm;
use super::tally::{RankProposal, Tally, is_offer};
use crate::call::{Call, Kind};
use crate::error::{Error, Result};
use crate::fault::{Cause, Fault, by_call};

/// Going on when ranks fail (chapter "User-Level Failure Mitigation" proposed to the MPI Forum).
/// A failure stops a communicator for good: each of its ranks gets [`Error::PeerFailed`] from the
/// call that it is in or makes next. These two calls work nevertheless.
///
/// An iteration that saves what it has, and goes on from there with fewer ranks:
///
/// ```
/// use spmd::prelude::*;
/// # use std::sync::Mutex;
/// /// What all ranks have after a step that all have made: here the same on each.
/// struct Saved {
///     step: u64,
///     sum: u64,
/// }
///
/// fn steps(comm: &Comm, saved: &mut Saved) -> Result<()> {
///     while saved.step < 10 {
///         let step = saved.step + 1;
/// #       if step == 5 && comm.world_rank(comm.rank()) == 1 {
/// #           return Err("a rank fails".into());
/// #       }
///         // Some ranks may come through this while others learn of a failure ..
///         let sum = saved.sum + sum_over(comm, step)?;
///         // .. but either all come through this, or none.
///         comm.agree(1)?;
///         *saved = Saved { step, sum };
///     }
///     Ok(())
/// }
/// # /// The sum of 12 numbers, each of which belongs to a rank.
/// # fn sum_over(comm: &Comm, step: u64) -> Result<u64> {
/// #     let mine: u64 = (0..12).filter(|i| i % comm.size() == comm.rank()).map(|i| i as u64 * step).sum();
/// #     (0..comm.size()).try_for_each(|to| comm.send(&[mine], to, 0))?;
/// #     (0..comm.size()).map(|from| Ok(comm.recv_vec::<u64>(from, 0)?.0[0])).sum()
/// # }
///
/// fn solve(ctx: &Ctx) -> Result<u64> {
///     let mut saved = Saved { step: 0, sum: 0 };
///     let mut comm = ctx.shrink()?; // of all ranks, as none has failed yet
///     loop {
///         match steps(&comm, &mut saved) {
///             Ok(()) => return Ok(saved.sum),
///             Err(Error::PeerFailed(_)) => comm = comm.shrink()?,
///             Err(other) => return Err(other),
///         }
///     }
/// }
/// # let sums = Mutex::new(Vec::new());
/// # spmd(4, |ctx| {
/// #     let sum = solve(ctx)?;
/// #     sums.lock().unwrap().push(sum);
/// #     Ok(())
/// # })
/// # .unwrap_err();
/// # assert_eq!(sums.into_inner().unwrap(), [55 * 66; 3]);
/// ```
///
/// Without [`Comm::agree`] a rank could save a step of which another one has nothing, or return
/// while others still need it.
impl Comm {
    /// Makes a communicator of the ranks that are left, in the order that they have here: of those
    /// that call this. All ranks call it that have not ended their block: by an error, a panic,
    /// their process's end, or by returning. It works whatever has stopped this communicator, or
    /// if nothing has, and all that it gives a communicator have one of the same ranks, also if
    /// ranks fail meanwhile. One that fails after it has taken part is a rank of the new
    /// communicator, which its failure stops at once; shrink again.
    ///
    /// The new communicator has nothing in common with this one. A rank that has made one without
    /// some failed rank has dealt with that failure: [`run`](crate::run) and `spmdrun`
    /// do not report it as an error of this rank at the end, and messages in communicators made
    /// before need not be received. A block of threads or virtual ranks, which has no value of the
    /// failed rank to give, still ends with the first failure as its error.
    ///
    /// Cost: two meetings, and 2 n reads a process.
    ///
    /// Errors: too many communicators are in use; the ranks wait for each other in a cycle; the
    /// time limit for waiting passed. [`Error::Unavailable`], where ranks live in several processes
    /// joined by an MPI that does not go on when one fails, or where a rank in a process that lives
    /// has left the block. There, a failed rank ends its process.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let ended = spmd(4, |ctx| {
    ///     if ctx.rank() == 1 {
    ///         return Err("no more data".into());
    ///     }
    ///     let failed = ctx.recv(&mut [0], 1, 0).unwrap_err();
    ///     assert!(matches!(&failed, Error::PeerFailed(peer) if peer.rank == 1));
    ///     let comm = ctx.shrink()?;
    ///     assert_eq!(comm.size(), 3);
    ///     comm.send(&[ctx.rank()], (comm.rank() + 1) % 3, 0)?;
    ///     let from = comm.recv_vec::<usize>((comm.rank() + 2) % 3, 0)?.0[0];
    ///     assert_eq!(from, [3, 0, 2][comm.rank()]);
    ///     Ok(())
    /// });
    /// assert_eq!(ended.unwrap_err().to_string(), "no more data");
    /// ```
    #[track_caller]
    pub fn shrink(&self) -> Result<Comm> {
        let call = Call::new(Kind::Shrink, Location::caller());
        self.carried(&call, || {
            loop {
                if let Some(comm) = self.try_shrink(&call)? {
                    return Ok(comm);
                }
            }
        })
    }

    /// Gives all ranks the same, although some fail: the bits that are set in the `flags` of all of
    /// them, if all ranks of the communicator have taken part, else the same error. All ranks
    /// call it. It works whatever has stopped this communicator, so that ranks for which a step has
    /// gone well and those that learnt of a failure in it can decide together whether all make it
    /// or none. A rank that fails after it has taken part counts.
    ///
    /// A rank may call [`Comm::shrink`] instead. The others get the error then, and can shrink as
    /// well.
    ///
    /// Cost: one meeting, and n reads a process.
    ///
    /// Errors, the same on all ranks: [`Error::PeerFailed`], if a rank has failed before it took
    /// part, or another one, having learnt of a failure, shrinks the communicator;
    /// [`Error::Stopped`], if one has left. On one rank: the ranks wait for each other in a cycle,
    /// or the time limit for waiting passed, after either of which this rank can agree on nothing
    /// more here. [`Error::Unavailable`], as [`Comm::shrink`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// // Is everybody done? Flag 0 says so, flag 1 that the data are good.
    /// let agreed = spmd(3, |ctx| ctx.agree(if ctx.rank() == 2 { 0b10 } else { 0b11 }))?;
    /// assert_eq!(agreed, [0b10; 3]);
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn agree(&self, flags: u64) -> Result<u64> {
        let call = Call::new(Kind::Agree, Location::caller());
        self.carried(&call, || {
            let tally = self.propose(&call, RankProposal::Flags(flags))?.tally;
            match tally.gone.first() {
                Some(rank) => Err(self.missing(&call, self.world_rank(*rank))),
                None if tally.flagged.len() == self.size() => Ok(tally.flags),
                None => Err(self.vetoed(&call, &tally)),
            }
        })
    }

    /// One try: none if a rank was not there, or another thread has taken some rank's area
    /// meanwhile. All ranks that get an answer get the same.
    fn try_shrink(&self, call: &Call<'_>) -> Result<Option<Comm>> {
        let proposals = self.propose(call, RankProposal::ContextOffer(self.internals().offer()))?;
        let tally = &proposals.tally;
        // One that has proposed something else will learn that others shrink.
        let Some(common) = tally.offered(self)? else { return Ok(None) };
        let area = common.area(self, call)?;
        let me = tally.members.binary_search(&self.me).expect("it has just proposed");
        // SAFETY: all members have the same proposals before them, and so the same list, area and
        // base. What one of them has got is dropped unless all say below that they have one.
        let child = proposals.processes.and_then(|processes| unsafe {
            self.internals().child(
                call,
                (tally.part(self), me),
                (area, common.context()),
                processes,
            )
        });
        // Nobody looks at a page of the area before its owner has cleared it.
        let made = self.propose(call, RankProposal::Made(child.is_some()))?.tally.made;
        let Some(child) = child.filter(|_| made == tally.members.len()) else { return Ok(None) };
        self.endpoint.go_on(&self.scope, &child.scope, tally.left_behind(self));
        Ok(Some(child))
    }

    /// Makes a proposal, and gives those of all ranks.
    fn propose(&self, call: &Call<'_>, proposal: RankProposal) -> Result<AllProposals> {
        let words = proposal.to_words();
        if let Some(hierarchy) = &self.hierarchy {
            return self.propose_on_cluster(hierarchy, call, &words, is_offer);
        }
        let noted = self.note(call);
        let tally = self.endpoint.agree_on(&self.scope, &self.area, call, noted, &words)?;
        Ok(AllProposals { tally, processes: Some(None) })
    }

    /// That a rank has ended without taking part.
    fn missing(&self, call: &Call<'_>, rank: usize) -> Error {
        let (world, block) = (&self.endpoint.world, self.scope.block);
        if !world.has_failed(rank, block) {
            let waiting = format!("rank {}: {call}", self.endpoint.rank);
            return Error::stopped(Fault::Left { rank, waiting }, call);
        }
        let fault = world.failure_of(rank, block);
        Error::stopped(fault.unwrap_or(Fault::Rank { rank, cause: Cause::Lost }), call)
    }

    /// That another rank shrinks the communicator, and why it may.
    fn vetoed(&self, call: &Call<'_>, tally: &Tally) -> Error {
        let fault = self.endpoint.first_fault(&self.scope).unwrap_or_else(|| {
            let mismatch = || {
                let name = |rank: usize| match tally.flagged.binary_search(&rank) {
                    Ok(_) => call.to_string(),
                    Err(_) => Kind::Shrink.name().to_owned(),
                };
                let calls = (0..self.size()).map(|rank| (self.world_rank(rank), name(rank)));
                Fault::Mismatch { calls: by_call(calls), what: "different calls".into() }
            };
            tally.veto.get_or_init(mismatch).clone()
        });
        Error::stopped(fault, call)
    }
}
