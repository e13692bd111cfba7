//! The job as it will be started: options checked against each other, programs found.

mod checks;
mod transport;

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use spmd_core::boot::NCCL;
use spmd_core::boot::variables::{ARENA_SIZE, TRANSPORT};

use crate::args::{self, Bind, JobOptions, Mode, OnFailure, Section, Stdin, Transport};
use crate::error::{Error, usage};
use crate::gpus::{Gpus, Wanted};
use crate::mpi::hosts::{self, Host};
use crate::topology::{self, Cpus};
use crate::variables::{self, from_env, value_of};
use transport::{carrier, hybrid, ranks_under_mpi};

/// A job that can be started.
pub(crate) struct Plan {
    pub(crate) mode: Mode,
    /// Those of its ranks on this host, if each is to have one.
    pub(crate) gpus: Option<Gpus>,
    /// What was asked for, of which under MPI each process finds its own.
    pub(crate) wanted_gpus: Option<Wanted>,
    pub(crate) transport: Transport,
    /// Whether data of GPUs go by NCCL alone.
    pub(crate) nccl: bool,
    pub(crate) size: usize,
    pub(crate) programs: Vec<Program>,
    pub(crate) bind: Bind,
    pub(crate) report_bindings: bool,
    pub(crate) tag: bool,
    pub(crate) timestamps: bool,
    /// Whether errors that several ranks print are shown of each.
    pub(crate) verbose: bool,
    pub(crate) output_dir: Option<PathBuf>,
    pub(crate) show_ranks: Option<Cpus>,
    pub(crate) stdin: Stdin,
    /// Whether process ranks find their place in Open MPI's variables, too.
    pub(crate) openmpi_env: bool,
    pub(crate) timeout: Option<Duration>,
    /// What each process has for tasks, if that is said.
    pub(crate) resources: Option<String>,
    pub(crate) grace: Duration,
    pub(crate) on_failure: OnFailure,
    /// Bytes of shared memory for each process rank, if the user says how many.
    pub(crate) arena_size: Option<usize>,
    /// Where the trace is to be, if the command line says so.
    pub(crate) trace: Option<PathBuf>,
    /// Ranks that run under a debugger.
    pub(crate) debug_ranks: Option<Cpus>,
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
            || from_env("SPMD_AS", None, |text| args::named(text).map(Some)),
            |mode| Ok(Some(mode)),
        )?;
        let transport =
            job.transport.map_or_else(|| from_env(TRANSPORT, Transport::Auto, args::named), Ok)?;
        let hosts = match &job.hostfile {
            Some(file) => hosts::from_file(file)?,
            None => hosts::from_list(&job.host)?,
        };
        let nccl = transport == Transport::Nccl;
        let transport = carrier(transport, !hosts.is_empty(), job.ranks_per_process)?;
        hosts::check(&hosts, hosts::has_address)?;
        let (mode, ranks_per_process) = match transport {
            Transport::Mpi => hybrid(mode, job.ranks_per_process)?,
            _ => (mode.unwrap_or(Mode::Processes), 1),
        };
        let bind_given = job.bind.is_some() || env::var_os("SPMD_BIND").is_some();
        let bind =
            job.bind.clone().map_or_else(|| from_env("SPMD_BIND", Bind::None, args::bind), Ok)?;
        let wanted_gpus = wanted_gpus(&job, mode, !bind_given)?;
        // From here on they are processes as others are.
        let mode = if wanted_gpus.is_some() { Mode::Processes } else { mode };
        let here = wanted_gpus.as_ref().filter(|_| transport != Transport::Mpi);
        let gpus = here.map(Gpus::find).transpose()?;
        let grace = Duration::from_secs(2);
        let grace = job.grace.map_or_else(|| from_env("SPMD_GRACE", grace, args::duration), Ok)?;
        // The ranks read SPMD_TIMEOUT; nonsense in it is told once, here.
        from_env("SPMD_TIMEOUT", Duration::ZERO, args::seconds)?;

        let several = sections.len() > 1;
        let mut programs = Vec::new();
        for section in sections {
            programs.push(Program::new(section, several, || match transport {
                // What other hosts have, nobody here knows.
                Transport::Mpi => match &wanted_gpus {
                    Some(wanted) if hosts::is_this_alone(&hosts) => {
                        Gpus::find(wanted).map(|gpus| gpus.room())
                    }
                    _ => ranks_under_mpi(&hosts, ranks_per_process),
                },
                _ => Ok(gpus.as_ref().map_or_else(topology::parallelism, Gpus::room)),
            })?);
        }
        let arena_size = programs.first().and_then(|program| program.setting(ARENA_SIZE));
        let arena_size = value_of(ARENA_SIZE, arena_size, None, args::bytes)?;
        let size = programs.iter().map(|program| program.ranks).fold(0, usize::saturating_add);
        gpus.as_ref().map_or(Ok(()), |gpus| gpus.check(size))?;
        let bind = match (&gpus, bind) {
            (Some(gpus), Bind::None) if !bind_given => gpus.binding(size, &topology::allowed()),
            (_, bind) => bind,
        };
        let plan = Plan {
            mode,
            gpus,
            wanted_gpus,
            transport,
            nccl,
            size,
            programs,
            bind,
            report_bindings: job.report_bindings,
            tag: job.tag,
            timestamps: job.timestamps,
            verbose: job.verbose,
            output_dir: job.output_dir,
            show_ranks: job.show_ranks,
            stdin: job.stdin,
            openmpi_env: job.openmpi_env,
            timeout: job.timeout,
            resources: resources(&job.resources)?,
            grace,
            on_failure: job.on_failure,
            arena_size,
            trace: job.trace,
            debug_ranks: job.debug_rank,
            dry_run: job.dry_run,
            hosts,
            ranks_per_process,
            under: None,
        };
        plan.check_together()?;
        Ok(plan)
    }

    /// Whether the launcher starts one process that holds all ranks.
    pub(crate) fn one_process(&self) -> bool {
        self.under.is_some() || self.mode != Mode::Processes
    }

    /// Whether this rank runs under a debugger.
    pub(crate) fn is_debugged(&self, rank: usize) -> bool {
        self.debug_ranks.as_ref().is_some_and(|ranks| ranks.contains(rank))
    }

    /// What the ranks of a process are that holds several: the value of `SPMD_AS`.
    pub(crate) fn in_process(&self) -> &'static str {
        if self.mode == Mode::Virtual { "virtual" } else { "threads" }
    }

    /// What ranks are told of what carries their data, if they are told.
    pub(crate) fn told_transport(&self) -> Option<&'static str> {
        match self.transport {
            _ if self.nccl => Some(NCCL),
            Transport::Mpi => Some("mpi"),
            Transport::Shm => Some("shm"),
            // What they would find is the launcher's, which has taken something else.
            _ => env::var_os(TRANSPORT).map(|_| "auto"),
        }
    }

    /// How many digits the number of the last rank has.
    pub(crate) fn digits(&self) -> usize {
        (self.size - 1).to_string().len()
    }

    /// The value of a variable that is the same for all ranks ([`variables::ALIKE`]).
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

/// What a job asks for whose ranks are to have GPUs, which are `near` if that may be.
fn wanted_gpus(job: &JobOptions, mode: Mode, near: bool) -> Result<Option<Wanted>, Error> {
    if mode != Mode::Gpus {
        let option = match (&job.ranks_per_gpu, &job.gpus) {
            (Some(_), _) => "--ranks-per-gpu",
            (None, Some(_)) => "--gpus",
            (None, None) => return Ok(None),
        };
        return usage(format!("{option} is for ranks that have a GPU each; add --as gpus"));
    }
    let each = job.ranks_per_gpu.unwrap_or(1);
    Ok(Some(Wanted { named: job.gpus.clone(), each, near }))
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
    if variables::OWN.contains(&name) {
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

/// All that is said of resources, as one text.
fn resources(said: &[String]) -> Result<Option<String>, Error> {
    let all = said.join(";");
    let sensible = args::resources(&all).map_err(|why| Error::Usage(format!("--resources: {why}")));
    sensible.map(|all| (!said.is_empty()).then_some(all))
}
