//! The thread of a detector: hears the others, looks at the ranks here, and diagnoses.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

use super::super::first_report::FirstReport;
use super::alarm::Launcher;
use super::begun::BegunRounds;
use super::net::{Event, Net};
use super::overdue::Overdue;
use super::shared::{DetectorShared, LOOK};
use super::snapshots::{DELIVERY, Found, Snapshots};
use super::state::ProcessState;
use super::wire::DetectorMessage;

use crate::fault::{Cause, Fault};
use crate::transport::fabric::{End, Fabric};

/// How long after a process is gone it is missed, where the ranks here have come to the end of
/// their block: it may have heard before this one that the block is over.
const FAREWELL: Duration = Duration::from_millis(200);
/// How long ranks have to come to their end by themselves, once the job is known to have failed.
const GRACE: Duration = Duration::from_secs(1);

/// The thread's own.
pub(super) struct DetectorThread {
    pub(super) shared: Arc<DetectorShared>,
    pub(super) fabric: Arc<dyn Fabric>,
    first_report: Arc<FirstReport>,
    /// Whether processes go on when others fail.
    pub(super) survives: bool,
    pub(super) net: Net,
    /// Who is to end what starts the job, should that not end by itself.
    launcher: Option<Launcher>,
    pub(super) process: usize,
    pub(super) each: usize,
    looked: Instant,
    last: ProcessState,
    overdue: Overdue,
    /// Of process 0: the last block that each process has entered.
    pub(super) entered: Vec<u64>,
    /// Processes that are gone, and since when: they may have left the block, as others have.
    pub(super) gone: Vec<(usize, Instant)>,
    /// Of process 0: the number of the last question, the answers to it, and what all answers so
    /// far have shown.
    asked: u64,
    answers: BTreeMap<usize, ProcessState>,
    snapshots: Snapshots,
    /// Rounds that processes ask for.
    pub(super) begun: BegunRounds,
    /// What joins the processes, for people.
    library: String,
    /// Of process 0: when somebody said last that something waits.
    waiting: Option<Instant>,
    /// What has stopped the job, and when this was learnt.
    failed: Option<(Fault, Instant)>,
}

impl DetectorThread {
    pub(super) fn new(
        shared: Arc<DetectorShared>,
        (fabric, first_report): (&Arc<dyn Fabric>, &Arc<FirstReport>),
        net: Net,
        each: usize,
    ) -> DetectorThread {
        let (process, processes) = (fabric.process(), fabric.processes());
        DetectorThread {
            shared,
            fabric: fabric.clone(),
            first_report: first_report.clone(),
            survives: fabric.survives(),
            net,
            launcher: Launcher::find(),
            process,
            each,
            looked: Instant::now(),
            last: ProcessState::default(),
            overdue: Overdue::default(),
            entered: vec![0; processes],
            gone: Vec::new(),
            asked: 0,
            answers: BTreeMap::new(),
            snapshots: Snapshots::new(each),
            begun: BegunRounds::default(),
            library: fabric.name().to_owned(),
            waiting: None,
            failed: None,
        }
    }

    pub(super) fn run(mut self) {
        loop {
            let events = self.net.wait(self.patience());
            if !self.fabric.lives() {
                return;
            }
            let over = self.shared.over.load(Acquire);
            // What was to be said before the end is.
            let outbox = std::mem::take(&mut *self.shared.outbox.lock());
            for word in outbox {
                self.send_own(word);
                self.shared.unsent.fetch_sub(1, Release);
            }
            if over {
                return;
            }
            for event in events {
                match event {
                    Event::Received(process, word) => self.handle(process, word),
                    Event::Gone(process) => self.lose(process),
                }
            }
            if self.looked.elapsed() >= LOOK {
                self.looked = Instant::now();
                self.snapshot();
            }
            self.answer_for_rounds();
            self.lose_those_gone();
            self.end_if_failed();
        }
    }

    /// How long nothing may happen until there is something to do.
    fn patience(&self) -> Duration {
        let snapshot = LOOK.saturating_sub(self.looked.elapsed());
        let end = self.failed.as_ref().and_then(|(_, since)| GRACE.checked_sub(since.elapsed()));
        let farewell = (!self.gone.is_empty()).then_some(FAREWELL);
        // Ranks tell nobody that they begin a round.
        let round = self.begun.is_awaited().then_some(Duration::ZERO);
        // A millisecond more: a wait is cut to whole ones.
        end.into_iter().chain(round).chain(farewell).fold(snapshot, Duration::min)
            + Duration::from_millis(1)
    }

    /// Says to all what a rank of this process wants to be said.
    fn send_own(&mut self, word: DetectorMessage) {
        match &word {
            DetectorMessage::Entered(block) => self.entered[self.process] = *block,
            DetectorMessage::Waiting => self.waiting = Some(Instant::now()),
            DetectorMessage::Fault(_) if self.failed.is_some() => return,
            DetectorMessage::Fault(fault) => {
                self.notify_launcher(fault);
                self.failed = Some((fault.clone(), Instant::now()));
            }
            _ => {}
        }
        let ends = matches!(word, DetectorMessage::Failed(_));
        match word {
            DetectorMessage::Left(_) | DetectorMessage::Ready(_) | DetectorMessage::Failed(_) => {
                self.net.send_to_all(&word)
            }
            DetectorMessage::Fault(_) if self.diagnoses() || self.survives => {
                self.net.send_to_all(&word)
            }
            DetectorMessage::AskForRound(round) if self.diagnoses() => {
                self.pass_on_question(self.process, round);
            }
            _ if self.diagnoses() => {}
            word => self.net.send(self.diagnose_all(), &word),
        }
        if ends {
            self.fabric.end(End::Kill);
        }
    }

    /// The process whose detector diagnoses: the lowest that is left.
    fn diagnose_all(&self) -> usize {
        (0..self.process).find(|it| !self.shared.known.is_dead(*it)).unwrap_or(self.process)
    }

    pub(super) fn diagnoses(&self) -> bool {
        self.diagnose_all() == self.process
    }

    fn handle(&mut self, process: usize, word: DetectorMessage) {
        match word {
            DetectorMessage::Entered(block) => self.entered[process] = block,
            DetectorMessage::Waiting => self.waiting = Some(Instant::now()),
            DetectorMessage::Ask(number) => {
                let state = self.state().cut();
                self.net.send(process, &DetectorMessage::ProcessState(number, state));
            }
            DetectorMessage::ProcessState(number, state) if number == self.asked => {
                self.answers.insert(process, state);
                self.diagnose();
            }
            DetectorMessage::ProcessState(..) => {}
            DetectorMessage::Left(block) => self.shared.known.leaves(process, block),
            DetectorMessage::Ready(meeting) => self.shared.known.arrives(process, meeting),
            DetectorMessage::Failed(fault) => {
                let ranks = self.shared.ranks.lock().clone();
                ranks.iter().for_each(|ranks| ranks.lose(process, &fault));
            }
            DetectorMessage::Fault(fault) => {
                if self.diagnoses() && !self.survives {
                    self.net.send_to_all(&DetectorMessage::Fault(fault.clone()));
                }
                self.stop(fault);
            }
            DetectorMessage::Lost(other) => self.pass_on(process, other),
            DetectorMessage::LostBy(other) => self.settle_with(other),
            DetectorMessage::AskForRound(round) => self.pass_on_question(process, round),
            DetectorMessage::TellOfRound(asker, round) if asker < self.entered.len() => {
                self.begun.await_round(asker, round);
            }
            DetectorMessage::TellOfRound(..) => {}
            DetectorMessage::HasBegun(asker) => self.one_has_begun(asker),
            DetectorMessage::AllHaveBegun => self.all_have_begun(),
        }
    }

    /// Processes that are gone without a word, while their ranks are in a block, have failed. That
    /// must be said at once, as MPI's launcher may end all processes when it misses one.
    fn lose_those_gone(&mut self) {
        let patience = if self.at_the_end() { FAREWELL } else { Duration::ZERO };
        let (late, still) = self.gone.iter().partition(|(_, since)| since.elapsed() >= patience);
        self.gone = still;
        let late: Vec<(usize, Instant)> = late;
        for (process, since) in late {
            if self.survives {
                self.mark_dead(process);
                continue;
            }
            let in_block = self.shared.ranks.lock().is_some();
            let inside = match self.process {
                _ if self.joins() => true,
                // One that has gone before it could say that it has entered a block is in the first.
                0 if self.entered[process] == 0 => in_block,
                0 => self.entered[process] > self.shared.left.load(Acquire),
                _ => in_block,
            };
            if !inside {
                // The ranks of this process may be about to enter the block.
                self.gone.push((process, since));
            } else if self.failed.is_none() {
                let fault = Fault::Rank { rank: process * self.each, cause: Cause::Lost };
                self.report_and_stop(fault);
            }
        }
    }

    /// A process is gone, and the others go on: unless its ranks have left the block, as those of
    /// this one have.
    fn mark_dead(&mut self, process: usize) {
        // Before the ranks are looked at: those that enter a block now are told by
        // `FailureDetector::enter`.
        self.shared.known.dies(process);
        let ranks = self.shared.ranks.lock().clone();
        let block = self.shared.entered.load(Acquire);
        let known = &self.shared.known;
        let over = self.at_the_end() && known.has_left(process, block);
        if let (false, Some(ranks)) = (over, ranks) {
            let told = ranks.have_lost(process);
            ranks.mark_dead(process);
            let first = (0..self.process).all(|it| known.is_dead(it) || it == process);
            if first && !told {
                let rank = process * self.each;
                let fault = Fault::Rank { rank, cause: Cause::Lost };
                self.fabric.print(format_args!("{fault}"));
            }
        }
        // What was answered before says nothing any more.
        self.snapshots = Snapshots::new(self.each);
        self.answers.clear();
    }

    /// Ends the job for something that was found here.
    fn report_and_stop(&mut self, fault: Fault) {
        self.first_report.report(&fault);
        self.notify_launcher(&fault);
        match self.diagnoses() || self.survives {
            true => self.net.send_to_all(&DetectorMessage::Fault(fault.clone())),
            false => self.net.send(0, &DetectorMessage::Fault(fault.clone())),
        }
        self.stop(fault);
    }

    /// Tells `spmdrun`, if that has started the job, so that it ends even if MPI's launcher does
    /// not.
    fn notify_launcher(&self, fault: &Fault) {
        self.launcher.iter().for_each(|launcher| drop(launcher.notify(&fault.to_string())));
    }

    /// Whether the ranks of this process have done all that they do in their block.
    fn at_the_end(&self) -> bool {
        self.shared.ranks.lock().as_ref().is_none_or(|ranks| ranks.have_ended())
    }

    /// Ends the waits of this process's ranks.
    fn stop(&mut self, fault: Fault) {
        if self.failed.is_some() {
            return;
        }
        self.first_report.leave_to_others();
        self.shared.ranks.lock().iter().for_each(|ranks| ranks.stop(&fault));
        self.failed = Some((fault, Instant::now()));
        // Whoever ends the job may leave no time for it later.
        self.first_report.last_events();
    }

    fn state(&self) -> ProcessState {
        match &*self.shared.ranks.lock() {
            Some(ranks) => ranks.state(),
            None => ProcessState { ended: true, ..ProcessState::default() },
        }
    }

    /// Looks whether something has waited since the last look; process 0 asks all, if it or
    /// another process has seen such a thing.
    fn snapshot(&mut self) {
        let state = self.state();
        let waited = state.has_waited_since(&self.last);
        self.last = state;
        let limit = self.shared.ranks.lock().as_ref().and_then(|ranks| ranks.timeout());
        if let Some(fault) = self.overdue.snapshot(&self.last, limit) {
            self.report_and_stop(fault);
            return;
        }
        if !self.diagnoses() {
            if waited {
                self.net.send(self.diagnose_all(), &DetectorMessage::Waiting);
            }
            return;
        }
        // Others look as often, not at the same time.
        if waited || self.waiting.is_some_and(|first_report| first_report.elapsed() < LOOK * 3 / 2)
        {
            self.asked += 1;
            self.answers = BTreeMap::from([(self.process, self.last.clone())]);
            let dead = (0..self.entered.len()).filter(|it| self.shared.known.is_dead(*it));
            self.answers.extend(
                dead.map(|it| (it, ProcessState { ended: true, ..ProcessState::default() })),
            );
            self.net.send_to_all(&DetectorMessage::Ask(self.asked));
        } else {
            self.snapshots = Snapshots::new(self.each);
        }
    }

    fn diagnose(&mut self) {
        if self.answers.len() < self.entered.len() || self.failed.is_some() {
            return;
        }
        let now: Vec<ProcessState> = std::mem::take(&mut self.answers).into_values().collect();
        let fault = match self.snapshots.diagnose(now) {
            Some(Found::Wrong(fault)) => fault,
            Some(Found::Lost(packets)) => self.undelivered(packets),
            None => return,
        };
        self.report_and_stop(fault);
    }

    /// The library does not do what it is for.
    fn undelivered(&self, packets: u64) -> Fault {
        let text = format!(
            "all ranks wait, and {packets} packets that were sent {} seconds ago or more have not \
             come: {} does not deliver them; try another library or another network of it",
            DELIVERY.as_secs(),
            self.library
        );
        Fault::Rank { rank: self.process * self.each, cause: Cause::Returned(text) }
    }

    /// Whether this process has not entered a block yet: it may still be in what all do to join, which
    /// nothing else ends.
    fn joins(&self) -> bool {
        self.shared.entered.load(Acquire) == 0
    }

    /// Ends the process, if its ranks do not come to an end, or into a block, though the job has
    /// failed.
    fn end_if_failed(&self) {
        let Some((_, since)) = &self.failed else { return };
        if since.elapsed() >= GRACE && (self.joins() || self.shared.ranks.lock().is_some()) {
            self.first_report.last_events();
            if self.survives {
                self.fabric.abort(1);
            }
            self.fabric.end(End::Exit);
        }
    }
}
