//! What one process knows of a world that lives in several.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use super::leaders::Leaders;
use super::leaving::Leaving;
use super::ledger::Ledger;
use super::outcomes::Outcomes;
use super::packet::Packet;
use super::said::Said;
use super::survey::Survey;
use super::texts::Texts;
use super::turns::Turns;
use super::watch::Watch;
use super::window::Windows;
use crate::error::{Error, Result};
use crate::fault::{Cause, Fault};
use crate::transport::fabric::{Fabric, Processes};
use crate::wait;

/// What joins this process to others, for its life.
#[derive(Clone)]
pub(crate) struct Joined {
    fabric: Arc<dyn Fabric>,
    each: usize,
    watch: Option<Arc<Watch>>,
    said: Arc<Said>,
    leaving: Arc<Leaving>,
    /// All processes, for what the library itself has to settle.
    control: Arc<dyn Processes>,
    survey: Survey,
}

impl Joined {
    /// All processes call it together, each for so many ranks and with the window for which it has
    /// been set.
    pub(crate) fn new(fabric: Arc<dyn Fabric>, each: usize, window: usize) -> Result<Joined> {
        let said = Arc::new(Said::new(fabric.clone()));
        let watch = Watch::start(&fabric, &said, each)?.map(Arc::new);
        let first = fabric.process() * each;
        let leaving = Leaving::new(fabric.clone(), watch.clone(), said.clone(), first);
        let leaving = Arc::new(leaving);
        let all: Vec<usize> = (0..fabric.processes()).collect();
        let control = fabric.world().subset(&all, 0)?;
        let survey = Survey::new(&*fabric, &*control, window)?;
        Ok(Joined { fabric, each, watch, said, leaving, control, survey })
    }

    /// Ranks of each process.
    pub(crate) fn each(&self) -> usize {
        self.each
    }

    /// What ends with this process.
    pub(crate) fn leaving(&self) -> &Arc<Leaving> {
        &self.leaving
    }
}

/// What one process knows of a world that lives in several, all of which have as many ranks.
pub(crate) struct Across {
    pub(crate) fabric: Arc<dyn Fabric>,
    pub(super) watch: Option<Arc<Watch>>,
    pub(super) said: Arc<Said>,
    pub(super) leaving: Arc<Leaving>,
    pub(super) control: Arc<dyn Processes>,
    pub(super) survey: Survey,
    /// No rank of this process is in the block any more.
    pub(super) ended: AtomicBool,
    /// Ranks of each process.
    pub(super) each: usize,
    /// Whether processes go on when others fail, and which have failed.
    pub(super) survives: bool,
    pub(super) lost: Box<[AtomicBool]>,
    pub(super) settled: Outcomes,
    pub(super) texts: Mutex<Texts>,
    /// The number of the next payload.
    pub(super) payloads: AtomicU32,
    /// Packets sent to each process, and taken from each.
    pub(super) sent: Box<[AtomicU64]>,
    pub(super) taken: Box<[AtomicU64]>,
    /// The leaders of communicators that span processes, for the watch.
    pub(super) leaders: Mutex<Vec<Weak<Leaders>>>,
    pub(super) turns: Turns,
    pub(super) ledger: Mutex<Ledger>,
    pub(super) windows: Windows,
}

impl Across {
    pub(crate) fn new(joined: &Joined) -> Across {
        let Joined { fabric, each, watch, said, leaving, control, survey } = joined.clone();
        let processes = fabric.processes();
        let counters = || (0..processes).map(|_| AtomicU64::new(0)).collect();
        let first = fabric.process() * each;
        let texts = Mutex::new(Texts::new(first..first + each, processes));
        let (sent, taken) = (counters(), counters());
        let (payloads, leaders, ended, turns, settled, ledger) = Default::default();
        let survives = fabric.survives() && watch.is_some();
        let windows = Windows::new(processes, each);
        let lost = (0..processes).map(|_| AtomicBool::new(false)).collect();
        Across {
            fabric,
            watch,
            said,
            leaving,
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
            leaders,
            turns,
            ledger,
            windows,
        }
    }

    /// Has the watch look at these.
    pub(super) fn know(&self, leaders: &Arc<Leaders>) {
        let mut known = self.leaders.lock();
        known.retain(|it| it.strong_count() > 0);
        known.push(Arc::downgrade(leaders));
        drop(known);
        if self.has_lost_some(leaders) {
            leaders.processes.revoke();
        }
    }

    /// The leaders of the communicators that there are.
    pub(super) fn all_leaders(&self) -> Vec<Arc<Leaders>> {
        self.leaders.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Whether a process is gone, or about to go.
    pub(super) fn has_lost(&self, process: usize) -> bool {
        self.lost.get(process).is_some_and(|lost| lost.load(Acquire))
    }

    /// Whether this holds of one of these processes.
    pub(super) fn has_lost_some(&self, leaders: &Leaders) -> bool {
        leaders.homes().iter().any(|process| self.has_lost(*process))
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

    /// A rank of this process has failed, or has learnt of a failure: says so, if it began here, and
    /// tells the other processes.
    pub(crate) fn fail(&self, fault: &Fault) {
        if self.survives && matches!(fault, Fault::Rank { .. }) {
            self.leaving.end_alone(fault);
        }
        if fault.rank().is_none_or(|rank| self.local().contains(&rank)) {
            self.said.say(fault);
        }
        self.watch.iter().for_each(|watch| watch.fail(fault));
    }

    /// The ranks of this process have come out of a block that failed.
    pub(crate) fn give_up(&self, error: &Error) {
        self.leaving.fail();
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
        wait::pause(EACH.saturating_mul(turn).min(LAST));
    }

    /// Something is wrong in a call: waits a little for the others to find out what it is.
    pub(super) fn suspect(&self) {
        self.watch.iter().for_each(|watch| watch.suspect());
    }

    /// What all processes find out together, the first one says.
    pub(super) fn leave_it_to_first(&self) {
        if self.fabric.process() != 0 {
            self.said.leave_to_others();
        }
    }

    /// What `outcome` gives, unless it is that the job has failed, or the time limit has passed,
    /// while other processes, or the library that joins them, are at work on memory of the caller's:
    /// then the watch ends this process, which has said what was wrong.
    pub(super) fn unless_failed<T>(&self, outcome: Result<T>) -> Result<T> {
        match outcome {
            Err(error) if self.watch.is_some() && stops(&error) => {
                self.fail(&self.fault_of(&error));
                loop {
                    wait::pause(Duration::from_secs(1));
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

    pub(super) fn send(&self, to: usize, packet: &Packet<'_>) -> Result<()> {
        self.sent[to].fetch_add(1, Relaxed);
        let sent = packet.with_bytes(|bytes| self.fabric.send(to, bytes));
        // What has not gone is not waited for.
        sent.inspect_err(|_| _ = self.sent[to].fetch_sub(1, Relaxed))
    }
}

/// Whether an error says that waiting is over, though what was waited for has not come.
fn stops(error: &Error) -> bool {
    error.fault().is_some() || matches!(error, Error::Timeout(_))
}
