//! What the launcher's tests share: running `spmdrun`, and finding what a job left behind.

#![allow(dead_code, reason = "each test file uses a part of this")]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

/// Long enough for anything on a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    pub(crate) fn lines(&self) -> Vec<&str> {
        let mut lines: Vec<&str> = self.out.lines().collect();
        lines.sort_unstable();
        lines
    }

    pub(crate) fn last_line(&self) -> &str {
        self.err.lines().last().unwrap_or("")
    }
}

pub(crate) fn spmdrun(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spmdrun"));
    command.args(arguments).stdin(Stdio::null());
    for name in ["SPMD_RANKS", "SPMD_AS", "SPMD_BIND", "OMP_NUM_THREADS", "RAYON_NUM_THREADS"] {
        command.env_remove(name);
    }
    command
}

pub(crate) fn finish(command: &mut Command) -> Ran {
    let output = command.output().expect("spmdrun starts");
    Ran {
        code: output.status.code(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

pub(crate) fn run(arguments: &[&str]) -> Ran {
    finish(&mut spmdrun(arguments))
}

/// A job in progress, found again by a variable in its processes' environment.
pub(crate) struct Job {
    child: Child,
    out: BufReader<ChildStdout>,
    mark: String,
}

/// Undoes what `nohup` and shells do to jobs in the background, which spmdrun would inherit: it
/// heeds no signal that it finds ignored.
fn heed_signals() -> std::io::Result<()> {
    for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP, libc::SIGTSTP] {
        // SAFETY: sets a signal that exists to what it does by default.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    Ok(())
}

impl Job {
    /// Starts a job and waits for `ready` lines of output.
    pub(crate) fn start(arguments: &[&str], ready: usize) -> Job {
        Job::of(spmdrun(arguments), ready)
    }

    /// The same for a command that is made already.
    pub(crate) fn of(mut command: Command, ready: usize) -> Job {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let value = format!("{}-{number}", std::process::id());
        command.env("LAUNCHER_TEST", &value).stdout(Stdio::piped()).stderr(Stdio::piped());
        // SAFETY: between fork and exec this makes system calls alone.
        unsafe { command.pre_exec(heed_signals) };
        let mut child = command.spawn().expect("spmdrun starts");
        let out = BufReader::new(child.stdout.take().expect("piped"));
        let mut job = Job { child, out, mark: format!("LAUNCHER_TEST={value}") };
        for _ in 0..ready {
            assert!(!job.line().is_empty(), "the job ended before it was ready");
        }
        job
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("readable");
        line.trim_end().to_owned()
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        rustix::process::kill_process(self.pid(), signal).expect("spmdrun is there");
    }

    /// Waits for the end, and for every process of the job to be gone.
    pub(crate) fn end(mut self) -> Ran {
        let mut out = String::new();
        let mut err = String::new();
        self.out.read_to_string(&mut out).expect("UTF-8");
        self.child.stderr.take().expect("piped").read_to_string(&mut err).expect("UTF-8");
        let code = self.child.wait().expect("waitable").code();
        wait_until("every process of the job is gone", || self.processes().is_empty());
        Ran { code, out, err }
    }

    /// The processes of the job that run, the watchdog included.
    pub(crate) fn processes(&self) -> Vec<i32> {
        let watchdog = format!("--watchdog\0{}-", self.pid().as_raw_nonzero());
        let belongs = |pid: &i32| {
            let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let cmdline = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            environ.split(|&byte| byte == 0).any(|variable| variable == self.mark.as_bytes())
                || String::from_utf8_lossy(&cmdline).contains(&watchdog)
        };
        let entries = fs::read_dir("/proc").expect("/proc").flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(belongs).collect()
    }
}

/// The letter by which the kernel shows a process's state, or a blank where it is gone.
pub(crate) fn state(pid: i32) -> char {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().and_then(|rest| rest.chars().next()).unwrap_or(' ')
}

pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "not in {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
