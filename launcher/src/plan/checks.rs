//! What a job cannot have, or not together.

use super::Plan;
use crate::args::{Mode, OnFailure, Stdin, Transport};
use crate::error::{Error, usage};
use crate::variables::ALIKE;

/// The most ranks of each kind; the arena, and what a kernel bears, are made for these.
const MOST_PROCESSES: usize = 4096;
const MOST_THREADS: usize = 4096;
const MOST_VIRTUAL: usize = 1 << 20;

impl Plan {
    /// Checks options against each other, and against what such a job can have.
    pub(super) fn check_together(&self) -> Result<(), Error> {
        match self.transport {
            Transport::Mpi => self.check_under_mpi()?,
            _ => self.check_on_this_host()?,
        }
        for name in ALIKE {
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
        for (option, ranks) in
            [("--show-ranks", &self.show_ranks), ("--debug-rank", &self.debug_ranks)]
        {
            if let Some(rank) = ranks.as_ref().and_then(|ranks| ranks.0.last())
                && *rank > last
            {
                return usage(format!(
                    "{option}: no rank {rank}; the ranks of this job are 0 to {last}"
                ));
            }
        }
        if self.debug_ranks.is_some() && self.timeout.is_some() {
            return usage(
                "--timeout goes on while a debugger holds a rank (--debug-rank); drop one".into(),
            );
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
        if self.mode != Mode::Processes && self.openmpi_env {
            return usage(format!(
                "--openmpi-env tells processes their rank, and {what} share one; drop it, or use \
                 --as processes"
            ));
        }
        if self.mode != Mode::Processes && self.debug_ranks.is_some() {
            let (ranks, kind) = (self.size, self.in_process());
            return usage(format!(
                "--debug-rank is for process ranks; all {what} are one process, which a debugger \
                 can start: SPMD_AS={kind} SPMD_RANKS={ranks} gdb --args APP"
            ));
        }
        if self.mode != Mode::Processes && self.programs.len() > 1 {
            return usage(format!(
                "{what} share one process, so there can be only one program; drop `:` or use --as processes"
            ));
        }
        Ok(())
    }

    /// Checks what a job under MPI cannot have.
    fn check_under_mpi(&self) -> Result<(), Error> {
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
            (self.openmpi_env, "--openmpi-env: under MPI its launcher sets its own; drop it"),
            (
                self.debug_ranks.is_some(),
                "--debug-rank: under MPI its launcher starts the ranks; use --transport shm, or \
                 attach by gdb -p PID",
            ),
            (self.show_ranks.is_some(), "--show-ranks: only --tag tells ranks apart under MPI"),
            (
                self.on_failure == OnFailure::Continue,
                "--on-failure continue: an MPI launcher ends the job when a rank fails; drop it",
            ),
        ];
        asked.iter().find(|(given, _)| *given).map_or(Ok(()), |(_, why)| usage((*why).into()))
    }
}
