//! The command line of a sweep.

use std::path::PathBuf;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::args::values::{seconds, size};
use crate::bench::Bench;

/// What to measure, where.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SweepArgs {
    /// The folder for results and pictures; what it holds already is not measured again
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Hosts, joined by MPI; without them, shared memory on this machine
    #[arg(long, value_name = "LIST", value_delimiter = ',', conflicts_with = "hostfile")]
    pub(crate) hosts: Vec<String>,
    /// A file that names them, as spmdrun reads it: NAME, NAME:N or NAME slots=N, a line each
    #[arg(long, value_name = "FILE")]
    pub(crate) hostfile: Option<PathBuf>,
    /// How many of the hosts to use [default: 1, 2, 4, .. and all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = count)]
    pub(crate) host_counts: Vec<usize>,
    /// Ranks on each host [default: 1, 2, 4, .. and as many as it has slots, or this machine cores]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = count)]
    pub(crate) ranks_per_host: Vec<usize>,
    /// What ranks are [default: processes, and threads if --ranks-per-process is given]
    #[arg(long = "as", value_name = "LIST", value_delimiter = ',')]
    pub(crate) modes: Vec<Mode>,
    /// Under MPI: threads or virtual ranks in each process, where that divides the ranks of a host
    /// [default: all of a host]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = count)]
    pub(crate) ranks_per_process: Vec<usize>,
    /// What carries data [default: mpi where there are hosts, else shm]
    #[arg(long, value_name = "NAME")]
    pub(crate) transport: Option<Carrier>,
    /// What to measure
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    #[arg(
        default_value = "barrier,broadcast,allreduce,allgather,alltoall,latency,bandwidth,message-rate"
    )]
    pub(crate) bench: Vec<Bench>,
    /// Bytes, as above; blocks for all ranks are left out where they exceed 128 MiB together
    #[arg(long, value_delimiter = ',', value_parser = size, default_value = "8,64,1K,8K,64K,512K,4M")]
    pub(crate) sizes: Vec<usize>,
    /// Seconds for each size
    #[arg(long, default_value_t = 0.2, value_parser = seconds)]
    pub(crate) seconds: f64,
    /// Passed on to spmdrun: none, core, numa, or a list of CPUs
    #[arg(long, value_name = "WHERE", default_value = "none")]
    pub(crate) bind: String,
    /// Passed on to spmdrun: a variable for the ranks
    #[arg(long, value_name = "K=V|K")]
    pub(crate) env: Vec<String>,
    /// Seconds after which a job is ended, and its measurement has failed
    #[arg(long, default_value_t = 600.0, value_parser = seconds)]
    pub(crate) timeout: f64,
    /// Print the jobs that are left to do, and start none
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// What ranks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// A process each
    Processes,
    /// Threads of one process, or of several under MPI
    Threads,
    /// Virtual ranks, likewise
    Virtual,
}

/// What carries data between ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Carrier {
    Shm,
    Mpi,
}

impl Mode {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Mode::Processes => "processes",
            Mode::Threads => "threads",
            Mode::Virtual => "virtual",
        }
    }
}

impl Carrier {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Carrier::Shm => "shm",
            Carrier::Mpi => "mpi",
        }
    }
}

fn count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count) if (1..=1 << 20).contains(&count) => Ok(count),
        _ => Err("write whole numbers from 1 on, as in 1,2,4".into()),
    }
}
