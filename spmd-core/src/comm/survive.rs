//! Going on when ranks fail: agreeing on something, and communicators of the survivors.

use std::panic::Location;

use super::settle::Heard;
use super::{Comm, Offer, Part};
use crate::call::{Call, Kind};
use crate::error::{Error, Result};
use crate::fault::{Cause, Fault, by_call};
use crate::transport::shared::board::agreement::{WORDS, Words};

/// Going on when ranks fail (chapter "User-Level Failure Mitigation" proposed to the MPI Forum).
/// A failure stops a communicator for good: each of its ranks gets [`Error::PeerFailed`] from the
/// call that it is in or makes next. These two calls work nevertheless.
///
/// An iteration that saves what it has, and goes on from there with fewer ranks:
///
/// ```
/// # use spmd_core::{Comm, Ctx, Error, Result, spmd};
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
///             Err(Error::PeerFailed { .. }) => comm = comm.shrink()?,
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
    /// some failed rank has dealt with that failure: [`crate::run`] and `spmdrun`
    /// do not report it as an error of this rank at the end, and messages in communicators made
    /// before need not be received. A block of threads or virtual ranks, which has no value of the
    /// failed rank to give, still ends with the first failure as its error.
    ///
    /// Cost: two meetings, and 2 n reads a rank.
    ///
    /// Errors: too many communicators are in use; the ranks wait for each other in a circle; the
    /// time limit for waiting passed. [`Error::Unavailable`], where ranks live in several processes
    /// joined by an MPI that does not go on when one fails, or where a rank in a process that lives
    /// has left the block. There, a failed rank ends its process.
    ///
    /// ```
    /// # use spmd_core::{Error, spmd};
    /// let ended = spmd(4, |ctx| {
    ///     if ctx.rank() == 1 {
    ///         return Err("no more data".into());
    ///     }
    ///     let failed = ctx.recv(&mut [0], 1, 0).unwrap_err();
    ///     assert!(matches!(failed, Error::PeerFailed { rank: 1, .. }));
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
    /// Cost: one meeting, and n reads a rank.
    ///
    /// Errors, the same on all ranks: [`Error::PeerFailed`], if a rank has failed before it took
    /// part, or another one, having learnt of a failure, shrinks the communicator;
    /// [`Error::Stopped`], if one has left. On one rank: the ranks wait for each other in a circle,
    /// or the time limit for waiting passed, after either of which this rank can agree on nothing
    /// more here. [`Error::Unavailable`], as [`Comm::shrink`].
    ///
    /// ```
    /// # use spmd_core::{Error, spmd};
    /// // Is everybody done? Flag 0 says so, flag 1 that the data are good.
    /// let agreed = spmd(3, |ctx| ctx.agree(if ctx.rank() == 2 { 0b10 } else { 0b11 }))?;
    /// assert_eq!(agreed, [0b10; 3]);
    /// # Ok::<(), spmd_core::Error>(())
    /// ```
    #[track_caller]
    pub fn agree(&self, flags: u64) -> Result<u64> {
        let call = Call::new(Kind::Agree, Location::caller());
        self.carried(&call, || {
            let proposals = self.proposals(&call, Proposal::Flags(flags))?;
            let mut agreed = u64::MAX;
            for (rank, proposal) in proposals.iter().enumerate() {
                match proposal {
                    Some(Proposal::Flags(flags)) => agreed &= flags,
                    Some(_) => {}
                    None => return Err(self.missing(&call, self.world_rank(rank))),
                }
            }
            let flags = |proposal: &Option<_>| matches!(proposal, Some(Proposal::Flags(_)));
            if proposals.iter().all(flags) {
                Ok(agreed)
            } else {
                Err(self.vetoed(&call, &proposals))
            }
        })
    }

    /// One try: none if a rank was not there, or another thread has taken some rank's board
    /// meanwhile. All ranks that get an answer get the same.
    fn try_shrink(&self, call: &Call<'_>) -> Result<Option<Comm>> {
        let own = self.offer();
        let heard = self.propose(call, Proposal::Offer(own))?;
        let proposals = read(&heard);
        let (mut members, mut common) = (Vec::new(), own);
        for (rank, proposal) in proposals.iter().enumerate() {
            match proposal {
                Some(Proposal::Offer(offer)) => {
                    members.push(rank);
                    common = common.and(*offer);
                }
                // It will learn that others shrink.
                Some(_) => return Ok(None),
                None => {}
            }
        }
        if let Some(rank) = members.iter().find(|rank| !is_sound(&proposals[**rank])) {
            let (rank, what) = (self.world_rank(*rank), "it offers a number that cannot be");
            return Err(Error::Corrupt { rank, what });
        }
        let board = common.board(self, call)?;
        let me = members.iter().position(|rank| *rank == self.me).expect("it has just proposed");
        // SAFETY: all members have the same proposals before them, and so the same list, board and
        // base. What one of them has got is dropped unless all say below that they have one.
        let child = heard.processes.and_then(|processes| unsafe {
            let part = Part::new(self, &members);
            self.child(call, (&part, me), (board, common.context()), processes)
        });
        // Nobody looks at a page of the board before its owner has cleared it.
        let made = self.proposals(call, Proposal::Made(child.is_some()))?;
        let all = members.iter().all(|rank| matches!(made[*rank], Some(Proposal::Made(true))));
        let Some(child) = child.filter(|_| all) else { return Ok(None) };
        let gone = (0..self.size()).filter(|rank| members.binary_search(rank).is_err());
        let gone: Vec<usize> = gone.map(|rank| self.world_rank(rank)).collect();
        self.endpoint.go_on(&self.scope, &child.scope, &gone);
        Ok(Some(child))
    }

    /// Makes a proposal, and gives those of all ranks.
    fn propose(&self, call: &Call<'_>, proposal: Proposal) -> Result<Heard> {
        let words = proposal.to_words();
        if let Some(spread) = &self.spread {
            return self.propose_across(spread, call, &words, |words| words[0] == OFFER);
        }
        let noted = self.note(call);
        let proposals = self.endpoint.agree_on(&self.scope, &self.board, call, noted, &words)?;
        Ok(Heard { proposals, processes: Some(None) })
    }

    /// The same without the processes.
    fn proposals(&self, call: &Call<'_>, proposal: Proposal) -> Result<Vec<Option<Proposal>>> {
        Ok(read(&self.propose(call, proposal)?))
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
    fn vetoed(&self, call: &Call<'_>, proposals: &[Option<Proposal>]) -> Error {
        let fault = self.endpoint.first_fault(&self.scope).unwrap_or_else(|| {
            let name = |proposal: &Option<Proposal>| match proposal {
                Some(Proposal::Flags(_)) => call.to_string(),
                _ => Kind::Shrink.name().to_owned(),
            };
            let calls = proposals.iter().enumerate();
            let calls = calls.map(|(rank, it)| (self.world_rank(rank), name(it)));
            Fault::Mismatch { calls: by_call(calls), what: "different calls".into() }
        });
        Error::stopped(fault, call)
    }
}

/// What ranks have proposed, by rank; `None` of those that have ended.
fn read(heard: &Heard) -> Vec<Option<Proposal>> {
    let read = |words: &Option<_>| words.as_ref().map(Proposal::from_words);
    heard.proposals.iter().map(read).collect()
}

/// Whether an offer, which may be another process's word, can be one.
fn is_sound(proposal: &Option<Proposal>) -> bool {
    matches!(proposal, Some(Proposal::Offer(offer)) if offer.can_include(offer))
}

/// What a rank says in an agreement.
enum Proposal {
    /// Of [`Comm::agree`].
    Flags(u64),
    /// What it has for the new communicator.
    Offer(Offer),
    /// Whether it has made it.
    Made(bool),
}

const FLAGS: u64 = 1;
const OFFER: u64 = 2;

impl Proposal {
    fn to_words(&self) -> Words {
        let mut words = [0; WORDS];
        match self {
            Proposal::Flags(flags) => words[..2].copy_from_slice(&[FLAGS, *flags]),
            Proposal::Offer(offer) => {
                words[0] = OFFER;
                words[1..].copy_from_slice(&offer.0);
            }
            Proposal::Made(made) => words[1] = u64::from(*made),
        }
        words
    }

    fn from_words(words: &Words) -> Proposal {
        match words[0] {
            FLAGS => Proposal::Flags(words[1]),
            OFFER => Proposal::Offer(Offer(std::array::from_fn(|word| words[word + 1]))),
            // What no rank says counts as a no.
            _ => Proposal::Made(words[1] == 1),
        }
    }
}
