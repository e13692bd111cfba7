//! The detector: a thread of each process that notices what a rank in a native call cannot: that a
//! process is gone, that another one has failed, that ranks wait for each other for ever.
//!
//! The detectors are joined to that of process 0, which diagnoses (`diagnose.rs`), by a connection
//! each, over which nothing is said as long as all goes well. A detector looks at its ranks twice a
//! second; if a wait has lasted that long, it says so; a native call ends at its time limit
//! (`overdue.rs`). Process 0 then asks all how things stand (`state.rs`) until nobody says so any
//! more. A connection that breaks while ranks are in a block is a dead peer. Who does not know the
//! job's secret gets no answer, and no more of this process than `acceptor.rs` says. Besides, it tells
//! when all processes have begun a round (`ask_begun.rs`).
//!
//! Where processes go on when others fail (`survive.rs`), any two detectors are joined, so that
//! each sees by itself who is gone; the lowest that is left diagnoses. Of two that live and lose the
//! connection between them, one ends (`cut_off.rs`).

mod acceptor;
mod address;
mod alarm;
mod ask_begun;
mod begun;
mod cut_off;
mod diagnose;
#[cfg(any(fuzzing, test))]
pub(crate) mod hostile;
mod net;
mod observed;
mod overdue;
mod shared;
mod snapshots;
pub(super) mod state;
mod thread;
mod wire;

use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

use super::first_report::FirstReport;
use super::peer_status::{AgreementKey, PeerStatus};
use crate::error::{Error, Result};
use crate::fault::Fault;
use crate::transport::fabric::Fabric;
use crate::wait;
pub use alarm::{Alarm, NOT_STARTED, raise_alarm};
use net::Net;
pub(super) use observed::Observed;
use shared::{DetectorShared, LOOK};
use thread::DetectorThread;
use wire::DetectorMessage;

/// The detector of a process, as its ranks know it.
pub(crate) struct FailureDetector {
    shared: Arc<DetectorShared>,
    first_report: Arc<FirstReport>,
}

/// Its thread ends with it.
impl Drop for FailureDetector {
    fn drop(&mut self) {
        self.shared.over.store(true, Release);
        self.shared.waker.wake();
    }
}

impl FailureDetector {
    /// Joins this process's detector to the others. All processes call it, once.
    pub(super) fn start(
        fabric: &Arc<dyn Fabric>,
        first_report: &Arc<FirstReport>,
        each: usize,
    ) -> Result<Option<FailureDetector>> {
        if fabric.processes() == 1 {
            return Ok(None);
        }
        let (net, waker) = Net::join(fabric)?;
        let (ranks, entered, left, outbox, unsent, over, all_begun) = Default::default();
        let known = PeerStatus::new(fabric.processes());
        let shared = Arc::new(DetectorShared {
            ranks,
            entered,
            left,
            outbox,
            unsent,
            waker,
            known,
            over,
            all_begun,
        });
        let thread = DetectorThread::new(shared.clone(), (fabric, first_report), net, each);
        let spawned =
            std::thread::Builder::new().name("spmd detector".into()).spawn(|| thread.run());
        spawned.map_err(|error| Error::system("starting the failure detector", error))?;
        Ok(Some(FailureDetector { shared, first_report: first_report.clone() }))
    }

    /// The ranks of this process, these, are about to enter a block.
    pub(super) fn enter(&self, ranks: Arc<dyn Observed>) {
        *self.shared.ranks.lock() = Some(ranks.clone());
        let known = &self.shared.known;
        let dead = (0..known.processes()).filter(|process| known.is_dead(*process));
        dead.for_each(|process| ranks.mark_dead(process));
        self.send(DetectorMessage::Entered(self.shared.entered.fetch_add(1, AcqRel) + 1));
    }

    /// They are through with it: as all others are, or the job has failed.
    pub(crate) fn leave(&self) {
        *self.shared.ranks.lock() = None;
        self.shared.left.store(self.shared.entered.load(Acquire), Release);
    }

    /// Tells the others that this has stopped the job, and waits a little for it to be said.
    pub(crate) fn fail(&self, fault: &Fault) {
        self.send(DetectorMessage::Fault(fault.clone()));
        let start = Instant::now();
        while !self.has_sent_all() && start.elapsed() < LOOK {
            wait::pause(Duration::from_millis(1));
        }
    }

    /// What it has heard of the other processes.
    pub(super) fn peer_status(&self) -> &PeerStatus {
        &self.shared.known
    }

    /// The block that the ranks of this process have entered last.
    pub(super) fn block(&self) -> u64 {
        self.shared.entered.load(Acquire)
    }

    /// Tells the others that the ranks of this process have left their block.
    pub(super) fn send_left(&self) {
        self.send(DetectorMessage::Left(self.block()));
    }

    /// Tells the others that this process is about to agree on something.
    pub(super) fn ready(&self, meeting: AgreementKey) {
        self.send(DetectorMessage::Ready(meeting));
    }

    /// Tells the others that this process fails, and ends it.
    pub(super) fn end(&self, fault: &Fault) {
        self.send(DetectorMessage::Failed(fault.clone()));
    }

    /// Something is wrong in a call of this process: has process 0 look what it is, and waits until
    /// it has been said, or for a while.
    pub(crate) fn suspect(&self) {
        self.send(DetectorMessage::Waiting);
        let start = Instant::now();
        while !self.first_report.is_said() && start.elapsed() < 3 * LOOK {
            wait::pause(Duration::from_millis(5));
        }
    }

    /// Whether all has been said that was to be said.
    pub(super) fn has_sent_all(&self) -> bool {
        self.shared.unsent.load(Acquire) == 0
    }

    /// Asks whether all processes have begun this round of the block's own communicator, as this
    /// one has.
    pub(super) fn ask_for_round(&self, round: u64) {
        self.shared.all_begun.store(false, Release);
        self.send(DetectorMessage::AskForRound((self.block(), round)));
    }

    /// Whether they have, as far as is known.
    pub(super) fn all_have_begun(&self) -> bool {
        self.shared.all_begun.load(Acquire)
    }

    fn send(&self, word: DetectorMessage) {
        self.shared.unsent.fetch_add(1, Relaxed);
        self.shared.outbox.lock().push(word);
        self.shared.waker.wake();
    }
}
