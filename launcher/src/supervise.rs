//! Watching over a job until its last process has ended.

mod outcome;
mod signalled;
mod verdict;

use std::process::ExitStatus;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use rustix::process::Signal;
use spmd_core::boot::NOT_STARTED;

use crate::args::OnFailure;
use crate::event::Event;
use crate::job::Job;
use crate::plan::Plan;
use crate::process::Process;
use crate::report::{self, Failure, Outcome};
use crate::streams::Streams;
use verdict::{Verdict, judge};

/// How far the ending of a job has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    /// A rank has failed; the others have learnt of it, and get SIGTERM at this time.
    Failing(Instant),
    /// They have got SIGTERM, and get SIGKILL at this time.
    Terminating(Instant),
    Killed,
}

/// How long an MPI launcher has to end by itself once the job has failed: processes that are inside
/// the library are ended a second after that.
const LAUNCHER_ENDS: Duration = Duration::from_secs(3);
/// How often to look whether others enter the world that a rank has ended without entering.
const LOOK: Duration = Duration::from_millis(50);

pub(crate) struct Supervisor<'a> {
    plan: &'a Plan,
    /// The world of process ranks.
    job: Option<&'a Job>,
    /// Where to see what ranks do and which failed first.
    shown: Option<&'a Job>,
    processes: &'a mut [Process],
    streams: &'a Streams,
    started: Instant,
    /// When `--timeout` passes.
    limit: Option<Instant>,
    phase: Phase,
    /// In the order in which they were seen.
    failures: Vec<(usize, Failure)>,
    timed_out: bool,
    /// What a watch says has stopped the job.
    told: Option<String>,
    /// The last signal that was passed on to the ranks, but for SIGCONT.
    passed_on: Option<i32>,
    /// The last of them that asks a job to end.
    told_to_end: Option<i32>,
    /// Which of SIGINT and SIGTERM have come.
    asked: Vec<i32>,
    /// Ranks that ended well without ever entering the world.
    never_entered: Vec<usize>,
    /// How many processes ended well.
    finished: usize,
}

impl<'a> Supervisor<'a> {
    pub(crate) fn new(
        plan: &'a Plan,
        job: Option<&'a Job>,
        processes: &'a mut [Process],
        streams: &'a Streams,
    ) -> Self {
        let started = Instant::now();
        Supervisor {
            plan,
            job: job.filter(|_| !plan.one_process()),
            shown: job,
            processes,
            streams,
            started,
            limit: plan.timeout.map(|limit| started + limit),
            phase: Phase::Running,
            failures: Vec::new(),
            timed_out: false,
            told: None,
            passed_on: None,
            told_to_end: None,
            asked: Vec::new(),
            never_entered: Vec::new(),
            finished: 0,
        }
    }

    /// Returns when every process has ended. It waits for nothing else: neither for whoever reads
    /// the launcher's output nor for whoever writes its input. `more` says whether output is still
    /// being read, of which the end may come as an event before the processes'. With the outcome
    /// comes the signal that told the job to end, if anything did.
    pub(crate) fn run(
        mut self,
        events: &Receiver<Event>,
        more: &mut bool,
    ) -> (Outcome, Option<i32>) {
        self.look_at_all();
        while self.alive().next().is_some() {
            let event = match self.next_deadline() {
                Some(deadline) => events.recv_deadline(deadline),
                None => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match event {
                Ok(Event::Signal(signal)) => self.on_signal(signal),
                Ok(Event::Alarm(text)) => self.on_alarm(text),
                Ok(Event::OutputDone) => *more = false,
                Ok(Event::Written(..)) => {}
                Err(RecvTimeoutError::Timeout) => {}
                // The threads that send never end before this; without them, look now and then.
                Err(RecvTimeoutError::Disconnected) => {
                    std::thread::sleep(LOOK);
                    self.look_at_all();
                }
            }
            self.on_time();
        }
        self.blame_those_who_never_entered();
        let outcome = self.outcome();
        let told = self.told(&outcome);
        (outcome, told)
    }

    fn alive(&self) -> impl Iterator<Item = &Process> {
        self.processes.iter().filter(|process| process.status.is_none())
    }

    fn signal_all(&self, signal: Signal) {
        for process in self.processes.iter() {
            process.signal(signal);
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let phase = match self.phase {
            Phase::Running => self.limit,
            Phase::Failing(at) | Phase::Terminating(at) => Some(at),
            Phase::Killed => None,
        };
        let watching = self.job.is_some() && !self.never_entered.is_empty();
        let look = watching.then(|| Instant::now() + LOOK);
        phase.into_iter().chain(look).min()
    }

    fn on_time(&mut self) {
        let now = Instant::now();
        self.blame_those_who_never_entered();
        match self.phase {
            Phase::Running if self.limit.is_some_and(|limit| now >= limit) => {
                self.timed_out = true;
                self.streams.say("the time limit has passed; this is what the ranks were doing:");
                self.report();
                self.terminate();
            }
            // Those who go on without the failed ranks are left alone.
            Phase::Failing(at) if now >= at && self.anyone_goes_on() => self.phase = Phase::Running,
            Phase::Failing(at) if now >= at => self.terminate(),
            Phase::Terminating(at) if now >= at => self.kill(),
            _ => {}
        }
    }

    fn terminate(&mut self) {
        self.signal_all(Signal::TERM);
        // A stopped process takes a signal only when it goes on.
        self.signal_all(Signal::CONT);
        self.phase = Phase::Terminating(Instant::now() + self.plan.grace);
    }

    fn kill(&mut self) {
        self.signal_all(Signal::KILL);
        self.phase = Phase::Killed;
    }

    /// What has stopped a job should end its MPI launcher, too; but one may wait for ever, as for a
    /// host that has fallen silent, or for a rank that was not started: nobody has begun then.
    fn on_alarm(&mut self, text: String) {
        let starting = text.starts_with(NOT_STARTED);
        self.told = Some(text);
        if self.phase == Phase::Running && starting {
            self.terminate();
        } else if self.phase == Phase::Running {
            self.phase = Phase::Failing(Instant::now() + self.plan.grace.max(LAUNCHER_ENDS));
        }
    }

    fn look_at_all(&mut self) {
        for index in 0..self.processes.len() {
            let process = &mut self.processes[index];
            if process.status.is_none()
                && let Some(status) = process.look()
            {
                process.status = Some(status);
                let rank = process.ranks.start;
                self.on_end(rank, status);
            }
        }
    }

    fn on_end(&mut self, rank: usize, status: ExitStatus) {
        if let (Some(told), Phase::Terminating(_) | Phase::Killed) = (&self.told, self.phase) {
            let who = self.name(rank);
            let why = match told.starts_with(NOT_STARTED) {
                true => told.clone(),
                false => format!("{told}; {who} did not end by itself, and was ended"),
            };
            self.failures.push((rank, Failure { who: None, why, code: 1 }));
            return;
        }
        let entered = self.job.is_some_and(|job| job.entered(rank));
        let finished = self.job.is_some_and(|job| job.finished(rank));
        match judge(status, entered, finished) {
            Verdict::Fine => {
                self.finished += 1;
                self.job.iter().for_each(|job| job.ended_well(rank));
            }
            Verdict::NeverEntered => {
                self.finished += 1;
                self.never_entered.push(rank);
            }
            Verdict::Failed => {
                let why = match &self.plan.under {
                    Some(launcher) => format!(
                        "a rank failed or could not be started: {}",
                        report::ending_of(&format!("the launcher of {launcher}"), status)
                    ),
                    None => report::ending(status),
                };
                self.on_failure(rank, status, why);
            }
        }
    }

    fn on_failure(&mut self, rank: usize, status: ExitStatus, why: String) {
        if let Some(job) = self.job {
            job.died(rank, status);
        }
        let code = report::shell_status(status).max(1);
        // Which rank it was, an MPI launcher has said itself.
        let who = self.plan.under.is_none().then(|| self.name(rank));
        self.failures.push((rank, Failure { who, why, code }));
        if self.phase == Phase::Running && self.plan.on_failure == OnFailure::End {
            // Ranks in the world learn of the failure there, and get time to end by themselves;
            // nobody tells a program that never entered it.
            if self.anyone_entered() {
                self.phase = Phase::Failing(Instant::now() + self.plan.grace);
            } else {
                self.terminate();
            }
        }
    }

    fn anyone_entered(&self) -> bool {
        self.job.is_some_and(|job| (0..self.plan.size).any(|rank| job.entered(rank)))
    }

    fn anyone_goes_on(&self) -> bool {
        let mut ranks = self.alive().flat_map(|process| process.ranks.clone());
        self.job.is_some_and(|job| ranks.any(|rank| job.goes_on(rank)))
    }

    /// A rank that ends without entering the world is an error once another has entered it.
    fn blame_those_who_never_entered(&mut self) {
        if self.never_entered.is_empty() || !self.anyone_entered() {
            return;
        }
        for rank in std::mem::take(&mut self.never_entered) {
            self.finished -= 1;
            let status = self.processes[rank].status.unwrap_or_default();
            let why = "it ended without entering the world that other ranks entered; call \
                       spmd::run on every rank";
            self.on_failure(rank, status, why.into());
        }
    }
}
