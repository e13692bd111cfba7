//! The processes of a job: their ends, signals to them, and the order in which they go.

use std::ops::Range;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpgid, kill_process, kill_process_group, waitid,
};

use crate::watchdog::Watchdog;

/// A started process, leader of a process group of its own. Its zombie is kept until the job is
/// over, so that its number names nothing else in the meantime.
pub(crate) struct Process {
    /// The ranks that it holds: one, or all of them.
    pub(crate) ranks: Range<usize>,
    /// How it ended, once it has.
    pub(crate) status: Option<ExitStatus>,
    pub(crate) pid: Pid,
    child: Child,
}

impl Process {
    pub(crate) fn new(ranks: Range<usize>, child: Child) -> Process {
        Process { ranks, status: None, pid: Pid::from_child(&child), child }
    }

    /// Sends a signal to the process and its descendants.
    pub(crate) fn signal(&self, signal: Signal) {
        // An error says that nothing is left to receive it.
        let _ = kill_process_group(self.pid, signal);
        // It may have gone to another group. Its number is its own until it is reaped.
        if getpgid(Some(self.pid)).is_ok_and(|group| group != self.pid) {
            let _ = kill_process(self.pid, signal);
        }
    }

    /// Looks whether the process has ended, and leaves its zombie.
    pub(crate) fn look(&self) -> Option<ExitStatus> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let ended = waitid(WaitId::Pid(self.pid), options).ok()??;
        let raw = match (ended.exit_status(), ended.terminating_signal()) {
            (Some(code), _) => code << 8,
            (None, signal) => signal?,
        };
        Some(ExitStatus::from_raw(raw))
    }

    /// Takes the zombie away.
    fn reap(&mut self) {
        let _ = self.child.wait();
    }
}

/// The processes of a job. Whatever way the launcher takes out of a function, dropping this ends
/// all of them.
pub(crate) struct Processes {
    pub(crate) all: Vec<Process>,
    watchdog: Watchdog,
}

impl Processes {
    pub(crate) fn new(watchdog: Watchdog) -> Processes {
        Processes { all: Vec::new(), watchdog }
    }

    /// Puts a process that has just been started under the care of the watchdog.
    pub(crate) fn protect(&mut self, child: &Child) {
        self.watchdog.protect(Pid::from_child(child));
    }

    /// Kills what is left of every process group, then lets the watchdog go, then the zombies: in
    /// this order no number that the watchdog holds can have come to mean another process.
    pub(crate) fn end(&mut self) {
        for process in &self.all {
            process.signal(Signal::KILL);
        }
        self.watchdog.dismiss();
        for process in &mut self.all {
            process.reap();
        }
        self.all.clear();
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.end();
    }
}
