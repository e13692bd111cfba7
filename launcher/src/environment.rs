//! The variables that a rank finds: ours, and those by which other launchers tell a rank its place.

use std::ffi::OsString;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use spmd_core::boot::variables::TRANSPORT;
use spmd_core::boot::{self, Alarm};

use crate::args::{Bind, Mode, Transport};
use crate::error::Error;
use crate::job::Job;
use crate::mpi::hosts;
use crate::place::Places;
use crate::plan::{Plan, Program};

/// What all ranks of a job share.
pub(crate) struct Environment {
    /// Names the job in its processes' environment, by which the watchdog finds strays.
    pub(crate) token: String,
    /// Where the watches of a job under an MPI launcher say what has stopped it.
    pub(crate) alarm: Option<Arc<Alarm>>,
    port: Option<u16>,
    /// The file to which all ranks write their calls.
    trace: Option<PathBuf>,
    /// What a tuning file says of these ranks, read once for all of them.
    tuning: Vec<(&'static str, OsString)>,
}

impl Environment {
    /// Errors: the tuning file makes no sense; the system gives no socket to a job under MPI.
    pub(crate) fn new(plan: &Plan) -> Result<Environment, Error> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        // A port that is free now; whoever meets there must still bind it.
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let port = free.and_then(|socket| socket.local_addr()).map(|address| address.port());
        // Ranks may have another working directory.
        let set = std::env::var_os(boot::variables::TRACE).filter(|path| !path.is_empty());
        let trace = plan.trace.clone().or_else(|| set.map(PathBuf::from));
        let trace = trace.map(|path| std::path::absolute(&path).unwrap_or(path));
        let tuning = plan.setting(boot::variables::TUNING);
        let tuning = boot::tuned(tuning.as_deref(), !plan.one_process(), plan.size)?;
        let token = format!("{}-{}", std::process::id(), now.as_nanos());
        let watched = plan.transport == Transport::Mpi && !plan.dry_run;
        let near = hosts::is_this_alone(&plan.hosts);
        let alarm = watched.then(|| Alarm::new(near)).transpose()?.map(Arc::new);
        Ok(Environment { token, alarm, port: port.ok(), trace, tuning })
    }

    /// Begins the file of the trace anew, before the ranks add to it. Under MPI rank 0 does.
    ///
    /// Errors: it cannot be written.
    pub(crate) fn begin_trace(&self, plan: &Plan) -> Result<(), Error> {
        let trace = self.trace.as_deref().filter(|_| plan.under.is_none());
        Ok(trace.map_or(Ok(()), boot::begin_trace)?)
    }

    /// Where the trace of a job is that has ended so, if the command line has asked for it.
    pub(crate) fn trace_line(&self, plan: &Plan, ended_well: bool) -> Option<String> {
        let path = self.trace.as_ref().filter(|_| plan.trace.is_some())?.display();
        let there = if hosts::is_this_alone(&plan.hosts) { "" } else { " on the host of rank 0" };
        let parts = match plan.under.is_some() && !ended_well {
            true => {
                format!("; what that lacks is in {path}.rank-N, by the first rank of a process")
            }
            false => String::new(),
        };
        Some(format!("the trace is in {path}{there}{parts}"))
    }

    /// What is set for the process whose first rank is `rank`; the user's own `--env` comes last
    /// and wins. `captured` says that the process's output comes through the launcher.
    pub(crate) fn of(
        &self,
        plan: &Plan,
        program: &Program,
        rank: usize,
        places: &Places,
        job: Option<&Job>,
        captured: bool,
    ) -> Vec<(String, OsString)> {
        if plan.under.is_some() {
            // What an MPI launcher finds was decided with its command line.
            return program.env.clone();
        }
        let mut set = self.of_every_job(plan);
        let mut put = |name: &str, value: String| set.push((name.to_owned(), value.into()));
        if let Some(transport) = plan.told_transport() {
            put(TRANSPORT, transport.into());
        }
        let unset = |name: &str| std::env::var_os(name).is_none();
        put("SPMD_CORES", places.cores().to_string());
        let share = places.share(rank);
        // A process has one pool of rayon's, which its ranks share; OpenMP has one for each thread.
        let pool = if plan.one_process() { places.cores() } else { share };
        let threads = [("OMP_NUM_THREADS", share), ("RAYON_NUM_THREADS", pool)];
        for (name, threads) in threads.into_iter().filter(|(name, _)| unset(name)) {
            put(name, threads.to_string());
        }
        if plan.one_process() {
            put("SPMD_AS", plan.in_process().into());
            put("SPMD_RANKS", plan.size.to_string());
            for (name, value) in job.map(Job::environment_of_one_process).unwrap_or_default() {
                put(&name, value);
            }
            if captured {
                put("SPMD_TAG", "1".into());
            }
            if plan.mode == Mode::Threads && plan.bind != Bind::None {
                put("SPMD_CPUS", places.list());
            }
        } else {
            if let Some(gpus) = &plan.gpus {
                put("CUDA_VISIBLE_DEVICES", gpus.of(rank).into());
                // Blocks of the program in a rank know no such ranks.
                if std::env::var("SPMD_AS").is_ok_and(|mode| mode == "gpus") {
                    put("SPMD_AS", "threads".into());
                }
            }
            for (name, value) in job.map(|job| job.environment(rank)).unwrap_or_default() {
                put(&name, value);
            }
            for (name, value) in place_as_torchrun(rank, plan.size) {
                put(name, value);
            }
            if plan.openmpi_env {
                for (name, value) in place_as_open_mpi(rank, plan.size) {
                    put(name, value);
                }
            }
            if unset("MASTER_ADDR") {
                put("MASTER_ADDR", Ipv4Addr::LOCALHOST.to_string());
            }
            if let Some(port) = self.port.filter(|_| unset("MASTER_PORT")) {
                put("MASTER_PORT", port.to_string());
            }
        }
        set.extend(program.env.iter().cloned());
        // With it, `--env` has named a file of the launcher's directory.
        set.extend(self.tuned());
        set
    }

    /// What is set for the launcher of an MPI library, and by it for every process of the job,
    /// which loads that library unless it is linked with it.
    pub(crate) fn under_mpi(&self, plan: &Plan, library: Option<&Path>) -> Vec<(String, OsString)> {
        let mut set = self.of_every_job(plan);
        let mut put = |name: &str, value: OsString| set.push((name.to_owned(), value));
        if let Some(transport) = plan.told_transport() {
            put(TRANSPORT, transport.into());
        }
        if let Some(library) = library {
            put("SPMD_MPI_LIB", library.into());
        }
        if let Some(alarm) = &self.alarm {
            put(boot::variables::ALARM, alarm.place().into());
        }
        if plan.ranks_per_process > 1 {
            put("SPMD_RANKS_PER_PROCESS", plan.ranks_per_process.to_string().into());
            put("SPMD_AS", plan.in_process().into());
        }
        set.extend(self.tuned());
        set
    }

    fn of_every_job(&self, plan: &Plan) -> Vec<(String, OsString)> {
        let mut set = vec![("SPMD_JOB".to_owned(), self.token.clone().into())];
        if let Some(limit) = plan.timeout
            && std::env::var_os("SPMD_TIMEOUT").is_none()
        {
            set.push(("SPMD_TIMEOUT".into(), limit.as_secs_f64().to_string().into()));
        }
        let resources = plan.resources.as_ref();
        set.extend(resources.map(|said| (boot::variables::RESOURCES.into(), said.into())));
        let trace = self.trace.as_ref();
        set.extend(trace.map(|path| (boot::variables::TRACE.into(), path.clone().into())));
        set
    }

    fn tuned(&self) -> impl Iterator<Item = (String, OsString)> {
        self.tuning.iter().map(|(name, value)| (name.to_string(), value.clone()))
    }
}

/// What torchrun tells a rank of its place, all ranks being one group of one role. What it says of
/// its own agent (`TORCHELASTIC_*`) is left out: there is none.
fn place_as_torchrun(rank: usize, size: usize) -> [(&'static str, String); 9] {
    let (rank, size) = (rank.to_string(), size.to_string());
    [
        ("RANK", rank.clone()),
        ("WORLD_SIZE", size.clone()),
        ("LOCAL_RANK", rank.clone()),
        ("LOCAL_WORLD_SIZE", size.clone()),
        ("GROUP_RANK", "0".into()),
        ("GROUP_WORLD_SIZE", "1".into()),
        ("ROLE_RANK", rank),
        ("ROLE_WORLD_SIZE", size),
        ("ROLE_NAME", "default".into()),
    ]
}

/// What Open MPI's `mpirun` tells a rank. A program linked with an MPI may take itself for one that
/// `mpirun` has started where it finds that.
fn place_as_open_mpi(rank: usize, size: usize) -> [(&'static str, String); 4] {
    [
        ("OMPI_COMM_WORLD_RANK", rank.to_string()),
        ("OMPI_COMM_WORLD_SIZE", size.to_string()),
        ("OMPI_COMM_WORLD_LOCAL_RANK", rank.to_string()),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", size.to_string()),
    ]
}
