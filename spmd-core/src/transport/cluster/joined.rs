//! What one process knows of a world that lives in several.

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use super::at_exit::AtExit;
use super::creation_order::CreationOrder;
use super::detector::FailureDetector;
use super::first_report::FirstReport;
use super::join_exchange::JoinExchange;
use super::leader_group::Leaders;
use super::ledger::Ledger;
use super::one_sided;
use super::outcomes::Outcomes;
use super::packet::Packet;
use super::texts::Texts;
use super::traced::{Traced, compare_clocks};
use super::window::Windows;
use crate::error::{Error, Result};
use crate::fault::{Cause, Fault};
use crate::panics::error_text;
use crate::trace::Trace;
use crate::transport::fabric::{Fabric, NativeCollective, ProcessGroup};
use crate::wait;

/// What joins this process to others, for its life.
#[derive(Clone)]
pub(crate) struct Joined {
    fabric: Arc<dyn Fabric>,
    each: usize,
    detector: Option<Arc<FailureDetector>>,
    first_report: Arc<FirstReport>,
    at_exit: Arc<AtExit>,
    /// All processes, for what the library itself has to settle.
    control: Arc<dyn ProcessGroup>,
    join_exchange: JoinExchange,
    traced: Option<Traced>,
}

impl Joined {
    /// All processes call it together, each for so many ranks, with the window for which it has been
    /// set, and with the file for the trace of all.
    pub(crate) fn new(
        fabric: Arc<dyn Fabric>,
        each: usize,
        window: usize,
        trace: Option<&Path>,
    ) -> Result<Joined> {
        let mut traced = trace.map(|path| Traced::open(path, &*fabric, each)).transpose()?;
        let trace = traced.as_ref().map(|traced| traced.trace.clone());
        let first_report = Arc::new(FirstReport::new(fabric.clone(), trace));
        let detector = FailureDetector::start(&fabric, &first_report, each)?.map(Arc::new);
        let first = fabric.process() * each;
        let at_exit = AtExit::new(fabric.clone(), detector.clone(), first_report.clone(), first);
        let at_exit = Arc::new(at_exit);
        let all: Vec<usize> = (0..fabric.processes()).collect();
        let control = fabric.world().subset(&all, 0)?;
        let join_exchange = JoinExchange::new(&*fabric, &*control, window, traced.is_some())?;
        if let Some(traced) = traced.as_mut().filter(|_| join_exchange.traced) {
            // SAFETY: memory that the step names is held while it is made.
            let step = |step: NativeCollective<'_>| unsafe { control.run(step) };
            traced.start = Some(compare_clocks(fabric.processes(), &step)?);
        }
        Ok(Joined { fabric, each, detector, first_report, at_exit, control, join_exchange, traced })
    }

    /// Ranks of each process.
    pub(crate) fn each(&self) -> usize {
        self.each
    }

    /// Where this process writes its events to.
    pub(crate) fn trace(&self) -> Option<&Arc<Trace>> {
        self.traced.as_ref().map(|traced| &traced.trace)
    }

    /// What ends with this process.
    pub(crate) fn at_exit(&self) -> &Arc<AtExit> {
        &self.at_exit
    }
}

/// What one process knows of a world that lives in several, all of which have as many ranks.
pub(crate) struct Cluster {
    pub(crate) fabric: Arc<dyn Fabric>,
    pub(super) detector: Option<Arc<FailureDetector>>,
    pub(super) first_report: Arc<FirstReport>,
    pub(super) at_exit: Arc<AtExit>,
    pub(super) control: Arc<dyn ProcessGroup>,
    pub(super) join_exchange: JoinExchange,
    pub(super) traced: Option<Traced>,
    /// No rank of this process is in the block any more.
    pub(super) ended: AtomicBool,
    /// Ranks of each process.
    pub(super) each: usize,
    /// Whether processes go on when others fail, and which have failed.
    pub(super) survives: bool,
    pub(super) lost: Box<[AtomicBool]>,
    pub(super) settled: Outcomes,
    pub(super) texts: Mutex<Texts>,
    /// A rank of this process has, or had, messages or calls that go on in this block.
    pub(super) requests: AtomicBool,
    /// The number of the next payload.
    pub(super) payloads: AtomicU32,
    /// Packets sent to each process, and taken from each.
    pub(super) sent: Box<[AtomicU64]>,
    pub(super) taken: Box<[AtomicU64]>,
    /// The leaders of communicators that span processes, for the failure detector.
    pub(super) leaders: Mutex<Vec<Weak<Leaders>>>,
    pub(super) creation_order: CreationOrder,
    pub(super) ledger: Mutex<Ledger>,
    pub(super) windows: Windows,
    /// Windows whose ranks live in several processes.
    pub(crate) one_sided: one_sided::Windows,
}

impl Cluster {
    pub(crate) fn new(joined: &Joined) -> Cluster {
        let joined = joined.clone();
        let Joined { fabric, each, detector, first_report, .. } = joined;
        let Joined { at_exit, control, join_exchange, traced, .. } = joined;
        let processes = fabric.processes();
        let counters = || (0..processes).map(|_| AtomicU64::new(0)).collect();
        let first = fabric.process() * each;
        let texts = Mutex::new(Texts::new(first..first + each, processes));
        let (sent, taken) = (counters(), counters());
        let (requests, payloads, leaders, ended) = Default::default();
        let (creation_order, settled, ledger, one_sided) = Default::default();
        let survives = fabric.survives() && detector.is_some();
        let windows = Windows::new(processes, each);
        let lost = (0..processes).map(|_| AtomicBool::new(false)).collect();
        Cluster {
            fabric,
            detector,
            first_report,
            at_exit,
            control,
            join_exchange,
            traced,
            ended,
            each,
            survives,
            lost,
            settled,
            texts,
            requests,
            payloads,
            sent,
            taken,
            leaders,
            creation_order,
            ledger,
            windows,
            one_sided,
        }
    }

    /// Messages or calls of a rank of this process go on while it does something else.
    pub(crate) fn has_requests(&self) {
        self.requests.store(true, Relaxed);
    }

    /// Has the failure detector look at these.
    pub(super) fn register(&self, leaders: &Arc<Leaders>) {
        let mut known = self.leaders.lock();
        known.retain(|it| it.strong_count() > 0);
        known.push(Arc::downgrade(leaders));
        drop(known);
        if self.has_lost_some(leaders) {
            leaders.revoke();
        }
    }

    /// The leaders of the communicators that there are.
    pub(super) fn all_leaders(&self) -> Vec<Arc<Leaders>> {
        self.leaders.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Whether a process is gone, or about to go.
    pub(crate) fn has_lost(&self, process: usize) -> bool {
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

    /// Whether this is another process of this host, with which memory can be shared.
    pub(crate) fn is_neighbor(&self, process: usize) -> bool {
        let (hosts, own) = (self.fabric.hosts(), self.fabric.process());
        process != own && hosts[process] == hosts[own] && self.fabric.simulated().is_none()
    }

    /// How many ranks come before a rank of this process on its host.
    pub(crate) fn place_on_host(&self, rank: usize) -> usize {
        let (hosts, own) = (self.fabric.hosts(), self.fabric.process());
        let before = hosts[..own].iter().filter(|host| **host == hosts[own]).count();
        before * self.each + rank % self.each
    }

    /// Processes that use cores of this one, itself among them.
    pub(crate) fn processes_beside(&self) -> usize {
        self.join_exchange.beside
    }

    /// How much one rank may send to one of another process before that has received it.
    pub(crate) fn window(&self) -> usize {
        self.join_exchange.window
    }

    /// A rank of this process has failed, or has learnt of a failure: says so, if it began here,
    /// and tells the other processes.
    pub(crate) fn fail(&self, fault: &Fault) {
        if self.survives && matches!(fault, Fault::Rank { .. }) {
            self.at_exit.end_alone(fault);
        }
        if fault.rank().is_none_or(|rank| self.local().contains(&rank)) {
            self.first_report.report(fault);
        }
        self.detector.iter().for_each(|detector| detector.fail(fault));
    }

    /// The ranks of this process have come out of a block that failed.
    pub(crate) fn give_up(&self, error: &Error) {
        self.at_exit.fail();
        self.shut_ledger();
        self.fail(&self.fault_of(error));
        self.detector.iter().for_each(|detector| detector.leave());
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
        self.detector.iter().for_each(|detector| detector.suspect());
    }

    /// What all processes find out together, the first one says.
    pub(super) fn leave_it_to_first(&self) {
        if self.fabric.process() != 0 {
            self.first_report.leave_to_others();
        }
    }

    /// What `outcome` gives, unless it is that the job has failed, or the time limit has passed,
    /// while other processes, or the library that joins them, are at work on memory of the
    /// caller's: then the failure detector ends this process, which has said what was wrong.
    pub(super) fn unless_failed<T>(&self, outcome: Result<T>) -> Result<T> {
        match outcome {
            Err(error) if self.detector.is_some() && stops(&error) => {
                self.fail(&self.fault_of(&error));
                loop {
                    wait::pause(Duration::from_secs(1));
                }
            }
            outcome => outcome,
        }
    }

    /// What an error of a rank of this process means to the others.
    pub(super) fn fault_of(&self, error: &Error) -> Fault {
        let cause = || Cause::Returned(error_text(&error.with_causes()));
        let own = || Fault::Rank { rank: self.local().start, cause: cause() };
        error.fault().cloned().unwrap_or_else(own)
    }

    pub(crate) fn send(&self, to: usize, packet: &Packet<'_>) -> Result<()> {
        self.sent[to].fetch_add(1, Relaxed);
        let (header, data) = packet.pieces();
        let sent = self.fabric.send(to, [&header, data]);
        // What has not gone is not waited for.
        sent.inspect_err(|_| _ = self.sent[to].fetch_sub(1, Relaxed))
    }
}

/// Whether an error says that waiting is over, though what was waited for has not come.
fn stops(error: &Error) -> bool {
    error.fault().is_some() || matches!(error, Error::Timeout(_))
}
