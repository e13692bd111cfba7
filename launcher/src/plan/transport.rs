//! What carries data between the ranks of a job, and what is different where that is MPI.

use super::{MOST_THREADS, MOST_VIRTUAL, Plan, from_env, usage};
use crate::args::{self, Mode, OnFailure, Transport};
use crate::error::Error;
use crate::mpi;
use crate::mpi::hosts::{self, Host};
use crate::topology;

/// What carries data, once hosts have been named or not.
pub(super) fn carrier(
    asked: Transport,
    hosts: bool,
    ranks_per_process: Option<usize>,
) -> Result<Transport, Error> {
    let transport = match asked {
        Transport::Auto if hosts => Transport::Mpi,
        other => other,
    };
    match transport {
        Transport::Mpi => mpi::outside()?,
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
        Transport::Auto => mpi::outside()?,
        _ => {}
    }
    Ok(transport)
}

/// What ranks are under MPI, and how many of them each process holds.
pub(super) fn hybrid(mode: Option<Mode>, each: Option<usize>) -> Result<(Mode, usize), Error> {
    match (mode, each.unwrap_or(1)) {
        (None | Some(Mode::Processes), 1) => Ok((Mode::Processes, 1)),
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

impl Plan {
    /// Checks what a job under MPI cannot have.
    pub(super) fn check_under_mpi(&self) -> Result<(), Error> {
        let each = self.ranks_per_process;
        let most = if self.mode == Mode::Virtual { MOST_VIRTUAL } else { MOST_THREADS };
        if each > most {
            return usage(format!("--ranks-per-process {each} is more than the limit of {most}"));
        }
        if let Some(program) = self.programs.iter().find(|program| program.ranks % each != 0) {
            return usage(format!(
                "{} ranks of {} do not divide into processes of {each} (--ranks-per-process); ask \
                 for a multiple of {each}",
                program.ranks,
                program.name.display()
            ));
        }
        let asked = [
            (self.show_ranks.is_some(), "--show-ranks: only --tag tells ranks apart under MPI"),
            (
                self.on_failure == OnFailure::Continue,
                "--on-failure continue: an MPI launcher ends the job when a rank fails; drop it",
            ),
        ];
        asked.iter().find(|(given, _)| *given).map_or(Ok(()), |(_, why)| usage((*why).into()))
    }
}
