//! Collectives of a communicator whose ranks live in several processes: in each process one rank
//! leads, sees the buffers of the others, and makes the steps among processes for all of them.

use std::sync::atomic::Ordering::Relaxed;

use super::compare::{allgather, differences};
use super::hierarchy::Hierarchy;
use super::survive::leave_step;
use crate::element::{DType, Element};
use crate::error::{Error, Result};
use crate::op::{ErasedOp, Min};
use crate::transport::fabric::{Fold, NativeCollective, ProcessGroup};
use crate::transport::shared::collective::Round;
use crate::transport::shared::contexts::extra_comms;

/// One rank of each process, while it works for all of the communicator that live there. What they
/// call with is a `P`: pointers to their buffers, for example.
#[doc(hidden)]
#[expect(missing_debug_implementations, reason = "hidden: no user holds one")]
pub struct Leader<'r, P> {
    pub(crate) round: &'r Round<'r>,
    pub(crate) hierarchy: &'r Hierarchy,
    processes: &'r dyn ProcessGroup,
    pub(crate) parts: &'r [*const P],
}

impl Hierarchy {
    /// The processes, for which those of a track may have to be joined.
    #[inline]
    fn joined(&self, round: &Round<'_>) -> Result<&dyn ProcessGroup> {
        if self.processes().is_err() {
            let joined = || match self.are_joined() {
                Ok(false) => None,
                Ok(true) => Some(Ok(())),
                Err(error) => Some(Err(error)),
            };
            self.cluster.unless_failed(round.wait_on_cluster(joined))?;
        }
        self.processes().map(|processes| &**processes)
    }

    /// Runs what the leader does in a round.
    #[inline]
    pub(crate) fn leader<P>(
        &self,
        round: &Round<'_>,
        parts: &[*const P],
        leader: impl FnOnce(&Leader<'_, P>) -> Result<()>,
    ) -> Result<()> {
        round.enter_cluster();
        self.now().begin(round.number());
        let outcome = self
            .joined(round)
            .and_then(|processes| leader(&Leader { round, hierarchy: self, processes, parts }));
        self.now().end();
        outcome
    }
}

/// After how many steps that hold their process up the leaders meet: by then, all of them know that
/// some rank has requests.
const TOGETHER: u32 = 64;

impl Hierarchy {
    /// Whether the leaders are to meet before the next step, for what all must know.
    #[inline]
    fn is_due(&self) -> bool {
        let steps = &self.blocking_steps;
        self.blocking.load(Relaxed) && {
            steps.store(steps.load(Relaxed).wrapping_add(1), Relaxed);
            steps.load(Relaxed).is_multiple_of(TOGETHER)
        }
    }
}

impl<P: Copy> Leader<'_, P> {
    /// The communicator's ranks.
    pub fn size(&self) -> usize {
        self.hierarchy.ranks.places.len()
    }

    /// The processes that hold them.
    pub fn processes(&self) -> usize {
        self.hierarchy.ranks.members.len()
    }

    /// This process among those.
    pub fn process(&self) -> usize {
        self.processes.rank()
    }

    /// The ranks in one of those, ascending.
    pub fn members(&self, process: usize) -> &[usize] {
        &self.hierarchy.ranks.members[process]
    }

    /// The process that holds a rank.
    pub fn process_of(&self, rank: usize) -> usize {
        self.hierarchy.ranks.places[rank]
    }

    /// Whether the ranks of each process follow those of the process before.
    pub fn is_ordered(&self) -> bool {
        self.hierarchy.ranks.ordered
    }

    /// Whether each process holds a single rank: then they are as many, in the same order.
    pub fn is_flat(&self) -> bool {
        self.hierarchy.is_flat()
    }

    /// What the ranks of this process call with, in the order of [`Leader::members`].
    pub fn parts(&self) -> impl ExactSizeIterator<Item = P> + Clone + '_ {
        // SAFETY: each lies on the stack of a rank of this process, which shows it until this rank
        // has finished (`Comm::collective_on_cluster`), or is this rank's own.
        self.parts.iter().map(|part| unsafe { **part })
    }

    /// Whether steps can fold elements of this type with this operation.
    pub fn folds(&self, dtype: &DType, op: &ErasedOp<'_>) -> bool {
        self.processes.folds(dtype, op)
    }

    /// Whether steps hold their process up, on all processes alike.
    pub(crate) fn blocks(&self) -> bool {
        self.hierarchy.blocking.load(Relaxed)
    }

    /// Meets the leaders of the other processes, and complains if the ranks of some process have
    /// made other calls so far, this one among them.
    pub fn meet(&self) -> Result<()> {
        let print = self.round.fingerprint();
        let requests = self.hierarchy.cluster.requests.load(Relaxed);
        // A window's communicator is not counted, but others may ask for something.
        let others = extra_comms() > 0 || self.round.world().is_needed();
        let alone = self.hierarchy.lone_ranks && !others && !requests;
        let (first_report, mut least) = ([print, !print, u64::from(alone)], [0u64; 3]);
        let (send, recv) = (first_report.as_ptr().cast(), least.as_mut_ptr().cast());
        let op = &ErasedOp::new::<u64, _>(&Min);
        let fold = Fold { send, recv, count: 3, dtype: &u64::DTYPE, op };
        // SAFETY: both are three words.
        unsafe { self.make(NativeCollective::Allreduce(fold))? };
        self.hierarchy.blocking.store(least[2] == 1, Relaxed);
        self.hierarchy.blocking_steps.store(0, Relaxed);
        // The least is the greatest.
        if least[0] == !least[1] { Ok(()) } else { self.differ() }
    }

    /// The ranks of some process have made other calls: tells which.
    #[cold]
    fn differ(&self) -> Result<()> {
        // Where what others made fits this step by chance, they make no other one like it: the
        // failure detectors find out what it was.
        self.hierarchy.cluster.suspect();
        if let Some(error) = self.round.stopped() {
            return Err(error);
        }
        let rounds = self.hierarchy.now().rounds(self.round.world());
        // SAFETY: memory that the step names is held while it is made.
        let all = allgather(self.processes(), &rounds, |step| unsafe { self.make(step) })?;
        self.hierarchy.cluster.leave_it_to_first();
        let leaders = self.hierarchy.now().leaders().iter().map(|leader| *leader as usize);
        match differences(leaders.zip(all), false) {
            Some(fault) => Err(self.round.stopped_with(&fault)),
            None => Err(self.disagree("different calls, too long ago to be on record")),
        }
    }

    /// Makes a step with the leaders of the other processes, and waits for them.
    ///
    /// # Safety
    /// All memory that the step names is valid for what it says of it, and nobody else writes
    /// what is readable, or touches what is writable, until this returns.
    #[inline]
    pub unsafe fn step(&self, step: NativeCollective<'_>) -> Result<()> {
        if self.round.world().tuning.check || self.hierarchy.is_due() {
            self.meet()?;
        }
        // SAFETY: the step's memory is valid for what it says, and nobody interferes with it, until
        // this returns (this function's contract): `make` asks for the same.
        unsafe { self.make(step) }
    }

    /// Makes a step with the leaders of the other processes, and waits for them.
    ///
    /// # Safety
    /// As [`Leader::step`].
    #[inline]
    unsafe fn make(&self, step: NativeCollective<'_>) -> Result<()> {
        // Nothing comes between the parts of which a library makes a duplicate.
        if let Some(track) = self.hierarchy.joining() {
            track.joined(self.round)?;
        }
        let blocking = self.blocks();
        // This process looks after its packets again when the step is complete.
        let outcome = self.hierarchy.cluster.fabric.flush().and_then(|()| {
            if blocking {
                self.await_others()?;
            }
            // SAFETY: the step's memory is valid for what it says, and nobody interferes with it,
            // until this returns (this function's contract). By then `run` and `attempt` are
            // through with the step.
            unsafe { if blocking { self.processes.run(step) } else { self.attempt(step) } }
        });
        outcome.map_err(|error| self.explain(error))
    }

    /// Sees to it that nobody needs this process while a step holds it up: where it has requests,
    /// waits until all others have begun this round.
    #[inline]
    fn await_others(&self) -> Result<()> {
        let cluster = &self.hierarchy.cluster;
        match &cluster.detector {
            Some(detector) if cluster.requests.load(Relaxed) => {
                detector.ask_for_round(self.round.number());
                self.round.wait_on_cluster(|| detector.all_have_begun().then_some(Ok(())))
            }
            _ => Ok(()),
        }
    }

    /// What is wrong with a step, if it is known better than the library knows it.
    #[cold]
    pub(crate) fn explain(&self, error: Error) -> Error {
        let cluster = &self.hierarchy.cluster;
        match error {
            Error::Library(_) if cluster.survives() => {
                let stopped = cluster.notices(self.round.world(), || self.round.stopped());
                stopped.ok().flatten().unwrap_or(error)
            }
            // It may be that the ranks' calls differ.
            Error::Library(_) => {
                cluster.suspect();
                self.round.stopped().unwrap_or(error)
            }
            error => error,
        }
    }

    /// Makes a step that does not hold up the process.
    ///
    /// # Safety
    /// As [`Leader::step`].
    unsafe fn attempt(&self, step: NativeCollective<'_>) -> Result<()> {
        // SAFETY: the step's memory is valid for what it says, and nobody interferes with it, until
        // this returns (contract of `step`). By then `started` is complete or has been dropped,
        // which ends the process where the library may still use the memory.
        let mut started = unsafe {
            match self.hierarchy.repeats.load(Relaxed) {
                true => self.processes.start_again(step)?,
                false => self.processes.start(step)?,
            }
        };
        let outcome = self.round.wait_on_cluster(|| match started.test() {
            Ok(false) => None,
            Ok(true) => Some(Ok(())),
            Err(error) => Some(Err(error)),
        });
        if self.hierarchy.cluster.survives() && matches!(outcome, Err(Error::PeerFailed(_))) {
            let _ = leave_step(self.processes, &mut *started);
            return outcome;
        }
        self.hierarchy.cluster.unless_failed(outcome)
    }

    /// Runs `make`, which makes communicators, when no other leader of any of these processes does.
    pub(crate) fn in_turn(&self, make: impl FnOnce() -> Result<()>) -> Result<()> {
        self.hierarchy.blocking.store(false, Relaxed);
        // Others tell what they called on communicators that they have dropped, each in a packet: a
        // program that makes and drops many must not let that pile up.
        for _ in 0..self.hierarchy.cluster.fabric.processes() {
            if !self.hierarchy.cluster.take_packets(self.round.world())? {
                break;
            }
        }
        let wish = self.hierarchy.cluster.creation_order.wish(self.hierarchy.now().context());
        loop {
            if self.least(u64::from(wish.take()))? == 1 {
                return make();
            }
            wish.give_back();
        }
    }

    /// The least of what the leaders of all processes have.
    pub(crate) fn least(&self, mine: u64) -> Result<u64> {
        let mut least = 0u64;
        let (send, recv) = ((&raw const mine).cast(), (&raw mut least).cast());
        let op = &ErasedOp::new::<u64, _>(&Min);
        let fold = Fold { send, recv, count: 1, dtype: &u64::DTYPE, op };
        // SAFETY: both are a word.
        unsafe { self.make(NativeCollective::Allreduce(fold))? };
        Ok(least)
    }

    /// Runs a part of a reduction, which may be the program's own code.
    pub fn operate(&self, op: &ErasedOp<'_>, operation: impl FnOnce()) -> Result<()> {
        self.round.operate(op, operation)
    }

    /// The calls of the ranks of this process don't fit together.
    pub fn disagree(&self, what: &str) -> Error {
        self.round.disagree(what)
    }
}
