//! What becomes of the job, and how it is told.

use rustix::process::Signal;
use signal_hook::consts::SIGTERM;

use super::{Phase, Supervisor};
use crate::args::OnFailure;
use crate::job::Job;
use crate::report::{self, Failure, Outcome};
use crate::signals::ENDING;

/// Why a job is a success although ranks have failed.
const GONE_ON: &str = "without the failed ones";

impl Supervisor<'_> {
    pub(super) fn name(&self, rank: usize) -> String {
        if let Some(launcher) = &self.plan.under {
            format!("the launcher of {launcher}")
        } else if self.plan.one_process() && self.plan.size > 1 {
            format!("the process of ranks 0 to {}", self.plan.size - 1)
        } else {
            format!("rank {rank}")
        }
    }

    /// What the ranks are doing, a line for those who do the same.
    pub(super) fn report(&self) {
        let say = |line: &str| self.streams.say(line);
        for process in self.processes.iter() {
            let first = process.ranks.start;
            let who = format!("{} (pid {})", self.name(first), process.pid.as_raw_nonzero());
            match (process.status, self.shown) {
                (Some(status), _) => say(&format!("{who}: ended: {}", report::ending(status))),
                (None, Some(job)) if process.ranks.len() == 1 => {
                    say(&format!("{who}: {}", job.report(first)));
                }
                (None, Some(job)) => {
                    say(&format!("{who}:"));
                    let doing = process.ranks.clone().map(|rank| (rank, job.report(rank)));
                    report::by_text(doing).iter().for_each(|line| say(&format!("  {line}")));
                }
                (None, None) => {
                    let seconds = self.started.elapsed().as_secs_f64();
                    say(&format!("{who}: running for {seconds:.1} s"));
                }
            }
        }
    }

    pub(super) fn outcome(&self) -> Outcome {
        if self.timed_out {
            let limit = self.plan.timeout.unwrap_or_default();
            return Outcome::TimedOut { limit };
        }
        let Some(first) = self.failures.first() else { return Outcome::Success };
        // A failure without whose rank others went on does not count.
        let departed = |rank| self.job.is_some_and(|job| job.departed(rank));
        let counts = self.failures.iter().find(|(rank, _)| !departed(*rank));
        let (rank, failure) = counts.unwrap_or(first).clone();
        let asked = self.plan.on_failure == OnFailure::Continue;
        if self.finished > 0 && (asked || counts.is_none()) {
            let (finished, size) = (self.finished, self.plan.size);
            let why = if counts.is_none() { GONE_ON } else { "--on-failure continue" };
            return Outcome::Survived { first: self.named_by_job(failure), finished, size, why };
        }
        let status = self.processes[rank].status;
        if let Some(signal) = self.passed_on
            && (self.ends_by_itself(signal)
                || status.and_then(report::signal).is_some_and(|by| {
                    by == signal || (by == Signal::KILL.as_raw() && self.phase == Phase::Killed)
                }))
        {
            return Outcome::Interrupted { signal };
        }
        Outcome::Failed(self.named_by_job(failure))
    }

    /// The signal that told the job to end, whatever its ranks have made of it. At the time limit
    /// it is the one that they get then.
    pub(super) fn told(&self, outcome: &Outcome) -> Option<i32> {
        match outcome {
            Outcome::TimedOut { .. } => Some(SIGTERM),
            Outcome::Interrupted { signal } => Some(*signal),
            _ => self.told_to_end,
        }
    }

    /// Whether the job's process ends the ranks at this signal and then exits, as MPI launchers do.
    fn ends_by_itself(&self, signal: i32) -> bool {
        self.plan.under.is_some() && ENDING.contains(&signal)
    }

    /// What the ranks themselves recorded as the first cause comes before what their deaths show.
    fn named_by_job(&self, failure: Failure) -> Failure {
        let Some((rank, why)) = self.shown.and_then(Job::first_cause) else { return failure };
        let Some(rank) = rank else { return Failure { who: None, why, ..failure } };
        let process = self.processes.iter().find(|process| process.ranks.contains(&rank));
        let own = process.and_then(|process| process.status).map_or(0, report::shell_status);
        let code = if own == 0 { failure.code } else { own };
        Failure { who: Some(format!("rank {rank}")), why, code }
    }
}
