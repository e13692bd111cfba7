//! Worlds that live in several processes without common memory, joined by a [`Fabric`].
//!
//! Each process has an arena of its own with a segment for every rank of the world, of which its
//! own ranks use theirs; so a rank has one number everywhere. Messages to ranks elsewhere are
//! packets, which whoever waits in that process puts into the receiver's mailbox (`messages.rs`);
//! large ones follow as payloads, once they are wanted. Text that a message refers to by number is
//! sent before it, once to each process, and kept in the sender's segment of the receiver's arena
//! (`texts.rs`). Collectives are steps of the processes, made by one rank of each (`spread.rs`).
//! Communicators are made one at a time (`turns.rs`).

mod beside;
mod leaving;
mod messages;
mod now;
mod packet;
mod spread;
mod texts;
mod turns;
mod watch;

use std::io::Write;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Arc, Weak};

pub(crate) use messages::Remote;
use parking_lot::Mutex;
pub use spread::Lead;
pub(crate) use spread::Spread;

use super::fabric::{Extents, Fabric, Parts, Processes, Step};
use super::shared::World;
use super::shared::contexts::board_of;
use super::shared::layout::SLOTS;
use crate::call::Call;
use crate::error::{Error, Result};
use crate::fault::{Cause, Fault, by_call};
use now::Rounds;
use packet::Packet;
use texts::Texts;
use turns::Turns;
use watch::Watch;

/// What joins this process to others, for its life.
#[derive(Clone)]
pub(crate) struct Joined {
    fabric: Arc<dyn Fabric>,
    each: usize,
    watch: Option<Arc<Watch>>,
    /// All processes, for what the library itself has to settle.
    control: Arc<dyn Processes>,
    /// Processes that use cores of this one, itself among them.
    beside: usize,
}

impl Joined {
    /// All processes call it together, each for so many ranks.
    pub(crate) fn new(fabric: Arc<dyn Fabric>, each: usize) -> Result<Joined> {
        let watch = Watch::start(&fabric, each)?.map(Arc::new);
        let all: Vec<usize> = (0..fabric.processes()).collect();
        let control = fabric.world().subset(&all, 0)?;
        let beside = beside::processes(&*fabric, &*control)?;
        Ok(Joined { fabric, each, watch, control, beside })
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
    control: Arc<dyn Processes>,
    beside: usize,
    /// No rank of this process is in the block any more.
    ended: AtomicBool,
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
    turns: Turns,
}

impl Across {
    pub(crate) fn new(joined: &Joined) -> Across {
        let Joined { fabric, each, watch, control, beside } = joined.clone();
        let processes = fabric.processes();
        let counters = || (0..processes).map(|_| AtomicU64::new(0)).collect();
        let first = fabric.process() * each;
        let texts = Mutex::new(Texts::new(first..first + each, processes));
        let (sent, taken) = (counters(), counters());
        let (payloads, comms, ended, turns) = Default::default();
        Across {
            fabric,
            watch,
            control,
            beside,
            ended,
            each,
            texts,
            payloads,
            sent,
            taken,
            comms,
            turns,
        }
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

    /// Processes that use cores of this one, itself among them.
    pub(crate) fn processes_beside(&self) -> usize {
        self.beside
    }

    /// The ranks of this process are about to enter their block.
    pub(crate) fn enter(&self, world: &Arc<World>) {
        leaving::enter(self.fabric.clone(), self.watch.clone(), self.local().start);
        self.watch.iter().for_each(|watch| watch.enter(world));
    }

    /// A rank of this process has failed, or has learnt of a failure: says so, if it began here, and
    /// tells the other processes.
    pub(crate) fn fail(&self, fault: &Fault) {
        if fault.rank().is_none_or(|rank| self.local().contains(&rank)) {
            say(fault);
        }
        self.watch.iter().for_each(|watch| watch.fail(fault));
    }

    /// The ranks of this process have come out of a block that failed.
    pub(crate) fn give_up(&self, error: &Error) {
        leaving::fail();
        self.fail(&self.fault_of(error));
        self.watch.iter().for_each(|watch| watch.leave());
    }

    /// Something is wrong in a call: waits a little for the others to find out what it is.
    fn suspect(&self) {
        self.watch.iter().for_each(|watch| watch.suspect());
    }

    /// What all processes find out together, the first one says.
    fn leave_it_to_first(&self) {
        SAID.fetch_or(self.fabric.process() != 0, Relaxed);
    }

    /// What `outcome` gives, unless it is that the job has failed, or the time limit has passed,
    /// while other processes, or the library that joins them, are at work on memory of the caller's:
    /// then the watch ends this process, which has said what was wrong.
    fn unless_failed<T>(&self, outcome: Result<T>) -> Result<T> {
        match outcome {
            Err(error) if self.watch.is_some() && stops(&error) => {
                self.fail(&self.fault_of(&error));
                loop {
                    std::thread::sleep(std::time::Duration::from_secs(1));
                }
            }
            outcome => outcome,
        }
    }

    /// What an error of a rank of this process means to the others.
    fn fault_of(&self, error: &Error) -> Fault {
        let cause = || Cause::Returned(error.to_string());
        let own = || Fault::Rank { rank: self.local().start, cause: cause() };
        error.fault().cloned().unwrap_or_else(own)
    }

    fn send(&self, to: usize, packet: &Packet<'_>) -> Result<()> {
        self.sent[to].fetch_add(1, Relaxed);
        packet.with_bytes(|bytes| self.fabric.send(to, bytes))
    }

    /// Waits until the ranks of all processes have left the block, as those of this one have, and all
    /// packets that were sent have been taken. Complains if the ranks of different processes made
    /// different calls.
    pub(crate) fn finish(&self, world: &World, block: u32, call: &Call<'_>) -> Result<()> {
        self.ended.store(true, Release);
        let processes = self.fabric.processes();
        let sent: Vec<u64> = self.sent.iter().map(|it| it.load(Relaxed)).collect();
        let mut expected = vec![0u64; processes];
        let parts = |memory: *mut u8| Parts { memory, extents: Extents::Equal(8) };
        let send = parts(sent.as_ptr().cast_mut().cast());
        let recv = parts(expected.as_mut_ptr().cast());
        // SAFETY: both have eight bytes for each process, and `send` is only read.
        unsafe { self.control.run(Step::Alltoall { send, recv })? };
        let complete = |(taken, expected): (&AtomicU64, &u64)| taken.load(Acquire) >= *expected;
        while !self.taken.iter().zip(&expected).all(complete) {
            world.take_packets()?;
            std::thread::yield_now();
        }
        let first = self.local().start;
        let last = world.memory.board(first, board_of(block)).done.0.load(Acquire);
        let rounds = Rounds::of(world, first, board_of(block), last, SLOTS);
        // SAFETY: memory that the step names is held while it is made.
        let all = tell_all(processes, &rounds, |step| unsafe { self.control.run(step) })?;
        leaving::leave();
        self.watch.iter().for_each(|watch| watch.leave());
        let leads = (0..processes).map(|process| process * self.each);
        let differ = differences(leads.zip(all), true);
        self.leave_it_to_first();
        differ.map_or(Ok(()), |fault| Err(Error::stopped(fault, call)))
    }
}

/// Whether an error says that waiting is over, though what was waited for has not come.
fn stops(error: &Error) -> bool {
    error.fault().is_some() || matches!(error, Error::Timeout { .. })
}

/// Tells the leads of other processes the calls of this one, and hears theirs.
fn tell_all(
    processes: usize,
    rounds: &Rounds,
    step: impl FnOnce(Step<'_>) -> Result<()>,
) -> Result<Vec<Rounds>> {
    const BYTES: usize = 1024;
    let mut said = [0u8; BYTES];
    let mut told = rounds.clone();
    told.calls.iter_mut().for_each(|call| cut(call, BYTES / SLOTS - 32));
    let _ = postcard::to_slice(&told, &mut said);
    let mut heard = vec![0u8; BYTES * processes];
    let recv = Parts { memory: heard.as_mut_ptr(), extents: Extents::Equal(BYTES) };
    step(Step::Allgather { send: (said.as_ptr(), BYTES), recv })?;
    let read = |bytes| postcard::take_from_bytes(bytes).map_or(Rounds::default(), |it| it.0);
    Ok(heard.chunks(BYTES).map(read).collect())
}

/// In what the calls of ranks of different processes differ; with `to_the_end`, they have made all.
fn differences(ranks: impl Iterator<Item = (usize, Rounds)>, to_the_end: bool) -> Option<Fault> {
    let all: Vec<(usize, Rounds)> = ranks.collect();
    let (_, first) = all.first()?;
    let different = all.iter().find_map(|(_, other)| first.first_difference(other));
    let shorter = || {
        let least = all.iter().map(|(_, rounds)| rounds.last).min()?;
        (to_the_end && all.iter().any(|(_, rounds)| rounds.last != least)).then_some(least + 1)
    };
    let (round, what) = match different {
        Some(round) => (round, "different calls"),
        None => (shorter()?, "one rank made more calls than another"),
    };
    let calls = all.iter().filter_map(|(rank, rounds)| Some((*rank, rounds.call(round)?)));
    Some(Fault::Mismatch { calls: by_call(calls), what: what.into() })
}

/// Cuts a text to so many bytes.
fn cut(text: &mut String, most: usize) {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
}

/// Whether what has stopped the job has been said: here, or by another process.
static SAID: AtomicBool = AtomicBool::new(false);

/// Says in words what has stopped the job, once, and in one piece.
fn say(fault: &Fault) {
    if !SAID.swap(true, Relaxed) {
        let text = format!("spmd: {fault}\n");
        // If nobody hears it, the errors of the ranks say the same.
        let _ = std::io::stderr().write_all(text.as_bytes());
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
