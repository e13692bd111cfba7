//! A Slurm of one node, on a host that a test has made: all its daemons end with that host.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::net::Hosts;
use crate::support::{self, Mpi};

/// Programs, and Debian's package for them.
const NEEDED: [(&str, &str); 6] = [
    ("munged", "munge"),
    ("slurmctld", "slurm-wlm"),
    ("slurmd", "slurm-wlm"),
    ("srun", "slurm-wlm"),
    ("salloc", "slurm-wlm"),
    ("sbatch", "slurm-wlm"),
];

/// More tasks than this machine may have cores, no accounting, and nothing of `/etc`.
const CONFIGURATION: &str = "\
ClusterName=test
SlurmctldHost=alpha
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=FOLDER/munge.socket
StateSaveLocation=FOLDER/state
SlurmdSpoolDir=FOLDER/spool
SlurmctldPidFile=FOLDER/slurmctld.pid
SlurmdPidFile=FOLDER/slurmd.pid
SlurmctldLogFile=FOLDER/slurmctld.log
SlurmdLogFile=FOLDER/slurmd.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/linear
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SlurmdParameters=config_overrides
ReturnToService=2
NodeName=alpha NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
";

/// How long the daemons may take until the node can be used.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Cluster {
    hosts: Hosts,
    folder: PathBuf,
}

impl Cluster {
    /// Starts it; none, and a line that says why, where that is not possible.
    pub(crate) fn new() -> Option<Cluster> {
        match Cluster::start() {
            Ok(cluster) => Some(cluster),
            Err(why) => {
                println!("SKIPPED Slurm: {why}");
                None
            }
        }
    }

    fn start() -> Result<Cluster, String> {
        for (program, package) in NEEDED {
            let found = folders().any(|folder| folder.join(program).exists());
            found.then_some(()).ok_or(format!("there is no {program} (Debian: {package})"))?;
        }
        let hosts = Hosts::new(1)?;
        let folder = hosts.folder().to_path_buf();
        let cluster = Cluster { hosts, folder };
        cluster.configure().map_err(|error| format!("{}: {error}", cluster.folder.display()))?;
        cluster.daemon(&cluster.munged())?;
        cluster.daemon(&["slurmctld"])?;
        cluster.daemon(&["slurmd"])?;
        let start = Instant::now();
        loop {
            let state = cluster.command("sinfo").args(["-h", "-o", "%t"]).output();
            let state = state.map_err(|error| format!("sinfo: {error}"))?;
            let text = String::from_utf8_lossy(&state.stdout);
            if text.trim() == "idle" {
                return Ok(cluster);
            }
            if start.elapsed() > PATIENCE {
                return Err(format!("the node is '{}'\n{}", text.trim(), cluster.logs()));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn configure(&self) -> std::io::Result<()> {
        fs::create_dir(self.folder.join("state"))?;
        fs::create_dir(self.folder.join("spool"))?;
        let text = CONFIGURATION.replace("FOLDER", &self.folder.display().to_string());
        fs::write(self.folder.join("slurm.conf"), text)?;
        let mut options = fs::OpenOptions::new();
        let key = options.write(true).create_new(true).mode(0o600);
        let mut key = key.open(self.folder.join("munge.key"))?;
        let mut random = std::io::Read::take(fs::File::open("/dev/urandom")?, 128);
        std::io::copy(&mut random, &mut key).map(drop)
    }

    /// It runs as root here, and warns of that.
    fn munged(&self) -> Vec<String> {
        let file = |name: &str| self.folder.join(name).display().to_string();
        let mut words = vec!["munged".to_owned(), "--force".to_owned()];
        for (option, name) in [
            ("key-file", "munge.key"),
            ("socket", "munge.socket"),
            ("pid-file", "munged.pid"),
            ("log-file", "munged.log"),
            ("seed-file", "munged.seed"),
        ] {
            words.push(format!("--{option}={}", file(name)));
        }
        words
    }

    /// Starts a program that goes to the background when it is ready.
    fn daemon(&self, words: &[impl AsRef<std::ffi::OsStr>]) -> Result<(), String> {
        let name = words[0].as_ref().display().to_string();
        let mut command = self.command(&name);
        // What stays in the background keeps these open.
        let said = self.folder.join(format!("{name}.err"));
        let file = fs::File::create(&said).map_err(|error| format!("{name}: {error}"))?;
        command.args(&words[1..]).stdout(Stdio::null()).stderr(file);
        let status = command.status().map_err(|error| format!("{name}: {error}"))?;
        let text = fs::read_to_string(said).unwrap_or_default();
        status.success().then_some(()).ok_or(format!("{name}: {status}: {}", text.trim()))
    }

    /// What the daemons wrote last.
    fn logs(&self) -> String {
        let last = |name: &str| {
            let text = fs::read_to_string(self.folder.join(name)).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            lines[lines.len().saturating_sub(10)..].join("\n")
        };
        [last("slurmctld.log"), last("slurmd.log")].join("\n")
    }

    /// A program on the node, such as `srun`.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = self.hosts.command(Path::new(program));
        support::free(&mut command);
        let path = std::env::join_paths(folders()).expect("they come from such a list");
        command.env("PATH", path).env("SLURM_CONF", self.folder.join("slurm.conf"));
        command
    }

    /// The same, with an MPI library for what it starts.
    pub(crate) fn with(&self, mpi: &Mpi, program: &str) -> Command {
        let mut command = self.command(program);
        command.env("SPMD_MPI_LIB", mpi.library());
        // There may be more processes than cores.
        command.env("I_MPI_FABRICS", "shm").env("I_MPI_WAIT_MODE", "1");
        command.env("MPIR_CVAR_CH4_PROGRESS_THROTTLE", "1");
        command
    }

    /// A `PATH` whose `srun` says that it offers no process management, and else is the real one.
    pub(crate) fn with_srun_that_offers_nothing(&self) -> OsString {
        let real = folders().map(|folder| folder.join("srun")).find(|path| path.exists());
        let script = format!(
            "#!/bin/sh\n[ \"$1\" = --mpi=list ] && echo none && exit\nexec {} \"$@\"\n",
            real.unwrap_or_default().display()
        );
        let own = self.folder.join("bin");
        fs::create_dir(&own).expect("our own folder");
        let mut options = fs::OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o755).open(own.join("srun"));
        file.and_then(|mut file| file.write_all(script.as_bytes())).expect("our own folder");
        std::env::join_paths([own].into_iter().chain(folders()))
            .expect("they come from such a list")
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }
}

/// Where programs are; daemons lie in folders that not every user's `PATH` names.
fn folders() -> impl Iterator<Item = PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let own: Vec<PathBuf> = std::env::split_paths(&path).collect();
    own.into_iter().chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
}
