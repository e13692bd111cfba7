//! Runs one job of a sweep: `spmdrun`, and this program as its ranks.

use std::collections::BTreeMap;
use std::env;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::result::{Job, Record};
use crate::describe::{Description, is_description};

/// Beginnings of the variables that say what a measurement was made with.
const TELLING: [&str; 12] = [
    "SPMD_",
    "MPIR_CVAR_",
    "I_MPI_",
    "OMPI_MCA_",
    "FI_",
    "UCX_",
    "HYDRA_",
    "PSM2_",
    "MPICH_",
    "SLURM_MPI_",
    "PRTE_MCA_",
    "PMIX_MCA_",
];

/// The status of `spmdrun` when the time limit has ended a job.
const TIMED_OUT: i32 = 124;
/// Lines of what a failed job has said that are kept, at most.
const KEPT: usize = 40;

/// What jobs are run with.
pub(crate) struct Runner {
    spmdrun: PathBuf,
    perf: PathBuf,
    timeout: f64,
    launcher: Vec<String>,
    variables: BTreeMap<String, String>,
}

impl Runner {
    /// Finds `spmdrun` beside this program, else in `PATH`, and asks it about MPI, if that is
    /// needed.
    ///
    /// Errors: it is at neither place.
    pub(crate) fn new(timeout: f64, mpi: bool) -> Result<Runner, String> {
        let perf = env::current_exe().map_err(|error| format!("cannot find myself: {error}"))?;
        let name = format!("spmdrun{}", env::consts::EXE_SUFFIX);
        let beside = perf.with_file_name(&name);
        let path = env::var_os("PATH").unwrap_or_default();
        let in_path = env::split_paths(&path).map(|folder| folder.join(&name));
        let spmdrun = std::iter::once(beside).chain(in_path).find(|it| it.is_file());
        let spmdrun = spmdrun.ok_or_else(|| {
            format!(
                "spmdrun is neither beside {} nor in PATH; cargo install spmd-launcher",
                perf.display()
            )
        })?;
        let telling = |name: &String| TELLING.iter().any(|beginning| name.starts_with(beginning));
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.to_string_lossy().into_owned()))
        };
        let variables = env::vars_os().filter_map(text).filter(|(name, _)| telling(name)).collect();
        let mut runner = Runner { spmdrun, perf, timeout, launcher: Vec::new(), variables };
        if mpi {
            let said = runner.said(&mut runner.command(&["--doctor".into()]))?;
            let said = String::from_utf8_lossy(&said.stdout).into_owned();
            let words = |line: &str| line.split_whitespace().skip(1).collect::<Vec<_>>().join(" ");
            let lines = said.lines().map(words);
            runner.launcher = lines.filter(|line| line.starts_with("MPI ")).collect();
        }
        Ok(runner)
    }

    fn command(&self, options: &[String]) -> Command {
        let mut command = Command::new(&self.spmdrun);
        command.args(options).stdin(Stdio::null());
        end_with_us(&mut command);
        command
    }

    /// Options of `spmdrun`, the program, and its options.
    fn words(&self, job: &Job) -> Vec<String> {
        let mut words = job.placement.options();
        words.extend(["--timeout".into(), self.timeout.to_string()]);
        words.extend(["--bind".into(), job.settings.bind.clone()]);
        words.extend(job.settings.env.iter().flat_map(|set| ["--env".into(), set.clone()]));
        words.push(self.perf.to_string_lossy().into_owned());
        words.push(job.bench.name());
        let sizes: Vec<String> = job.settings.sizes.iter().map(usize::to_string).collect();
        words.extend(["--sizes".into(), sizes.join(",")]);
        words.extend(["--seconds".into(), job.settings.seconds.to_string()]);
        words.extend(["--json".into(), "--describe".into()]);
        words
    }

    /// The command, as a shell takes it.
    pub(crate) fn line(&self, job: &Job) -> String {
        let words = std::iter::once(self.spmdrun.display().to_string()).chain(self.words(job));
        words.map(quoted).collect::<Vec<_>>().join(" ")
    }

    fn said(&self, command: &mut Command) -> Result<Output, String> {
        let output = command.output();
        output.map_err(|error| format!("cannot start {}: {error}", self.spmdrun.display()))
    }

    /// Asks `spmdrun` whether a job can be started at all: whether the hosts are known, and there
    /// is an MPI.
    ///
    /// Errors: what it answers.
    pub(crate) fn check(&self, job: &Job) -> Result<(), String> {
        let mut words = self.words(job);
        words.insert(0, "--dry-run".into());
        let output = self.said(&mut self.command(&words))?;
        if output.status.success() { Ok(()) } else { Err(reason(&output)) }
    }

    /// Runs a job to its end. What goes wrong is in the record.
    pub(crate) fn run(&self, job: &Job) -> Record {
        let mut record = job.record();
        record.command = self.line(job);
        record.launcher = self.launcher.clone();
        record.variables = self.variables.clone();
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        record.started = now.map_or(0, |since| since.as_secs());
        let start = Instant::now();
        let output = self.said(&mut self.command(&self.words(job)));
        record.took_seconds = start.elapsed().as_secs_f64();
        match output {
            Ok(output) => self.read(&output, &mut record),
            Err(error) => record.error = Some(error),
        }
        record
    }

    /// Takes results and description from among what a job has printed.
    fn read(&self, output: &Output, record: &mut Record) {
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            // MPI libraries and their launchers may have printed lines of their own.
            if is_description(line) {
                let read = serde_json::from_str::<Description>(line).ok();
                record.machine = read.map(|description| description.machine);
            } else if let Ok(line) = serde_json::from_str(line) {
                record.results.push(line);
            }
        }
        let (sizes, results) = (record.settings.sizes.len(), record.results.len());
        record.error = match output.status.code() {
            Some(0) if results == sizes && record.machine.is_some() => None,
            Some(0) => Some(format!("it ended well, and gave {results} results of {sizes}")),
            Some(TIMED_OUT) => {
                let limit = self.timeout;
                Some(format!("it took longer than {limit} s (--timeout)\n\n{}", reason(output)))
            }
            _ => Some(reason(output)),
        };
    }
}

/// A word as a shell needs it.
fn quoted(word: String) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word;
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Why a job has failed: first the line that says it, then the end of all that was said.
fn reason(output: &Output) -> String {
    let all = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = all.trim().lines().collect();
    let telling = lines.iter().find(|line| line.starts_with("spmd")).or(lines.last());
    let Some(telling) = telling else { return format!("it ended with {}", output.status) };
    if lines.len() == 1 {
        return (*telling).to_owned();
    }
    let end = &lines[lines.len().saturating_sub(KEPT)..];
    format!("{telling}\n\n{}", end.join("\n"))
}

/// Has the system tell `spmdrun` to end, and so its ranks, when this process is gone, however it
/// went.
#[cfg(target_os = "linux")]
fn end_with_us(command: &mut Command) {
    use std::os::unix::process::CommandExt;

    use rustix::process::{Signal, getppid, set_parent_process_death_signal};

    let us = rustix::process::getpid();
    let ask = move || {
        set_parent_process_death_signal(Some(Signal::TERM))?;
        // It may have gone before it was asked for.
        if getppid() == Some(us) { Ok(()) } else { Err(rustix::io::Errno::SRCH.into()) }
    };
    // SAFETY: between fork and exec only system calls are made, which take no lock and allocate
    // nothing: an error of rustix is a number, and becomes an io::Error without memory of its own.
    unsafe { command.pre_exec(ask) };
}

#[cfg(not(target_os = "linux"))]
fn end_with_us(_: &mut Command) {}
