//! Collectives of a communicator whose ranks live in several processes: in each process one rank
//! leads, sees the buffers of the others, and makes the steps among processes for all of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::Across;
use super::finish::{differences, tell_all};
use super::now::Now;
use super::survive::{leave_step, notices};
use crate::element::{DType, Element};
use crate::error::{Error, Result};
use crate::group::Group;
use crate::op::{ErasedOp, Min};
use crate::transport::fabric::{Fold, Processes, Step};
use crate::transport::shared::board::Round;

/// How the ranks of a communicator lie in processes.
pub(crate) struct Spread {
    across: Arc<Across>,
    /// The processes that hold some of them, in the order of their lowest.
    pub(crate) processes: Arc<dyn Processes>,
    /// The numbers of those in the world.
    homes: Vec<usize>,
    /// Of each of those, the ranks, ascending, as the communicator numbers them.
    members: Vec<Vec<usize>>,
    /// Of each rank, which of those processes holds it.
    places: Vec<usize>,
    /// The ranks of each process follow those of the one before.
    ordered: bool,
    /// Whether this is the block's own communicator, and each process has one rank.
    lone_ranks: bool,
    /// Whether steps hold their process up, which costs less than to ask again and again whether
    /// they are complete. All processes do the same, since libraries take the two for different
    /// calls. It must be known of each that nobody else in it can be waited for: that no other
    /// communicator has been made since all had none.
    blocking: AtomicBool,
    now: Now,
}

impl Spread {
    /// The ranks of `group` in `processes`, which are those that hold some of them, in the order of
    /// their lowest; as `rank` sees it, one of them, in the communicator of this number and board,
    /// which is the block's own if it is `primary`.
    pub(crate) fn new(
        across: Arc<Across>,
        group: &Group,
        processes: Arc<dyn Processes>,
        (context, board): (u64, usize),
        rank: usize,
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
        let spread = Arc::new(Spread {
            across,
            processes,
            homes,
            members,
            places,
            ordered,
            lone_ranks,
            blocking,
            now,
        });
        if rank == lead {
            spread.across.know(&spread);
        }
        spread
    }

    /// Runs what the lead does in a round.
    #[inline]
    pub(crate) fn lead<P>(
        &self,
        round: &Round<'_>,
        parts: &[*const P],
        lead: impl FnOnce(&Lead<'_, P>) -> Result<()>,
    ) -> Result<()> {
        round.enter_across();
        self.now.begin(round.number());
        let outcome = lead(&Lead { round, spread: self, parts });
        self.now.end();
        // Not handed over, which would cost as much as an error is long.
        outcome?;
        Ok(())
    }

    /// The processes that hold its ranks, by their numbers in the world.
    pub(crate) fn homes(&self) -> &[usize] {
        &self.homes
    }

    /// Of each of those, the ranks, ascending, as the communicator numbers them.
    pub(crate) fn members(&self) -> &[Vec<usize>] {
        &self.members
    }

    /// Whether one of those processes has failed.
    pub(super) fn is_stopped(&self) -> bool {
        self.homes.iter().any(|process| self.across.has_lost(*process))
    }

    pub(crate) fn across(&self) -> &Arc<Across> {
        &self.across
    }

    pub(crate) fn now(&self) -> &Now {
        &self.now
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

/// One rank of each process, while it works for all of the communicator that live there. What they
/// call with is a `P`: pointers to their buffers, for example.
#[doc(hidden)]
pub struct Lead<'r, P> {
    pub(crate) round: &'r Round<'r>,
    pub(crate) spread: &'r Spread,
    pub(crate) parts: &'r [*const P],
}

impl<P: Copy> Lead<'_, P> {
    /// The communicator's ranks.
    pub fn size(&self) -> usize {
        self.spread.places.len()
    }

    /// The processes that hold them.
    pub fn processes(&self) -> usize {
        self.spread.members.len()
    }

    /// This process among those.
    pub fn process(&self) -> usize {
        self.spread.processes.rank()
    }

    /// The ranks in one of those, ascending.
    pub fn members(&self, process: usize) -> &[usize] {
        &self.spread.members[process]
    }

    /// The process that holds a rank.
    pub fn process_of(&self, rank: usize) -> usize {
        self.spread.places[rank]
    }

    /// Whether the ranks of each process follow those of the process before.
    pub fn is_ordered(&self) -> bool {
        self.spread.ordered
    }

    /// Whether each process holds a single rank: then they are as many, in the same order.
    pub fn is_flat(&self) -> bool {
        self.size() == self.processes()
    }

    /// What the ranks of this process call with, in the order of [`Lead::members`].
    pub fn parts(&self) -> impl ExactSizeIterator<Item = P> + Clone + '_ {
        // SAFETY: each lies on the stack of a rank of this process, which shows it until this rank
        // has finished (`Comm::collective_across`), or is this rank's own.
        self.parts.iter().map(|part| unsafe { **part })
    }

    /// Whether steps can fold elements of this type with this operation.
    pub fn folds(&self, dtype: &DType, op: &ErasedOp<'_>) -> bool {
        self.spread.processes.folds(dtype, op)
    }

    /// Meets the leads of the other processes, and complains if the ranks of some process have made
    /// other calls so far, this one among them.
    pub fn meet(&self) -> Result<()> {
        let print = self.round.fingerprint();
        let alone = self.spread.lone_ranks && crate::comm::extra_comms() == 0;
        let (said, mut least) = ([print, !print, u64::from(alone)], [0u64; 3]);
        let (send, recv) = (said.as_ptr().cast(), least.as_mut_ptr().cast());
        let op = ErasedOp::new::<u64, _>(&Min);
        let fold = Fold { send, recv, count: 3, dtype: &u64::DTYPE, op: &op };
        // SAFETY: both are three words.
        unsafe { self.make(Step::Allreduce(fold))? };
        self.spread.blocking.store(least[2] == 1, Relaxed);
        // The least is the greatest.
        if least[0] == !least[1] { Ok(()) } else { self.differ() }
    }

    /// The ranks of some process have made other calls: tells which.
    #[cold]
    fn differ(&self) -> Result<()> {
        let rounds = self.spread.now.rounds(self.round.world());
        // SAFETY: memory that the step names is held while it is made.
        let all = tell_all(self.processes(), &rounds, |step| unsafe { self.make(step) })?;
        self.spread.across.leave_it_to_first();
        let leads = self.spread.now.leads().iter().map(|lead| *lead as usize);
        match differences(leads.zip(all), false) {
            Some(fault) => Err(self.round.stopped_with(&fault)),
            None => Err(self.disagree("different calls, too long ago to be on record")),
        }
    }

    /// Makes a step with the leads of the other processes, and waits for them.
    ///
    /// # Safety
    /// All memory that the step names is valid for what it says of it.
    #[inline]
    pub unsafe fn step(&self, step: Step<'_>) -> Result<()> {
        if self.round.world().tuning.check {
            self.meet()?;
        }
        // SAFETY: as the caller promises.
        unsafe { self.make(step) }
    }

    /// Makes a step with the leads of the other processes, and waits for them.
    ///
    /// # Safety
    /// All memory that the step names is valid for what it says of it.
    #[inline]
    unsafe fn make(&self, step: Step<'_>) -> Result<()> {
        let blocking = self.spread.blocking.load(Relaxed);
        // SAFETY: as the caller promises.
        let outcome =
            unsafe { if blocking { self.spread.processes.run(step) } else { self.attempt(step) } };
        match outcome {
            Ok(()) => Ok(()),
            Err(error) => Err(self.explain(error)),
        }
    }

    /// What is wrong with a step, if it is known better than the library knows it.
    #[cold]
    pub(crate) fn explain(&self, error: Error) -> Error {
        let across = &self.spread.across;
        match error {
            Error::Library { .. } if across.survives() => {
                let stopped = notices(self.round.world(), || self.round.stopped());
                stopped.ok().flatten().unwrap_or(error)
            }
            // It may be that the ranks' calls differ.
            Error::Library { .. } => {
                across.suspect();
                self.round.stopped().unwrap_or(error)
            }
            error => error,
        }
    }

    /// Makes a step that does not hold up the process.
    ///
    /// # Safety
    /// As [`Lead::step`].
    unsafe fn attempt(&self, step: Step<'_>) -> Result<()> {
        // SAFETY: as the caller promises; it is dropped here if it is not complete, which ends the
        // process where that may still use the memory.
        let mut started = unsafe { self.spread.processes.start(step)? };
        let outcome = self.round.wait_across(|| match started.test() {
            Ok(false) => None,
            Ok(true) => Some(Ok(())),
            Err(error) => Some(Err(error)),
        });
        if self.spread.across.survives() && matches!(outcome, Err(Error::PeerFailed { .. })) {
            let _ = leave_step(&*self.spread.processes, &mut *started);
            return outcome;
        }
        self.spread.across.unless_failed(outcome)
    }

    /// Runs `make`, which makes communicators, when no other lead of any of these processes does.
    pub(crate) fn in_turn(&self, make: impl FnOnce() -> Result<()>) -> Result<()> {
        self.spread.blocking.store(false, Relaxed);
        let wish = self.spread.across.turns.wish(self.spread.now.context());
        loop {
            if self.least(u64::from(wish.take()))? == 1 {
                return make();
            }
            wish.give_back();
        }
    }

    /// The least of what the leads of all processes have.
    pub(crate) fn least(&self, mine: u64) -> Result<u64> {
        let mut least = 0u64;
        let (send, recv) = ((&raw const mine).cast(), (&raw mut least).cast());
        let op = ErasedOp::new::<u64, _>(&Min);
        let fold = Fold { send, recv, count: 1, dtype: &u64::DTYPE, op: &op };
        // SAFETY: both are a word.
        unsafe { self.make(Step::Allreduce(fold))? };
        Ok(least)
    }

    /// Runs a part of a reduction, which may be the program's own code.
    pub fn operate(&self, op: ErasedOp<'_>, operation: impl FnOnce()) -> Result<()> {
        self.round.operate(op, operation)
    }

    /// The calls of the ranks of this process don't fit together.
    pub fn disagree(&self, what: &str) -> Error {
        self.round.disagree(what)
    }
}
