//! Worlds that live in several processes without common memory, joined by a [`Fabric`].
//!
//! Each process has an arena of its own with a segment for every rank of the world, of which its
//! own ranks use theirs; so a rank has one number everywhere. Messages to ranks elsewhere are
//! packets, which whoever waits in that process puts into the receiver's mailbox (`messages.rs`);
//! large ones follow as payloads, once they are wanted. Text that a message refers to by number is
//! sent before it, once to each process, and kept in the sender's segment of the receiver's arena
//! (`texts.rs`). Collectives are steps of the processes, made by one rank of each (`spread.rs`).

mod leaving;
mod messages;
mod now;
mod packet;
mod spread;
mod texts;
mod watch;

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Arc, Weak};

pub(crate) use messages::Remote;
use parking_lot::Mutex;
pub use spread::Lead;
pub(crate) use spread::Spread;

use super::fabric::{Fabric, Parts, Step};
use super::shared::World;
use crate::error::{Error, Result};
use crate::fault::{Cause, Fault};
use packet::Packet;
use texts::Texts;
use watch::Watch;

/// What joins this process to others, for its life.
#[derive(Clone)]
pub(crate) struct Joined {
    fabric: Arc<dyn Fabric>,
    each: usize,
    watch: Option<Arc<Watch>>,
}

impl Joined {
    /// All processes call it together, each for so many ranks.
    pub(crate) fn new(fabric: Arc<dyn Fabric>, each: usize) -> Result<Joined> {
        let watch = Watch::start(&fabric, each)?.map(Arc::new);
        Ok(Joined { fabric, each, watch })
    }

    /// Ranks of each process.
    pub(crate) fn each(&self) -> usize {
        self.each
    }
}

/// What one process knows of a world that lives in several, all of which have as many ranks.
pub(crate) struct Across {
    pub(crate) fabric: Arc<dyn Fabric>,
    watch: Option<Arc<Watch>>,
    /// Ranks of each process.
    each: usize,
    texts: Mutex<Texts>,
    /// The number of the next payload.
    payloads: AtomicU32,
    /// Packets sent to each process, and taken from each.
    sent: Box<[AtomicU64]>,
    taken: Box<[AtomicU64]>,
    /// The communicators that span processes, for the watch.
    comms: Mutex<Vec<Weak<Spread>>>,
}

impl Across {
    pub(crate) fn new(joined: &Joined) -> Across {
        let Joined { fabric, each, watch } = joined.clone();
        let processes = fabric.processes();
        let counters = || (0..processes).map(|_| AtomicU64::new(0)).collect();
        let texts = Mutex::new(Texts::new(processes * each));
        let (sent, taken) = (counters(), counters());
        let (payloads, comms) = Default::default();
        Across { fabric, watch, each, texts, payloads, sent, taken, comms }
    }

    fn know(&self, spread: &Arc<Spread>) {
        let mut comms = self.comms.lock();
        comms.retain(|comm| comm.strong_count() > 0);
        comms.push(Arc::downgrade(spread));
    }

    /// Ranks of the world.
    pub(crate) fn size(&self) -> usize {
        self.fabric.processes() * self.each
    }

    /// The ranks of this process.
    pub(crate) fn local(&self) -> Range<usize> {
        let first = self.fabric.process() * self.each;
        first..first + self.each
    }

    /// The process in which a rank lives.
    pub(crate) fn process_of(&self, rank: usize) -> usize {
        rank / self.each
    }

    /// Whether this rank is the only one of its process, which has no communicators besides the
    /// block's own: then nobody else here can be waited for, and a call may block the process.
    pub(crate) fn is_alone(&self) -> bool {
        self.each == 1 && crate::comm::extra_comms() == 0
    }

    /// Ranks of other processes on this host, if they use the same cores as this one's.
    pub(crate) fn neighbors(&self) -> usize {
        let (hosts, me) = (self.fabric.hosts(), self.fabric.process());
        let others = hosts.iter().filter(|host| **host == hosts[me]).count() - 1;
        // A process that is bound has its cores for itself.
        if crate::wait::is_bound() { 0 } else { others * self.each }
    }

    /// The ranks of this process are about to enter their block.
    pub(crate) fn enter(&self, world: &Arc<World>) {
        leaving::enter(self.fabric.clone(), self.watch.clone(), self.local().start);
        self.watch.iter().for_each(|watch| watch.enter(world));
    }

    /// They have failed: says so, if it began here, and tells the others.
    pub(crate) fn fail(&self, world: &World, error: &Error) {
        leaving::fail();
        let cause = || Cause::Returned(error.to_string());
        let own = || Fault::Rank { rank: self.local().start, cause: cause() };
        let fault = world.first_fault(|_| true).unwrap_or_else(own);
        if fault.rank().is_some_and(|rank| self.local().contains(&rank)) {
            eprintln!("spmd: {fault}");
        }
        self.watch.iter().for_each(|watch| watch.fail(&fault));
    }

    fn send(&self, to: usize, packet: &Packet<'_>) -> Result<()> {
        self.sent[to].fetch_add(1, Relaxed);
        packet.with_bytes(|bytes| self.fabric.send(to, bytes))
    }

    /// Waits until all processes have come here, and all packets that they have sent have been
    /// taken: called once by each, when its ranks have left the block.
    pub(crate) fn finish(&self, mut take: impl FnMut() -> Result<()>) -> Result<()> {
        let processes = self.fabric.processes();
        let sent: Vec<u64> = self.sent.iter().map(|it| it.swap(0, Relaxed)).collect();
        let mut expected = vec![0u64; processes];
        let bytes = vec![8; processes];
        let starts: Vec<usize> = (0..processes).map(|process| 8 * process).collect();
        let parts = |memory: *mut u8| Parts { memory, bytes: &bytes, starts: &starts };
        let world = self.fabric.world();
        let send = parts(sent.as_ptr().cast_mut().cast());
        let recv = parts(expected.as_mut_ptr().cast());
        // SAFETY: both have eight bytes for each process, and `send` is only read.
        unsafe { world.run(Step::Alltoall { send, recv, equal: true })? };
        let complete = |(taken, expected): (&AtomicU64, &u64)| taken.load(Acquire) >= *expected;
        while !self.taken.iter().zip(&expected).all(complete) {
            take()?;
            std::thread::yield_now();
        }
        self.taken.iter().zip(&expected).for_each(|(taken, had)| {
            taken.fetch_sub(*had, Relaxed);
        });
        // SAFETY: it names no memory.
        unsafe { world.run(Step::Barrier)? };
        leaving::leave();
        self.watch.iter().for_each(|watch| watch.leave());
        Ok(())
    }
}

/// What another process sends makes no sense.
#[cold]
fn nonsense(from: usize, what: &str) -> Error {
    Error::Boot(format!(
        "process {from} sent {what}; all processes of a world must run the same version of the \
         program"
    ))
}
