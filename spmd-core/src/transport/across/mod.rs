//! Worlds that live in several processes without common memory, joined by a [`Fabric`].
//!
//! Each process has an arena of its own with a segment for every rank of the world, of which its
//! own ranks use theirs; so a rank has one number everywhere. Messages to ranks elsewhere are
//! packets, which whoever waits in that process puts into the receiver's mailbox (`messages.rs`);
//! large ones follow as payloads, once they are wanted. Text that a message refers to by number is
//! sent before it, once to each process, and kept in the sender's segment of the receiver's arena
//! (`texts.rs`). Collectives are steps of the processes, made by one rank of each (`spread.rs`, `lead.rs`).
//! Communicators are made one at a time (`turns.rs`).

pub(crate) mod agreement;
mod finish;
mod known;
mod lead;
mod leaving;
mod ledger;
mod messages;
mod now;
pub(crate) mod packet;
mod spread;
mod survey;
pub(crate) mod survive;
mod texts;
mod turns;
pub(crate) mod watch;
mod window;

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Arc, Weak};
use std::time::Duration;

pub use lead::Lead;
pub(crate) use messages::Remote;
use parking_lot::Mutex;
pub(crate) use spread::Spread;

use super::fabric::{Fabric, Processes};
use super::shared::World;
use crate::error::{Error, Result};
use crate::fault::{self, Cause, Fault};
use packet::Packet;
use texts::Texts;
use turns::Turns;
pub use watch::Alarm;
use watch::Watch;

/// The number of the block in its world: each block that spans processes has a world of its own.
const BLOCK: u32 = 1;

/// What joins this process to others, for its life.
#[derive(Clone)]
pub(crate) struct Joined {
    fabric: Arc<dyn Fabric>,
    each: usize,
    watch: Option<Arc<Watch>>,
    /// All processes, for what the library itself has to settle.
    control: Arc<dyn Processes>,
    survey: survey::Survey,
}

impl Joined {
    /// All processes call it together, each for so many ranks and with the window for which it has
    /// been set.
    pub(crate) fn new(fabric: Arc<dyn Fabric>, each: usize, window: usize) -> Result<Joined> {
        let watch = Watch::start(&fabric, each)?.map(Arc::new);
        let all: Vec<usize> = (0..fabric.processes()).collect();
        let control = fabric.world().subset(&all, 0)?;
        let survey = survey::Survey::new(&*fabric, &*control, window)?;
        Ok(Joined { fabric, each, watch, control, survey })
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
    survey: survey::Survey,
    /// No rank of this process is in the block any more.
    ended: AtomicBool,
    /// Ranks of each process.
    each: usize,
    /// Whether processes go on when others fail, and which have failed.
    survives: bool,
    lost: Box<[AtomicBool]>,
    settled: agreement::Outcomes,
    texts: Mutex<Texts>,
    /// The number of the next payload.
    payloads: AtomicU32,
    /// Packets sent to each process, and taken from each.
    sent: Box<[AtomicU64]>,
    taken: Box<[AtomicU64]>,
    /// The communicators that span processes, for the watch.
    comms: Mutex<Vec<Weak<Spread>>>,
    turns: Turns,
    ledger: Mutex<ledger::Ledger>,
    windows: window::Windows,
}

impl Across {
    pub(crate) fn new(joined: &Joined) -> Across {
        let Joined { fabric, each, watch, control, survey } = joined.clone();
        let processes = fabric.processes();
        let counters = || (0..processes).map(|_| AtomicU64::new(0)).collect();
        let first = fabric.process() * each;
        let texts = Mutex::new(Texts::new(first..first + each, processes));
        let (sent, taken) = (counters(), counters());
        let (payloads, comms, ended, turns, settled, ledger) = Default::default();
        let survives = fabric.survives() && watch.is_some();
        let windows = window::Windows::new(processes, each);
        let lost = (0..processes).map(|_| AtomicBool::new(false)).collect();
        Across {
            fabric,
            watch,
            control,
            survey,
            ended,
            each,
            survives,
            lost,
            settled,
            texts,
            payloads,
            sent,
            taken,
            comms,
            turns,
            ledger,
            windows,
        }
    }

    pub(crate) fn know(&self, spread: &Arc<Spread>) {
        let mut comms = self.comms.lock();
        comms.retain(|comm| comm.strong_count() > 0);
        comms.push(Arc::downgrade(spread));
        drop(comms);
        if spread.is_stopped() {
            spread.processes.revoke();
        }
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
        self.survey.beside
    }

    /// How much one rank may send to one of another process before that has received it.
    pub(crate) fn window(&self) -> usize {
        self.survey.window
    }

    /// The ranks of this process are about to enter their block.
    pub(crate) fn enter(&self, world: &Arc<World>) {
        leaving::enter(self.fabric.clone(), self.watch.clone(), self.local().start);
        self.watch.iter().for_each(|watch| watch.enter(world));
    }

    /// A rank of this process has failed, or has learnt of a failure: says so, if it began here, and
    /// tells the other processes.
    pub(crate) fn fail(&self, fault: &Fault) {
        if self.survives && matches!(fault, Fault::Rank { .. }) {
            survive::end_alone(self.watch.as_deref(), fault);
        }
        if fault.rank().is_none_or(|rank| self.local().contains(&rank)) {
            say(fault);
        }
        self.watch.iter().for_each(|watch| watch.fail(fault));
    }

    /// The ranks of this process have come out of a block that failed.
    pub(crate) fn give_up(&self, error: &Error) {
        leaving::fail();
        self.shut_ledger();
        self.fail(&self.fault_of(error));
        self.watch.iter().for_each(|watch| watch.leave());
        self.await_turn();
    }

    /// Processes whose block has failed are about to write an error each, in several pieces, to one
    /// place: waits so that they do it one after the other. The first that ends then ends all.
    fn await_turn(&self) {
        const EACH: Duration = Duration::from_millis(50);
        const LAST: Duration = Duration::from_secs(1);
        let turn = u32::try_from(self.fabric.process()).unwrap_or(u32::MAX);
        std::thread::sleep(EACH.saturating_mul(turn).min(LAST));
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
                    std::thread::sleep(Duration::from_secs(1));
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
        let sent = packet.with_bytes(|bytes| self.fabric.send(to, bytes));
        // What has not gone is not waited for.
        sent.inspect_err(|_| _ = self.sent[to].fetch_sub(1, Relaxed))
    }
}

/// Whether an error says that waiting is over, though what was waited for has not come.
fn stops(error: &Error) -> bool {
    error.fault().is_some() || matches!(error, Error::Timeout { .. })
}

/// Whether what has stopped the job has been said: here, or by another process.
static SAID: AtomicBool = AtomicBool::new(false);

/// Says in words what has stopped the job, once.
fn say(fault: &Fault) {
    if !SAID.swap(true, Relaxed) {
        fault::say(format_args!("{fault}"));
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
