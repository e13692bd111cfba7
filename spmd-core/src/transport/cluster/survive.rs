//! Going on when processes fail, where the library that joins them can ([`Fabric::survives`]).
//!
//! A failed process takes all its ranks with it: one whose rank has failed ends at once. The
//! detectors of the others, any two of which are joined then, miss it, stop the communicators that
//! hold its ranks, and end what is under way in these. So a rank comes out of every wait with the
//! failure.
//!
//! [`Fabric::survives`]: crate::transport::fabric::Fabric::survives

use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

use super::joined::Cluster;
use super::peer_status::{NOTICE, PeerStatus};
use crate::call::{Call, Kind};
use crate::error::{Error, Result};
use crate::fault::{Cause, Fault};
use crate::transport::fabric::{FabricRequest, NativeCollective, ProcessGroup};
use crate::transport::shared::{FaultScope, World};
use crate::wait;

/// How long the last step with a process that is gone may take: it may have made its part.
const FAREWELL: Duration = Duration::from_millis(200);
/// How long the library may take to agree on something once all are there, which is a matter of
/// milliseconds.
const AGREEMENT: Duration = Duration::from_secs(30);
/// Between two looks at what the failure detector has heard.
const PAUSE: Duration = Duration::from_millis(1);

impl Cluster {
    /// Whether processes go on when others fail.
    #[inline]
    pub(crate) fn survives(&self) -> bool {
        self.survives
    }

    pub(super) fn peer_status(&self) -> Option<&PeerStatus> {
        self.detector.as_ref().map(|detector| detector.peer_status())
    }

    /// The ranks of a process have failed, all of them for this reason: stops the communicators
    /// that hold some of them.
    pub(super) fn lose(&self, world: &World, process: usize, fault: Option<&Fault>) {
        if self.lost[process].swap(true, AcqRel) {
            return;
        }
        for rank in process * self.each..(process + 1) * self.each {
            let own = Fault::Rank { rank, cause: Cause::Lost };
            world.raise(FaultScope::Rank { rank, block: 0 }, fault.unwrap_or(&own));
        }
        let all = self.all_leaders();
        let stopped = all.iter().filter(|leaders| leaders.homes().contains(&process));
        stopped.for_each(|leaders| leaders.revoke());
    }

    /// A process is gone: its ranks take no part in anything any more.
    pub(super) fn mark_dead(&self, world: &World, process: usize) {
        self.lose(world, process, None);
        self.peer_status().iter().for_each(|known| known.dies(process));
        for rank in process * self.each..(process + 1) * self.each {
            world.memory.bell(rank).dead.store(1, Release);
        }
        world.ring_all();
    }

    /// Whether some process is gone, or has failed.
    pub(super) fn has_lost_any(&self) -> bool {
        let gone = |process| self.peer_status().is_some_and(|known| known.is_dead(process));
        (0..self.lost.len()).any(|process| self.has_lost(process) || gone(process))
    }

    /// Waits until the ranks of all processes that live have left the block, as those of this one
    /// have; whether all live.
    pub(super) fn all_have_left(self: &Arc<Cluster>, world: &World) -> Result<bool> {
        let Some(detector) = &self.detector else { return Ok(true) };
        detector.send_left();
        let (me, block, known) = (self.fabric.process(), detector.block(), detector.peer_status());
        let gone = |process| known.has_left(process, block) || known.is_dead(process);
        let all_gone = || (0..self.lost.len()).all(|process| process == me || gone(process));
        // Who goes before it has said so is missed by the others.
        while !(detector.has_sent_all() && all_gone()) {
            let took = self.take_packets(world)?;
            if let Some(fault) = world.fault_of_all() {
                let call = Call::new(Kind::End, std::panic::Location::caller());
                return Err(Error::stopped(fault, &call));
            }
            if !took {
                wait::pause(PAUSE);
            }
        }
        Ok(!self.has_lost_any())
    }

    /// Makes a step with all processes, which make nothing else at this time.
    ///
    /// # Safety
    /// As [`ProcessGroup::run`].
    pub(super) unsafe fn make_with_all(&self, step: NativeCollective<'_>) -> Result<()> {
        // Another may take what waits here before it makes its part.
        self.fabric.flush()?;
        if !self.survives {
            // SAFETY: the step's memory is valid for what it says, and nobody interferes with it,
            // until the step is complete (contract of `ProcessGroup::run`), and so until this
            // returns.
            return unsafe { self.control.run(step) };
        }
        // SAFETY: the step's memory is valid for what it says, and nobody interferes with it, until
        // this returns (the same contract). By then `started` is complete or has been dropped,
        // which ends the process where the library may still use the memory.
        let mut started = unsafe { self.control.start(step)? };
        let mut lost = None;
        while !started.test()? {
            // It may have made its part before.
            if self.has_lost_any() && lost.get_or_insert_with(Instant::now).elapsed() > FAREWELL {
                return leave_step(&*self.control, &mut *started);
            }
            wait::relax();
        }
        Ok(())
    }

    /// The same, where others may still access what this process has of windows.
    ///
    /// # Safety
    /// As [`ProcessGroup::run`].
    pub(super) unsafe fn await_all(&self, world: &World, step: NativeCollective<'_>) -> Result<()> {
        if self.survives {
            // All have left the block.
            // SAFETY: this function's contract.
            return unsafe { self.make_with_all(step) };
        }
        self.fabric.flush()?;
        // SAFETY: the step's memory is valid for what it says, and nobody interferes with it, until
        // this returns (the same contract). By then `started` is complete or has been dropped,
        // which ends the process where the library may still use the memory.
        let mut started = unsafe { self.control.start(step)? };
        while !started.test()? {
            self.take_packets(world)?;
            wait::relax();
        }
        Ok(())
    }

    /// Waits, for a while, for what the failure detector is to notice. Others may need this process
    /// meanwhile to come out of what they are in.
    pub(super) fn notices<T>(
        self: &Arc<Cluster>,
        world: &World,
        noticed: impl Fn() -> Option<T>,
    ) -> Result<Option<T>> {
        let start = Instant::now();
        while start.elapsed() < NOTICE {
            let found = noticed();
            if found.is_some() {
                return Ok(found);
            }
            if !self.take_packets(world)? {
                wait::pause(PAUSE);
            }
        }
        Ok(None)
    }

    /// What `outcome` gives, or nothing if a process is gone, which may be why it is an error.
    pub(super) fn unless_lost<T>(
        self: &Arc<Cluster>,
        world: &World,
        outcome: Result<Option<T>>,
    ) -> Result<Option<T>> {
        if outcome.is_err() && self.notices(world, || self.has_lost_any().then_some(()))?.is_some()
        {
            return Ok(None);
        }
        outcome
    }

    /// Ends the job: the library's own agreement does not end, and no call of it can be taken back.
    pub(crate) fn end_in_agreement(&self, rank: usize, call: &Call<'_>, limit: Duration) -> ! {
        let fault = disagreement(rank, call, self.fabric.name(), limit);
        self.first_report.report(&fault);
        self.detector.iter().for_each(|detector| detector.fail(&fault));
        // The failure detector does so when ranks that are not in the library have had time to end.
        wait::pause(NOTICE);
        self.fabric.abort(1)
    }

    /// Waits, for a while, until the failure detector has missed what the library misses; else
    /// misses it here.
    pub(crate) fn await_detection(
        self: &Arc<Cluster>,
        world: &World,
        processes: impl Iterator<Item = usize>,
    ) {
        for process in processes {
            let missed = || self.peer_status().is_none_or(|known| known.is_dead(process));
            let _ = self.notices(world, || missed().then_some(()));
            self.mark_dead(world, process);
        }
    }
}

/// How long the library may take to agree on something, where calls may wait so long.
pub(crate) fn patience(timeout: Option<Duration>) -> Duration {
    timeout.map_or(AGREEMENT, |limit| limit.min(AGREEMENT))
}

/// What is said of a rank that has been in the library's own agreement for longer than it may take.
fn disagreement(rank: usize, call: &Call<'_>, library: &str, limit: Duration) -> Fault {
    let text = format!(
        "{call}: {library} has not come to an end of its agreement (MPIX_Comm_agree, \
         MPIX_Comm_shrink) for {limit:?}, though all processes that live take part; if none of them \
         is stopped, it has missed that one died meanwhile: start mpirun with --mca mpi_ft_detector \
         1, which has it look for that"
    );
    Fault::Rank { rank, cause: Cause::Returned(text) }
}

/// Brings a step to its end that a failed process may keep from it, so that the library leaves the
/// memory alone.
pub(super) fn leave_step(
    processes: &dyn ProcessGroup,
    started: &mut dyn FabricRequest,
) -> Result<()> {
    processes.revoke();
    let start = Instant::now();
    while !started.test()? && start.elapsed() < NOTICE {
        wait::relax();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agreement_that_does_not_end_is_told_in_words() {
        assert_eq!(patience(None), AGREEMENT);
        assert_eq!(patience(Some(Duration::from_secs(3600))), AGREEMENT);
        let limit = patience(Some(Duration::from_secs(3)));
        let call = Call::new(Kind::Shrink, std::panic::Location::caller());
        let first_report = disagreement(2, &call, "Open MPI 5.0.11", limit).to_string();
        let place = format!("rank 2 failed: it returned an error: shrink at {}", file!());
        assert!(first_report.starts_with(&place), "{first_report}");
        for word in ["Open MPI 5.0.11 has not come", "for 3s", "--mca mpi_ft_detector 1"] {
            assert!(first_report.contains(word), "{word}: {first_report}");
        }
    }
}
