//! What signals to the launcher do to a job.

use std::time::Instant;

use rustix::process::Signal;
use signal_hook::consts::{SIGCHLD, SIGCONT, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};

use super::{LAUNCHER_ENDS, Phase, Supervisor};
use crate::signals::{self, ENDING};

impl Supervisor<'_> {
    pub(super) fn on_signal(&mut self, number: i32) {
        if ENDING.contains(&number) {
            self.told_to_end = Some(number);
        }
        match number {
            SIGCHLD => self.look_at_all(),
            SIGQUIT => self.report(),
            SIGTSTP => self.stop(),
            SIGINT | SIGTERM
                if self.asked.iter().any(|&asked| asked == number || asked == SIGTERM) =>
            {
                self.passed_on = Some(number);
                self.kill();
            }
            SIGTERM => {
                self.asked.push(number);
                self.passed_on = Some(number);
                self.told_to_terminate();
            }
            _ => {
                self.asked.extend((number == SIGINT).then_some(number));
                if let Some(signal) = Signal::from_named_raw(number) {
                    self.signal_all(signal);
                }
                if number != SIGCONT {
                    self.passed_on = Some(number);
                }
            }
        }
    }

    /// Passes SIGTERM on. Whoever has not ended after the grace is killed.
    fn told_to_terminate(&mut self) {
        match self.phase {
            Phase::Running | Phase::Failing(_) => {
                self.terminate();
                if self.plan.under.is_some() {
                    let grace = self.plan.grace.max(LAUNCHER_ENDS);
                    self.phase = Phase::Terminating(Instant::now() + grace);
                }
            }
            // The grace has begun.
            Phase::Terminating(_) | Phase::Killed => self.signal_all(Signal::TERM),
        }
    }

    /// Stops the ranks and then the launcher, as Ctrl-Z asks; the time spent so does not count.
    /// What lets the launcher go on is a SIGCONT, which it passes on.
    fn stop(&mut self) {
        self.signal_all(Signal::TSTP);
        let stopped = signals::stop();
        self.limit = self.limit.map(|limit| limit + stopped);
        self.phase = match self.phase {
            Phase::Failing(at) => Phase::Failing(at + stopped),
            Phase::Terminating(at) => Phase::Terminating(at + stopped),
            other => other,
        };
    }
}
