//! Starting the processes of a job.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::debugger;
use crate::environment::Environment;
use crate::error::Error;
use crate::input::Feed;
use crate::job::Job;
use crate::output::{self, Output};
use crate::place::{Affinity, Places};
use crate::plan::{Plan, Program};
use crate::process::{Process, Processes};
use crate::streams::Streams;
use crate::variables::not_for_ranks;
use crate::watchdog::Watchdog;

/// The pieces that starting fills.
pub(crate) struct Started {
    pub(crate) processes: Processes,
    pub(crate) output: Option<Output>,
    pub(crate) inputs: Vec<ChildStdin>,
}

/// Starts every process of the plan.
pub(crate) fn start(
    plan: &Plan,
    places: &Places,
    job: Option<&Job>,
    environment: &Environment,
    watchdog: Watchdog,
    streams: &Streams,
) -> Result<Started, Error> {
    let mut processes = Processes::new(watchdog);
    let captured = output::captured(plan);
    let count = plan.processes().count();
    let feeds: Vec<Feed> = (0..count).map(|rank| Feed::of(plan, rank)).collect();
    let lowered = if captured { allow_files(files_needed(plan, &feeds))? } else { None };
    let mut output = captured.then(|| Output::new(plan, streams)).transpose()?;
    let mut files =
        (0..count).map(|rank| output::files::of(plan, rank)).collect::<Result<Vec<_>, _>>()?;
    let mut inputs = Vec::new();
    let affinity = Affinity::save();

    for ((rank, program), files) in plan.processes().enumerate().zip(files.drain(..)) {
        let union = plan.one_process().then(|| places.union()).flatten();
        if let Some(cpus) = union.as_ref().or(places.cpus(rank)) {
            affinity.set(cpus)?;
        }
        let env = environment.of(plan, program, rank, places, job, captured);
        let mut command = match plan.is_debugged(rank) {
            true => debugger::starter(program)?,
            false => as_itself(program),
        };
        complete(&mut command, program, env, feeds[rank], captured);
        if let Some(limit) = &lowered {
            start_with(&mut command, *limit);
        }
        let mut child = command.spawn().map_err(|error| refused(rank, program, error))?;
        processes.protect(&child);
        inputs.extend(child.stdin.take());
        if let Some(output) = &mut output {
            add_output(output, rank, &mut child, files);
        }
        let ranks = if plan.one_process() { 0..plan.size } else { rank..rank + 1 };
        processes.all.push(Process::new(ranks, child));
    }
    Ok(Started { processes, output, inputs })
}

fn as_itself(program: &Program) -> Command {
    let mut command = Command::new(&program.path);
    command.arg0(&program.name);
    command
}

fn complete(
    command: &mut Command,
    program: &Program,
    env: Vec<(String, std::ffi::OsString)>,
    feed: Feed,
    captured: bool,
) {
    let out = || if captured { Stdio::piped() } else { Stdio::inherit() };
    command.args(&program.arguments).process_group(0);
    command.stdin(feed.stdio()).stdout(out()).stderr(out());
    for name in not_for_ranks() {
        command.env_remove(name);
    }
    command.envs(env);
    if let Some(cwd) = &program.cwd {
        command.current_dir(cwd);
    }
}

fn add_output(output: &mut Output, rank: usize, child: &mut Child, files: [Option<File>; 2]) {
    if let (Some(out), Some(err)) = (child.stdout.take(), child.stderr.take()) {
        output.add(rank, [OwnedFd::from(out), OwnedFd::from(err)], files);
    }
}

fn refused(rank: usize, program: &Program, error: io::Error) -> Error {
    let name = program.name.display();
    match error.kind() {
        io::ErrorKind::NotFound => {
            Error::NotFound(format!("cannot start {name}: it, or its interpreter, is missing"))
        }
        io::ErrorKind::PermissionDenied => {
            Error::NotExecutable(format!("cannot start {name}: {error}"))
        }
        _ if error.raw_os_error() == Some(rustix::io::Errno::NOEXEC.raw_os_error()) => {
            Error::NotExecutable(format!("cannot start {name}: it is not a program ({error})"))
        }
        io::ErrorKind::ArgumentListTooLong => Error::System {
            action: format!("start rank {rank} ({name})"),
            source: error,
            remedy: "; its arguments or the environment are too long, with the variables that \
                     spmdrun sets: shorten them, or raise the limit (ulimit -s)",
        },
        _ => Error::System {
            action: format!("start rank {rank} ({name})"),
            source: error,
            remedy: "; use fewer ranks, or raise the limit (ulimit -u, -n)",
        },
    }
}

/// How many descriptors starting these processes takes at most, with those that are open.
fn files_needed(plan: &Plan, feeds: &[Feed]) -> usize {
    // For the program of one that is being started: the other ends of its pipes and an errors'
    // pipe.
    const PASSING: usize = 16;
    let open = std::fs::read_dir("/proc/self/fd").map_or(64, Iterator::count);
    let each = if plan.output_dir.is_some() { 4 } else { 2 };
    let inputs = feeds.iter().filter(|feed| **feed == Feed::Pipe).count();
    open + each * feeds.len() + inputs + PASSING
}

/// Raises the soft limit of open files where so many are needed. Returns what it was: the limit of
/// the ranks.
fn allow_files(needed: usize) -> Result<Option<Rlimit>, Error> {
    let limit = getrlimit(Resource::Nofile);
    let needed = needed as u64;
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(None);
    }
    if limit.maximum.is_some_and(|maximum| maximum < needed) {
        return Err(Error::Usage(format!(
            "so many ranks need {needed} open files, and the hard limit is {}; use fewer, --as \
             virtual, or raise it (ulimit -Hn)",
            limit.maximum.unwrap_or(needed)
        )));
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum: limit.maximum })
        .map_err(|error| Error::system("raise the limit of open files", error))?;
    Ok(Some(limit))
}

/// Gives the program this limit of open files instead of the launcher's.
fn start_with(command: &mut Command, limit: Rlimit) {
    let lower = move || Ok(setrlimit(Resource::Nofile, limit)?);
    // SAFETY: between fork and exec the closure makes one system call, with numbers of its own: it
    // takes no lock and no memory, and touches nothing of the launcher's.
    unsafe { command.pre_exec(lower) };
}
