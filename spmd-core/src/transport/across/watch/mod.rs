//! The watch: a thread of each process that notices what a rank in a native call cannot: that a
//! process is gone, that another one has failed, that ranks wait for each other for ever.
//!
//! The watches are joined to that of process 0, which judges (`judge.rs`), by a connection each, over
//! which nothing is said as long as all goes well. A watch looks at its ranks twice a second; if a
//! wait has lasted that long, it says so; a native call ends at its time limit (`overdue.rs`).
//! Process 0 then asks all how things stand (`state.rs`) until nobody says so any more. A connection
//! that breaks while ranks are in a block is a dead peer.
//! Who does not know the job's secret gets no answer, and no more of this process than `door.rs` says.
//!
//! Where processes go on when others fail (`survive.rs`), any two watches are joined, so that each
//! sees by itself who is gone; the lowest that is left judges.

mod alarm;
mod door;
#[cfg(any(fuzzing, test))]
pub(crate) mod hostile;
mod judge;
mod looks;
mod net;
mod overdue;
mod reach;
mod shared;
pub(super) mod state;
mod thread;
mod watched;
mod wire;

use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

use super::known::{Known, Meeting};
use super::said::Said;
use crate::error::{Error, Result};
use crate::fault::Fault;
use crate::transport::fabric::Fabric;
use crate::wait;
pub use alarm::Alarm;
use net::Net;
use shared::{LOOK, Shared};
use thread::Thread;
pub(super) use watched::Watched;
use wire::Word;

/// The watch of a process, as its ranks know it.
pub(crate) struct Watch {
    shared: Arc<Shared>,
    said: Arc<Said>,
}

/// Its thread ends with it.
impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.over.store(true, Release);
        self.shared.waker.wake();
    }
}

impl Watch {
    /// Joins this process's watch to the others. All processes call it, once.
    pub(super) fn start(
        fabric: &Arc<dyn Fabric>,
        said: &Arc<Said>,
        each: usize,
    ) -> Result<Option<Watch>> {
        if fabric.processes() == 1 {
            return Ok(None);
        }
        let (net, waker) = Net::join(fabric)?;
        let (ranks, entered, left, outbox, over) = Default::default();
        let known = Known::new(fabric.processes());
        let shared = Arc::new(Shared { ranks, entered, left, outbox, waker, known, over });
        let thread = Thread::new(shared.clone(), (fabric, said), net, each);
        let spawned = std::thread::Builder::new().name("spmd watch".into()).spawn(|| thread.run());
        spawned.map_err(|error| Error::system("starting the watch", error))?;
        Ok(Some(Watch { shared, said: said.clone() }))
    }

    /// The ranks of this process, these, are about to enter a block.
    pub(super) fn enter(&self, ranks: Arc<dyn Watched>) {
        *self.shared.ranks.lock() = Some(ranks.clone());
        let known = &self.shared.known;
        let dead = (0..known.processes()).filter(|process| known.is_dead(*process));
        dead.for_each(|process| ranks.bury(process));
        self.say(Word::Entered(self.shared.entered.fetch_add(1, AcqRel) + 1));
    }

    /// They are through with it: as all others are, or the job has failed.
    pub(crate) fn leave(&self) {
        *self.shared.ranks.lock() = None;
        self.shared.left.store(self.shared.entered.load(Acquire), Release);
    }

    /// Tells the others that this has stopped the job, and waits a little for it to be said.
    pub(crate) fn fail(&self, fault: &Fault) {
        self.say(Word::Fault(fault.clone()));
        let start = Instant::now();
        while !self.shared.outbox.lock().is_empty() && start.elapsed() < LOOK {
            wait::pause(Duration::from_millis(1));
        }
    }

    /// What it has heard of the other processes.
    pub(super) fn known(&self) -> &Known {
        &self.shared.known
    }

    /// The block that the ranks of this process have entered last.
    pub(super) fn block(&self) -> u64 {
        self.shared.entered.load(Acquire)
    }

    /// Tells the others that the ranks of this process have left their block.
    pub(super) fn tell_left(&self) {
        self.say(Word::Left(self.block()));
    }

    /// Tells the others that this process is about to agree on something.
    pub(super) fn ready(&self, meeting: Meeting) {
        self.say(Word::Ready(meeting));
    }

    /// Tells the others that this process fails, and ends it.
    pub(super) fn end(&self, fault: &Fault) {
        self.say(Word::Failed(fault.clone()));
    }

    /// Something is wrong in a call of this process: has process 0 look what it is, and waits until
    /// it has been said, or for a while.
    pub(crate) fn suspect(&self) {
        self.say(Word::Waiting);
        let start = Instant::now();
        while !self.said.is_said() && start.elapsed() < 3 * LOOK {
            wait::pause(Duration::from_millis(5));
        }
    }

    fn say(&self, word: Word) {
        self.shared.outbox.lock().push(word);
        self.shared.waker.wake();
    }
}
