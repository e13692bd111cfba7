//! The watchdog: a second process that ends the ranks when the launcher dies, even by SIGKILL.
//!
//! It reads a pipe whose other end only the launcher holds. The launcher writes the process id of
//! every rank into it; the pipe's end means that the launcher is dead. When a job is over in the
//! ordinary way the launcher ends the watchdog itself. It runs in a process group of its own,
//! where the terminal's Ctrl-C does not reach it, and under a name of its own.

use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::process::{Pid, Signal, kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use crate::error::Error;

const FLAG: &str = "--watchdog";
const NAME: &str = "spmd-watchdog";

/// The launcher's side.
pub(crate) struct Watchdog {
    child: Child,
    pipe: ChildStdin,
}

impl Watchdog {
    /// Starts a watchdog for the job named by `token`. Does not wait until it is up: it finds
    /// everything in the pipe, or finds the pipe's end.
    pub(crate) fn start(token: &str) -> Result<Watchdog, Error> {
        let failed = |error| Error::system("start the watchdog process", error);
        let program = std::env::current_exe().map_err(failed)?;
        let mut child = Command::new(program)
            .arg0(NAME)
            .args([FLAG, token])
            // Without the launcher's environment, output or directory, it outlives an outer job's
            // search for strays and holds nothing open.
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        match child.stdin.take() {
            Some(pipe) => Ok(Watchdog { child, pipe }),
            None => Err(failed(io::Error::other("it has no standard input"))),
        }
    }

    /// Puts a process group under its care.
    pub(crate) fn protect(&mut self, group: Pid) {
        // One write, so that the launcher's death cannot cut it. It fails only where someone has
        // killed the watchdog; the job goes on without it.
        let _ = self.pipe.write_all(format!("{}\n", group.as_raw_nonzero()).as_bytes());
    }

    /// Ends the watchdog; the ranks are dead by now.
    pub(crate) fn dismiss(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// If this process was started as a watchdog, does its work and gives its exit status.
pub(crate) fn main() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != FLAG {
        return None;
    }
    let token = arguments.next()?.into_string().ok()?;
    // A name that `killall spmdrun` does not match.
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::set_name(c"spmd-watchdog");
    for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT] {
        // A handler that only notes the signal is as good as ignoring it.
        let _ = signal_hook::flag::register(signal, Arc::<AtomicBool>::default());
    }
    let mut groups = Vec::new();
    let mut line = String::new();
    let mut pipe = io::stdin().lock();
    // A line without its end was cut off by the launcher's death and may be a wrong number.
    while pipe.read_line(&mut line).is_ok_and(|count| count > 0) && line.ends_with('\n') {
        groups.extend(line.trim().parse().ok().and_then(Pid::from_raw));
        line.clear();
    }
    for group in groups {
        let _ = kill_process_group(group, Signal::KILL);
    }
    kill_strays(&token);
    Some(ExitCode::SUCCESS)
}

/// Kills the processes whose environment names the job: the launcher may have died after it
/// started a rank and before it could say so.
pub(crate) fn kill_strays(token: &str) {
    let mark = format!("SPMD_JOB={token}").into_bytes();
    let belongs = |pid: i32| {
        std::fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|text| text.split(|&byte| byte == 0).any(|variable| variable == mark))
    };
    // Again while any is found: one of them may be starting another. Bounded, as a process that
    // cannot be killed must not keep the watchdog.
    for _ in 0..100 {
        let Ok(entries) = std::fs::read_dir("/proc") else { return };
        let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let strays: Vec<i32> = pids.filter(|&pid| belongs(pid)).collect();
        if strays.is_empty() {
            return;
        }
        for pid in strays.into_iter().filter_map(Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}
