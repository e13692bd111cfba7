//! Ranks under a debugger (`--debug-rank`).
//!
//! In such a rank's place the launcher starts itself, which waits until a debugger has attached and
//! then becomes the rank. So the rank is a child of the launcher as any other, whatever starts the
//! debugger (the server of tmux is no descendant of the launcher), and the debugger has it before
//! its first instruction.

mod terminal;

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use rustix::process::Pid;

use crate::error::{Error, usage};
use crate::plan::{Plan, Program, find};
use crate::process::Process;
use crate::report;
use crate::streams::Streams;
use terminal::Terminal;

const FLAG: &str = "--debugged";

/// How often a rank looks whether a debugger has attached.
const LOOK: Duration = Duration::from_millis(20);

/// What gdb does first: it lets the rank become its program, and stops there.
const FIRST: [&str; 2] = ["tcatch exec", "continue"];

/// How debuggers are started.
pub(crate) struct Debugger {
    /// gdb, in a terminal for each rank; without one the user starts it.
    there: Option<(PathBuf, Terminal)>,
}

impl Debugger {
    /// What there is for the ranks that the plan wants debugged, if it wants any.
    ///
    /// Errors: there is a terminal for gdb, but no gdb; the kernel lets nobody attach.
    pub(crate) fn find(plan: &Plan) -> Result<Option<Debugger>, Error> {
        if plan.debug_ranks.is_none() {
            return Ok(None);
        }
        let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
        let scope = scope.trim();
        if scope == "3" || scope == "2" && !rustix::process::geteuid().is_root() {
            return usage(format!(
                "--debug-rank: the kernel lets no debugger attach (kernel.yama.ptrace_scope is {scope}); \
                 as root, `sysctl kernel.yama.ptrace_scope=1` allows it where the value is not 3"
            ));
        }
        let of = |name: &OsStr| find(name).ok();
        let Some(terminal) = Terminal::find(|name| env::var_os(name), of) else {
            return Ok(Some(Debugger { there: None }));
        };
        match of("gdb".as_ref()) {
            Some(gdb) => Ok(Some(Debugger { there: Some((gdb, terminal)) })),
            None => usage(
                "--debug-rank: gdb is not in PATH; install it (Debian: apt install gdb)".into(),
            ),
        }
    }

    /// Starts a debugger for this process, or says what the user is to start.
    ///
    /// Errors: the terminal cannot be opened.
    pub(crate) fn attach(&self, process: &Process, streams: &Streams) -> Result<(), Error> {
        let (rank, pid) = (process.ranks.start, process.pid);
        let who = format!("rank {rank} (process {})", pid.as_raw_nonzero());
        let by_hand = format!("in another terminal: {}", by_hand(pid));
        let Some((gdb, terminal)) = &self.there else {
            streams.say(&format!("{who} waits for a debugger: start one {by_hand}"));
            return Ok(());
        };
        let place = terminal.place(rank);
        streams.say(&format!("{who} is in gdb, in {place}: set breakpoints, then `continue`"));
        let streams = streams.clone();
        terminal.open(rank, gdb, &arguments(pid), move |why| {
            streams.say(&format!(
                "{place} has ended ({why}); if {who} waits for a debugger, start one {by_hand}"
            ));
        })
    }
}

fn arguments(pid: Pid) -> Vec<OsString> {
    let mut words = vec!["-q".to_owned(), "-p".into(), pid.as_raw_nonzero().to_string()];
    words.extend(FIRST.into_iter().flat_map(|what| ["-ex".into(), what.to_owned()]));
    words.into_iter().map(OsString::from).collect()
}

/// What a person types.
fn by_hand(pid: Pid) -> String {
    let first = FIRST.map(|what| format!("-ex '{what}'")).join(" ");
    format!("gdb -p {} {first}", pid.as_raw_nonzero())
}

/// What is started in the place of a program.
///
/// Errors: this program does not know where it lies.
pub(crate) fn starter(program: &Program) -> Result<Command, Error> {
    let own = env::current_exe();
    let own = own.map_err(|error| Error::system("find spmdrun's own file", error))?;
    let mut command = Command::new(own);
    command.arg(FLAG).arg(&program.path).arg(&program.name);
    Ok(command)
}

/// If this process was started in the place of a rank, becomes it once a debugger has attached.
pub(crate) fn become_rank() -> Option<ExitCode> {
    let mut arguments = env::args_os().skip(1);
    if arguments.next()? != FLAG {
        return None;
    }
    let (path, name) = (arguments.next()?, arguments.next()?);
    // Where Yama would let only ancestors attach; it holds after exec, too. Elsewhere it is refused,
    // and not needed.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_ptracer(rustix::process::PTracer::Any);
    while !is_traced() {
        std::thread::sleep(LOOK);
    }
    let error = Command::new(&path).arg0(&name).args(arguments).exec();
    report::say(&format!("cannot start {}: {error}", name.display()));
    Some(ExitCode::from(Error::NotExecutable(String::new()).status()))
}

fn is_traced() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
    tracer.is_some_and(|pid| pid.trim() != "0")
}
