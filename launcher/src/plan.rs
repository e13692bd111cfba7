//! The job as it will be started: options checked against each other, programs found.

mod transport;

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use spmd_core::boot::variables::ARENA_SIZE;

use crate::args::{self, Bind, JobOptions, Mode, OnFailure, Section, Stdin, Transport};
use crate::error::Error;
use crate::mpi::hosts::{self, Host};
use crate::topology::{self, Cpus};
use transport::{carrier, hybrid, ranks_under_mpi};

/// The most ranks of each kind; the arena, and what a kernel bears, are made for these.
const MOST_PROCESSES: usize = 4096;
const MOST_THREADS: usize = 4096;
const MOST_VIRTUAL: usize = 1 << 20;

/// A job that can be started.
pub(crate) struct Plan {
    pub(crate) mode: Mode,
    pub(crate) transport: Transport,
    pub(crate) size: usize,
    pub(crate) programs: Vec<Program>,
    pub(crate) bind: Bind,
    pub(crate) report_bindings: bool,
    pub(crate) tag: bool,
    pub(crate) timestamps: bool,
    pub(crate) output_dir: Option<PathBuf>,
    pub(crate) show_ranks: Option<Cpus>,
    pub(crate) stdin: Stdin,
    pub(crate) timeout: Option<Duration>,
    pub(crate) grace: Duration,
    pub(crate) on_failure: OnFailure,
    /// Bytes of shared memory for each process rank, if the user says how many.
    pub(crate) arena_size: Option<usize>,
    pub(crate) dry_run: bool,
    /// The hosts that were named.
    pub(crate) hosts: Vec<Host>,
    /// How many ranks each process holds under MPI.
    pub(crate) ranks_per_process: usize,
    /// The name of the MPI launcher, where that is the one process of this plan.
    pub(crate) under: Option<String>,
}

/// One program of the job, and how many ranks run it.
pub(crate) struct Program {
    pub(crate) ranks: usize,
    pub(crate) path: PathBuf,
    /// As the user wrote it; becomes the program's argument zero.
    pub(crate) name: OsString,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) env: Vec<(String, OsString)>,
    pub(crate) cwd: Option<PathBuf>,
}

impl Plan {
    /// Checks everything that can be checked before anything is started.
    pub(crate) fn new(job: JobOptions, sections: Vec<Section>) -> Result<Plan, Error> {
        let mode = job.mode.map_or_else(
            || from_env("SPMD_AS", None, |text| named(text).map(Some)),
            |mode| Ok(Some(mode)),
        )?;
        let transport =
            job.transport.map_or_else(|| from_env("SPMD_TRANSPORT", Transport::Auto, named), Ok)?;
        let hosts = match &job.hostfile {
            Some(file) => hosts::from_file(file)?,
            None => hosts::from_list(&job.host)?,
        };
        let transport = carrier(transport, !hosts.is_empty(), job.ranks_per_process)?;
        hosts::check(&hosts, hosts::has_address)?;
        let (mode, ranks_per_process) = match transport {
            Transport::Mpi => hybrid(mode, job.ranks_per_process)?,
            _ => (mode.unwrap_or(Mode::Processes), 1),
        };
        let bind = job.bind.map_or_else(|| from_env("SPMD_BIND", Bind::None, args::bind), Ok)?;
        let grace = Duration::from_secs(2);
        let grace = job.grace.map_or_else(|| from_env("SPMD_GRACE", grace, args::duration), Ok)?;
        // The ranks read SPMD_TIMEOUT; nonsense in it is told once, here.
        from_env("SPMD_TIMEOUT", Duration::ZERO, args::seconds)?;
        built_in(mode, transport)?;

        let several = sections.len() > 1;
        let mut programs = Vec::new();
        for section in sections {
            programs.push(Program::new(section, several, || match transport {
                Transport::Mpi => ranks_under_mpi(&hosts, ranks_per_process),
                _ => Ok(topology::parallelism()),
            })?);
        }
        let arena_size = programs.first().and_then(|program| program.setting(ARENA_SIZE));
        let arena_size = value_of(ARENA_SIZE, arena_size, None, bytes)?;
        let size = programs.iter().map(|program| program.ranks).fold(0, usize::saturating_add);
        let plan = Plan {
            mode,
            transport,
            size,
            programs,
            bind,
            report_bindings: job.report_bindings,
            tag: job.tag,
            timestamps: job.timestamps,
            output_dir: job.output_dir,
            show_ranks: job.show_ranks,
            stdin: job.stdin,
            timeout: job.timeout,
            grace,
            on_failure: job.on_failure,
            arena_size,
            dry_run: job.dry_run,
            hosts,
            ranks_per_process,
            under: None,
        };
        plan.check_together()?;
        Ok(plan)
    }

    fn check_together(&self) -> Result<(), Error> {
        match self.transport {
            Transport::Mpi => self.check_under_mpi()?,
            _ => self.check_on_this_host()?,
        }
        for name in crate::environment::ALIKE {
            let mut values = self.programs.iter().map(|program| program.setting(name));
            let first = values.next();
            if values.any(|other| Some(other) != first) {
                return usage(format!(
                    "--env {name}: all ranks need the same value; give it to every program, or \
                     before spmdrun"
                ));
            }
        }
        let last = self.size - 1;
        if let Stdin::Rank(rank) = self.stdin
            && rank > last
        {
            return usage(format!("--stdin {rank}: the ranks of this job are 0 to {last}"));
        }
        if let Some(rank) = self.show_ranks.as_ref().and_then(|ranks| ranks.0.last())
            && *rank > last
        {
            return usage(format!(
                "--show-ranks: no rank {rank}; the ranks of this job are 0 to {last}"
            ));
        }
        Ok(())
    }

    fn check_on_this_host(&self) -> Result<(), Error> {
        let (most, what) = match self.mode {
            Mode::Threads => (MOST_THREADS, "thread ranks"),
            Mode::Virtual => (MOST_VIRTUAL, "virtual ranks"),
            _ => (MOST_PROCESSES, "process ranks"),
        };
        if self.size > most {
            return usage(format!(
                "{} {what} are more than the limit of {most}; use fewer{}",
                self.size,
                if self.mode == Mode::Virtual { "" } else { ", or --as virtual" }
            ));
        }
        if self.mode != Mode::Processes && self.programs.len() > 1 {
            return usage(format!(
                "{what} share one process, so there can be only one program; drop `:` or use --as processes"
            ));
        }
        Ok(())
    }

    /// Whether the launcher starts one process that holds all ranks.
    pub(crate) fn one_process(&self) -> bool {
        self.under.is_some() || self.mode != Mode::Processes
    }

    /// What the ranks of a process are that holds several: the value of `SPMD_AS`.
    pub(crate) fn in_process(&self) -> &'static str {
        if self.mode == Mode::Virtual { "virtual" } else { "threads" }
    }

    /// The value of a variable that is the same for all ranks ([`crate::environment::ALIKE`]).
    pub(crate) fn setting(&self, name: &str) -> Option<OsString> {
        self.programs.first().and_then(|program| program.setting(name))
    }

    /// The program that each process runs, in the order of their first rank.
    pub(crate) fn processes(&self) -> impl Iterator<Item = &Program> {
        self.programs
            .iter()
            .flat_map(|p| std::iter::repeat_n(p, if self.one_process() { 1 } else { p.ranks }))
    }
}

impl Program {
    fn new(
        section: Section,
        several: bool,
        ranks: impl Fn() -> Result<usize, Error>,
    ) -> Result<Program, Error> {
        let mut command = section.command.into_iter();
        let Some(name) = command.next() else {
            return usage(match several {
                true => {
                    "a program is missing beside `:`; write -n N APP on both sides of it".into()
                }
                false => "no program given; write spmdrun -n N APP (see --help)".into(),
            });
        };
        let ranks = match section.options.ranks {
            Some(ranks) => ranks,
            None if several => {
                return usage(format!(
                    "-n is missing for {}; with `:`, each program says its own number of ranks",
                    name.display()
                ));
            }
            None => match from_env("SPMD_RANKS", None, |text| args::rank_count(text).map(Some))? {
                Some(said) => said,
                None => ranks()?,
            },
        };
        if let Some(cwd) = &section.options.cwd
            && !cwd.is_dir()
        {
            return usage(format!("--cwd {}: there is no such directory", cwd.display()));
        }
        let env =
            section.options.env.iter().map(|text| variable(text)).collect::<Result<_, _>>()?;
        Ok(Program {
            ranks,
            path: find(&name)?,
            name,
            arguments: command.collect(),
            env,
            cwd: section.options.cwd,
        })
    }
}

impl Program {
    /// Its name without the folders.
    pub(crate) fn file_name(&self) -> String {
        let name = Path::new(&self.name).file_name().unwrap_or(&self.name);
        name.to_string_lossy().into_owned()
    }

    /// The value of a variable that its ranks will find, by `--env` or the launcher's own
    /// environment.
    fn setting(&self, name: &str) -> Option<OsString> {
        let mut set = self.env.iter().rev();
        let given = set.find(|(set, _)| set == name).map(|(_, value)| value.clone());
        given.or_else(|| env::var_os(name))
    }
}

fn usage<T>(message: String) -> Result<T, Error> {
    Err(Error::Usage(message))
}

fn named<T: ValueEnum>(text: &str) -> Result<T, String> {
    T::from_str(text, true).map_err(|_| {
        let names: Vec<String> = T::value_variants()
            .iter()
            .filter_map(|value| Some(value.to_possible_value()?.get_name().to_owned()))
            .collect();
        format!("write one of {}", names.join(", "))
    })
}

/// The value of an environment variable, or `default` where it is not set or empty.
fn from_env<T>(
    variable: &str,
    default: T,
    read: impl Fn(&str) -> Result<T, String>,
) -> Result<T, Error> {
    value_of(variable, env::var_os(variable), default, read)
}

fn value_of<T>(
    variable: &str,
    value: Option<OsString>,
    default: T,
    read: impl Fn(&str) -> Result<T, String>,
) -> Result<T, Error> {
    let Some(value) = value.filter(|value| !value.is_empty()) else { return Ok(default) };
    value.to_str().map_or(Err("it is not UTF-8".into()), read).map_err(|error| {
        Error::Usage(format!(
            "the environment variable {variable}={} makes no sense: {error}, or unset it",
            value.display()
        ))
    })
}

fn bytes(text: &str) -> Result<Option<usize>, String> {
    let count = text.parse().ok().filter(|count| *count > 0);
    count.map(Some).ok_or_else(|| "write a whole number of bytes, such as 1073741824".into())
}

fn built_in(mode: Mode, transport: Transport) -> Result<(), Error> {
    let option = match (mode, transport) {
        (Mode::Gpus, _) => "--as gpus",
        (_, Transport::Nccl) => "--transport nccl",
        _ => return Ok(()),
    };
    usage(format!(
        "{option} is not in this version, which runs processes, threads and virtual ranks over \
         shared memory and MPI; leave it out"
    ))
}

/// Reads `K=V`, or `K` for a variable that the launcher itself must have.
fn variable(text: &str) -> Result<(String, OsString), Error> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, Some(OsString::from(value))),
        None => (text, env::var_os(text)),
    };
    if name.is_empty() || name.contains('\0') {
        return usage(format!("--env {text}: write NAME=VALUE or NAME"));
    }
    if crate::environment::OWN.contains(&name) {
        return usage(format!("--env {name}: spmdrun sets this variable itself"));
    }
    match value {
        Some(value) => Ok((name.to_owned(), value)),
        None => usage(format!("--env {name}: it is not set here; write {name}=VALUE")),
    }
}

/// Finds a program as a shell does: a name with a slash is a path, another is sought in PATH.
pub(crate) fn find(name: &OsStr) -> Result<PathBuf, Error> {
    let shown = name.display();
    if name.as_encoded_bytes().contains(&b'/') || Path::new(name).is_absolute() {
        let path = std::path::absolute(name)
            .map_err(|error| Error::system(format!("resolve the path {shown}"), error))?;
        return match runnable(&path) {
            Ok(true) => Ok(path),
            Ok(false) => Err(Error::NotExecutable(format!(
                "{shown} is not an executable file; build it, or give it the right with chmod +x"
            ))),
            Err(error) => Err(Error::NotFound(format!("cannot find the program {shown}: {error}"))),
        };
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let candidates: Vec<PathBuf> = env::split_paths(&path).map(|dir| dir.join(name)).collect();
    if let Some(found) = candidates.iter().find(|path| matches!(runnable(path), Ok(true))) {
        return Ok(found.clone());
    }
    if let Some(found) = candidates.iter().find(|path| path.is_file()) {
        return Err(Error::NotExecutable(format!("{} is not executable", found.display())));
    }
    let here = Path::new(name).is_file();
    let hint = match here {
        true => format!("did you mean ./{shown}?"),
        false => format!("write its path, such as target/release/{shown}"),
    };
    Err(Error::NotFound(format!("cannot find the program {shown} in PATH; {hint}")))
}

fn runnable(path: &Path) -> std::io::Result<bool> {
    let regular = fs::metadata(path)?.is_file();
    #[cfg(unix)]
    let regular = regular && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok();
    Ok(regular)
}
