//! What carries data between the ranks of a job, and what ranks are where that is MPI.

use crate::args::{self, Mode, Transport};
use crate::error::{Error, usage};
use crate::mpi::hosts::{self, Host};
use crate::topology;
use crate::variables::from_env;

/// Variables by which MPI launchers tell a process its rank.
const RANK_OF: [&str; 4] = ["PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK"];

/// How many tasks a step of Slurm has, whatever library they use.
const STEP_TASKS: &str = "SLURM_STEP_NUM_TASKS";

/// What carries data, once hosts have been named or not.
pub(super) fn carrier(
    asked: Transport,
    hosts: bool,
    ranks_per_process: Option<usize>,
) -> Result<Transport, Error> {
    let transport = match asked {
        Transport::Auto | Transport::Nccl if hosts => Transport::Mpi,
        // It is of buffers on GPUs; whatever else there is goes as if nobody had said anything.
        Transport::Nccl => Transport::Auto,
        other => other,
    };
    match transport {
        Transport::Mpi => outside_of_mpi()?,
        _ if hosts => {
            return usage(
                "--host and --hostfile mean MPI, the only transport between hosts; drop them, or \
                 use --transport mpi"
                    .into(),
            );
        }
        _ if ranks_per_process.is_some() => {
            return usage(
                "--ranks-per-process is for jobs under MPI; add --transport mpi, or use --as \
                 threads for one process"
                    .into(),
            );
        }
        Transport::Auto => outside_of_mpi()?,
        _ => {}
    }
    Ok(transport)
}

/// Errors: `spmdrun` is itself one of the processes that an MPI launcher has started.
fn outside_of_mpi() -> Result<(), Error> {
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|is| is == value);
    // Ranks of a job of ours over shared memory find such variables, too.
    let ours = std::env::var_os("SPMD_JOB").is_some() && !is("SPMD_TRANSPORT", "mpi");
    let tasks = std::env::var(STEP_TASKS).ok().and_then(|text| text.parse::<usize>().ok());
    let step = tasks.filter(|&tasks| tasks > 1).map(|_| STEP_TASKS);
    let set = RANK_OF.into_iter().find(|name| std::env::var_os(name).is_some());
    match set.or(step) {
        Some(name) if !ours => Err(Error::Usage(format!(
            "spmdrun was itself started by an MPI launcher ({name} is set), once for each \
             process; start the program in its place (mpiexec -n N ./app), or spmdrun alone; \
             --transport shm starts a job of its own on this host"
        ))),
        _ => Ok(()),
    }
}

/// What ranks are under MPI, and how many of them each process holds.
pub(super) fn hybrid(mode: Option<Mode>, each: Option<usize>) -> Result<(Mode, usize), Error> {
    match (mode, each.unwrap_or(1)) {
        (None | Some(Mode::Processes), 1) => Ok((Mode::Processes, 1)),
        (Some(Mode::Gpus), 1) => Ok((Mode::Gpus, 1)),
        (Some(Mode::Gpus), k) => usage(format!(
            "--ranks-per-process {k}: ranks with a GPU have a process each; --ranks-per-gpu has them \
             share one"
        )),
        (None | Some(Mode::Threads), k) if each.is_some() => Ok((Mode::Threads, k)),
        (Some(Mode::Virtual), k) if each.is_some() => Ok((Mode::Virtual, k)),
        (Some(Mode::Processes), k) => usage(format!(
            "--ranks-per-process {k}: process ranks have a process each; use --as threads or \
             --as virtual"
        )),
        _ => usage(
            "--as threads and --as virtual under MPI need --ranks-per-process K: how many ranks \
             each process holds"
                .into(),
        ),
    }
}

/// How many ranks a job under MPI has where nobody says so: what its hosts or its Slurm
/// allocation have room for, or this machine's cores.
pub(super) fn ranks_under_mpi(hosts: &[Host], each: usize) -> Result<usize, Error> {
    if !hosts.is_empty() {
        let slots = hosts::slots(hosts).map(|slots| slots / each * each);
        return slots.filter(|&slots| slots > 0).map_or_else(
            || usage("-n is missing; say how many ranks the hosts are to run".into()),
            Ok,
        );
    }
    let tasks = from_env("SLURM_NTASKS", None, |text| args::rank_count(text).map(Some))?;
    Ok(match tasks {
        Some(tasks) => tasks.saturating_mul(each),
        None => (topology::parallelism() / each).max(1) * each,
    })
}
