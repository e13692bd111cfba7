//! The `SPMD_*` variables: their names, and how they are read.

use crate::error::{Error, Result};

/// The version of what launcher and program say to each other.
pub const PROTOCOL: u32 = 6;

/// What [`variables::TRANSPORT`] says where the plane of this name alone is to carry out calls on devices,
/// and all else goes as with `auto`.
pub const NCCL: &str = "nccl";

/// Names of the variables that the launcher sets for a rank.
pub mod variables {
    /// The rank of a process rank.
    pub const RANK: &str = "SPMD_RANK";
    /// How many ranks the job has.
    pub const SIZE: &str = "SPMD_SIZE";
    /// The file descriptor of the arena.
    pub const ARENA: &str = "SPMD_ARENA_FD";
    /// [`PROTOCOL`](super::PROTOCOL) of the launcher.
    pub const PROTOCOL: &str = "SPMD_PROTOCOL";
    /// How many ranks a process runs that is the whole job.
    pub const RANKS: &str = "SPMD_RANKS";
    /// What joins ranks: `shm`, `mpi`, `auto`, or [`NCCL`](super::NCCL).
    pub const TRANSPORT: &str = "SPMD_TRANSPORT";
    /// Ranks of each process of a world that lives in several.
    pub const RANKS_PER_PROCESS: &str = "SPMD_RANKS_PER_PROCESS";
    /// Where ranks run: `threads` or `virtual`.
    pub const AS: &str = "SPMD_AS";
    /// How long a call may wait, in seconds.
    pub const TIMEOUT: &str = "SPMD_TIMEOUT";
    /// Who goes on with started collectives: `calls` or `thread`.
    pub const PROGRESS: &str = "SPMD_PROGRESS";
    /// Bytes of stack of each rank.
    pub const STACK_SIZE: &str = "SPMD_STACK_SIZE";
    /// Cores that the job's ranks share.
    pub const CORES: &str = "SPMD_CORES";
    /// The cores of each thread rank, `0-1;2-3`.
    pub const CPUS: &str = "SPMD_CPUS";
    /// Algorithms to use, `allreduce=tree,reduce=chunked`.
    pub const FORCE: &str = "SPMD_FORCE";
    /// Bytes of the arena for each process rank.
    pub const ARENA_SIZE: &str = "SPMD_ARENA_SIZE";
    /// Bytes of a segment, where large data go through staging areas.
    pub const SEGMENT: &str = "SPMD_SEGMENT";
    /// A file of what was measured, by `spmd-perf tune`.
    pub const TUNING: &str = "SPMD_TUNING";
    /// What that file says of this job's process ranks.
    pub const TUNED: &str = "SPMD_TUNED";
    /// Bytes of messages that a rank keeps from each other one before it has received them.
    pub const WINDOW: &str = "SPMD_WINDOW";
    /// Large messages between processes: `1` reads them through the kernel.
    pub const SINGLE_COPY: &str = "SPMD_SINGLE_COPY";
    /// `1`: libraries beneath must not fold in an order of their own.
    pub const REPRODUCIBLE: &str = "SPMD_REPRODUCIBLE";
    /// `1`: ranks of different processes compare each call before they make it.
    pub const CHECK: &str = "SPMD_CHECK";
    /// What processes have for their tasks, `gpu=(0,1),(2,3);license=2`.
    pub const RESOURCES: &str = "SPMD_RESOURCES";
    /// A file to which every call is written down.
    pub const TRACE: &str = "SPMD_TRACE";
    /// Where `spmdrun` hears what has stopped a job under an MPI launcher, and a secret.
    pub const ALARM: &str = "SPMD_ALARM";
    /// Names the job; every process that `spmdrun` starts has it.
    pub const JOB: &str = "SPMD_JOB";
    /// The seed of delays before and after each call.
    pub const CHAOS: &str = "SPMD_CHAOS";
}

/// A variable's value, if it is set and not empty.
pub(crate) fn variable(name: &str) -> Result<Option<String>> {
    match std::env::var(name) {
        Ok(text) if text.is_empty() => Ok(None),
        Ok(text) => Ok(Some(text)),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => {
            Err(Error::boot(format!("the variable {name} is not text")))
        }
    }
}

pub(crate) fn parsed<T: std::str::FromStr>(name: &str, what: &str) -> Result<Option<T>> {
    let Some(text) = variable(name)? else { return Ok(None) };
    let value = text.parse().ok();
    value.map(Some).ok_or_else(|| Error::boot(format!("{name}={text} is not {what}")))
}

pub(crate) fn positive(name: &str, what: &str) -> Result<Option<usize>> {
    match parsed::<usize>(name, what)? {
        Some(0) => Err(Error::boot(format!("{name}=0 is not {what}"))),
        value => Ok(value),
    }
}
