//! What the tests of the facade share: `spmdrun`, and worlds of every kind for one closure.

#![allow(dead_code, reason = "each test file uses a part of this")]

mod ending;
mod programs;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use spmd::{Ctx, Progress, Result, Spmd};
use spmd_core::internal::find;

#[allow(unused_imports, reason = "as above")]
pub use programs::{program, spmdrun_path};

/// How a command ended, and what it wrote.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

/// `spmdrun` with these arguments, free of settings of whoever runs the tests.
pub fn spmdrun(arguments: &[&str]) -> Command {
    let mut command = Command::new(spmdrun_path());
    command.args(arguments).stdin(Stdio::null());
    free(&mut command);
    command
}

/// Settings that stay: how much is to be tested, and where libraries of GPUs lie.
const KEPT: [&str; 3] = ["SPMD_TEST_FULL", "SPMD_NVRTC_LIB", "SPMD_NCCL_LIB"];

/// Takes away the settings of whoever runs the tests.
pub fn free(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("SPMD_") && !KEPT.contains(&&*text) {
            command.env_remove(name);
        }
    }
}

/// Runs a command to its end.
pub fn finish(command: &mut Command) -> Ran {
    let output = command.output().expect("the command starts");
    Ran {
        code: output.status.code(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Whether this process is a rank that `spmdrun` has started.
pub fn is_process_rank() -> bool {
    std::env::var_os("SPMD_ARENA_FD").is_some()
}

/// `spmdrun` that starts the test `test` of this binary (its path within it, as in
/// `module::name`) on `ranks` processes. There, [`is_process_rank`] holds.
pub fn spmdrun_self(test: &str, ranks: usize) -> Command {
    again(spmdrun(&["--ranks", &ranks.to_string()]), test)
}

/// Which of the worlds of processes that a test makes one after another a rank belongs to.
const WORLD: &str = "SPMD_TEST_WORLD";

/// The number of this call among those of the same test.
fn next_world(test: &str) -> String {
    static MADE: Mutex<BTreeMap<String, usize>> = Mutex::new(BTreeMap::new());
    let mut made = MADE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let number = made.entry(test.to_owned()).or_default();
    *number += 1;
    number.to_string()
}

/// Runs `body` on `ranks` process ranks: the test `test`, which calls this, starts itself again
/// as each of them, with these variables set. A failure is a panic with all that they wrote.
///
/// In such a rank all other worlds of the test are passed over, so that a test may make as many
/// as it likes, of every kind, always in the same order.
pub fn processes(
    test: &str,
    ranks: usize,
    settings: &[(&str, &str)],
    body: impl Fn(&Ctx) -> Result<()> + Sync,
) -> Result<()> {
    let world = next_world(test);
    if is_process_rank() {
        let mine = std::env::var(WORLD).is_ok_and(|mine| mine == world);
        return if mine { spmd::run(body).map(drop) } else { Ok(()) };
    }
    let mut job = spmdrun_self(test, ranks);
    let ran = finish(job.envs(settings.iter().copied()).env(WORLD, &world));
    let passed = ran.out.matches("1 passed").count();
    assert!(
        ran.code == Some(0) && passed == ranks,
        "{test} on {ranks} processes, {settings:?}: status {:?}, {passed} passed\n{}\n{}",
        ran.code,
        ran.out,
        ran.err
    );
    Ok(())
}

/// Whether this test is linked with an MPI, which is Open MPI's.
const LINKED: bool = cfg!(feature = "mpi");

/// An MPI library in a Python environment that `cargo xtask` has made below the target folder.
#[derive(Clone, Debug)]
pub struct Mpi {
    pub name: &'static str,
    prefix: PathBuf,
}

impl Mpi {
    /// The libraries with MPI's standard interface that are there; which are not is said. With the
    /// feature `mpi` it is the one that this test is linked with, which lies in `SPMD_TEST_MPI`.
    pub fn all() -> Vec<Mpi> {
        if LINKED {
            let prefix = std::env::var_os("SPMD_TEST_MPI").map(PathBuf::from);
            return vec![Mpi { name: "linked", prefix: prefix.unwrap_or("/usr".into()) }];
        }
        let test = std::env::current_exe().expect("a test knows its own path");
        let target = test.ancestors().nth(3).expect("a test lies in the target folder");
        let found = |name: &'static str| {
            let prefix = target.join("peers").join(name);
            let mpi = Mpi { name, prefix };
            let there = mpi.library().exists();
            if !there {
                println!(
                    "SKIPPED {name}: it is not in {} (cargo xtask test mpi)",
                    mpi.prefix.display()
                );
            }
            there.then_some(mpi)
        };
        ["mpich", "impi"].into_iter().filter_map(found).collect()
    }

    /// The library with the standard ABI.
    pub fn library(&self) -> PathBuf {
        self.folder().join("libmpi_abi.so.1")
    }

    /// Where its libraries lie.
    pub fn folder(&self) -> PathBuf {
        self.prefix.join("lib")
    }

    /// Its launcher.
    pub fn launcher(&self) -> PathBuf {
        self.prefix.join("bin/mpiexec")
    }

    /// The same, for so many processes of this many ranks, which are threads or virtual.
    pub fn launch(&self, processes: usize, each: usize, mode: &str) -> Command {
        let mut command = Command::new(self.launcher());
        if LINKED {
            command.args(["--allow-run-as-root", "--map-by", "slot:OVERSUBSCRIBE"]);
            command.args(["--bind-to", "none"]).env("OMPI_MCA_mpi_yield_when_idle", "1");
        }
        command.args(["-n", &processes.to_string()]).stdin(Stdio::null());
        free(&mut command);
        self.prepare(&mut command);
        command.env("SPMD_RANKS_PER_PROCESS", each.to_string()).env("SPMD_AS", mode);
        command
    }

    /// `spmdrun` with these arguments, which finds this library.
    pub fn spmdrun(&self, arguments: &[&str]) -> Command {
        let mut command = spmdrun(arguments);
        self.prepare(&mut command);
        command
    }

    fn prepare(&self, command: &mut Command) {
        command.env("SPMD_MPI_LIB", self.library());
        // There are more processes than cores.
        command.env("I_MPI_FABRICS", "shm").env("I_MPI_WAIT_MODE", "1");
        command.env("MPIR_CVAR_CH4_PROGRESS_THROTTLE", "1");
    }
}

/// Where `cargo xtask` has built the stand-in card. Says so where it has not.
pub fn stand_in() -> Option<PathBuf> {
    let test = std::env::current_exe().expect("a test knows its own path");
    let target = test.ancestors().nth(3).expect("a test lies in the target folder");
    let folder = target.join("standin/plain");
    if folder.join("libcuda.so.1").exists() {
        return Some(folder);
    }
    let required = std::env::var("SPMD_REQUIRE_GPU").is_ok_and(|value| value == "1");
    assert!(!required, "SPMD_REQUIRE_GPU=1, and there is none in {}", folder.display());
    println!("SKIPPED: there is no stand-in card in {} (cargo xtask test gpu)", folder.display());
    None
}

/// Has every host on which a command's processes run have so many cards, of its own.
pub fn give_cards(command: &mut Command, stand_in: &Path, cards: usize) {
    // Beside what an MPI library may need.
    let known = command.get_envs().find(|(name, _)| *name == "LD_LIBRARY_PATH");
    let known = known.and_then(|(_, value)| value).map(PathBuf::from);
    let all = [stand_in.to_owned()].into_iter().chain(known);
    let path = std::env::join_paths(all).expect("no folder has a colon in its name");
    command.env("LD_LIBRARY_PATH", path);
    command.env("SPMD_STANDIN_CARDS", cards.to_string()).env("SPMD_STANDIN_HOSTS", "1");
}

/// Whether this process was started by an MPI library's launcher.
pub fn is_mpi_process() -> bool {
    ["PMI_RANK", "OMPI_COMM_WORLD_RANK"].into_iter().any(|name| std::env::var_os(name).is_some())
}

/// Runs `body` in a world that lives in several processes, as [`processes`] does.
pub fn cluster(
    test: &str,
    mpi: &Mpi,
    place: (usize, usize, &str),
    settings: &[(&str, &str)],
    body: impl Fn(&Ctx) -> Result<()> + Sync,
) -> Result<()> {
    let (processes, each, mode) = place;
    let launch = || mpi.launch(processes, each, mode);
    launched(test, processes, &format!("{}, {place:?}", mpi.name), launch, settings, body)
}

/// The same, however it ends; nothing in its processes.
pub fn across_to_its_end(
    test: &str,
    mpi: &Mpi,
    (processes, each, mode): (usize, usize, &str),
    settings: &[(&str, &str)],
    body: impl Fn(&Ctx) -> Result<()> + Sync,
) -> Result<Option<Ran>> {
    to_its_end(test, || mpi.launch(processes, each, mode), settings, body)
}

/// Runs `body` in the processes of one world that the command of `launch` starts, followed by a
/// program and its arguments; `told` is what to say of that world if it fails.
pub fn launched(
    test: &str,
    processes: usize,
    told: &str,
    launch: impl FnOnce() -> Command,
    settings: &[(&str, &str)],
    body: impl Fn(&Ctx) -> Result<()> + Sync,
) -> Result<()> {
    let Some(ran) = to_its_end(test, launch, settings, body)? else { return Ok(()) };
    let passed = ran.out.matches("1 passed").count();
    assert!(
        ran.code == Some(0) && passed == processes,
        "{test} on {told}, {settings:?}: status {:?}, {passed} passed\n{}\n{}",
        ran.code,
        ran.out,
        ran.err
    );
    Ok(())
}

/// Runs `body` as [`launched`] does, however it ends; nothing in its processes.
pub fn to_its_end(
    test: &str,
    launch: impl FnOnce() -> Command,
    settings: &[(&str, &str)],
    body: impl Fn(&Ctx) -> Result<()> + Sync,
) -> Result<Option<Ran>> {
    let world = next_world(test);
    if is_mpi_process() {
        let mine = std::env::var(WORLD).unwrap_or_default();
        if mine.split_once('@').is_some_and(|(mine, _)| mine == world) {
            spmd::run(body)?;
        }
        return Ok(None);
    }
    let mut job = again(launch(), test);
    let world = format!("{world}@{}", std::process::id());
    job.envs(settings.iter().copied()).env(WORLD, &world);
    Ok(Some(ending::run(&mut job, (WORLD, &world))))
}

/// Has a launcher start the test `test` of this binary in each process.
pub fn again(mut launcher: Command, test: &str) -> Command {
    launcher.arg(std::env::current_exe().expect("a test knows its own path"));
    launcher.args([test, "--exact", "--include-ignored", "--nocapture", "--test-threads=1"]);
    launcher
}

/// A world with its settings, before anybody runs in it.
#[derive(Clone, Debug, Default)]
pub struct World {
    /// Bytes of a segment.
    pub segment: Option<usize>,
    /// Calls and the algorithm that each takes.
    pub forced: Vec<(&'static str, &'static str)>,
    /// Whether large messages between processes are read through the kernel.
    pub single_copy: bool,
    /// The seed of delays and of the order of messages.
    pub chaos: Option<u64>,
    /// Workers of virtual ranks.
    pub workers: Option<usize>,
    /// Bytes of messages that a rank keeps from each other one.
    pub window: Option<usize>,
    /// Who goes on with started collectives.
    pub progress: Progress,
    /// What each process has for tasks, if that is said.
    pub resources: &'static str,
}

impl World {
    fn block(&self, ranks: usize) -> Spmd {
        let block = Spmd::new(ranks).segment(self.segment.unwrap_or(64 << 10));
        let block = self.chaos.into_iter().fold(block, Spmd::chaos);
        let block = block.progress(self.progress);
        let block = self.workers.into_iter().fold(block, Spmd::workers);
        let block = self.window.into_iter().fold(block, Spmd::window);
        let said = Some(self.resources).filter(|said| !said.is_empty());
        let block = said.into_iter().fold(block, Spmd::resources);
        self.forced.iter().fold(block, |block, (call, algorithm)| {
            let (call, algorithm) = find(call, algorithm).expect("tests force what there is");
            block.force(call, algorithm)
        })
    }

    /// Runs `body` on thread ranks.
    pub fn threads(&self, ranks: usize, body: impl Fn(&Ctx) -> Result<()> + Sync) -> Result<()> {
        self.here(self.block(ranks).threads(), body)
    }

    /// Runs `body` on virtual ranks.
    pub fn virtual_ranks(
        &self,
        ranks: usize,
        body: impl Fn(&Ctx) -> Result<()> + Sync,
    ) -> Result<()> {
        self.here(self.block(ranks).virtual_ranks(), body)
    }

    fn here(&self, block: Spmd, body: impl Fn(&Ctx) -> Result<()> + Sync) -> Result<()> {
        if is_process_rank() { Ok(()) } else { block.run(body).map(drop) }
    }

    /// Runs `body` on process ranks, as [`processes`].
    pub fn processes(
        &self,
        test: &str,
        ranks: usize,
        body: impl Fn(&Ctx) -> Result<()> + Sync,
    ) -> Result<()> {
        let pairs = self.forced.iter().map(|(call, algorithm)| format!("{call}={algorithm}"));
        let forced = pairs.collect::<Vec<_>>().join(",");
        let segment = self.segment.unwrap_or(64 << 10).to_string();
        let number = |number: Option<usize>| number.map_or_else(String::new, |it| it.to_string());
        let settings = [
            ("SPMD_PROGRESS", if self.progress == Progress::Thread { "thread" } else { "calls" }),
            ("SPMD_WINDOW", &*number(self.window)),
            ("SPMD_SEGMENT", &*segment),
            ("SPMD_RESOURCES", self.resources),
            ("SPMD_FORCE", &*forced),
            ("SPMD_SINGLE_COPY", if self.single_copy { "1" } else { "0" }),
            ("SPMD_CHAOS", &*self.chaos.map_or_else(String::new, |seed| seed.to_string())),
        ];
        processes(test, ranks, &settings, body)
    }

    /// Runs `body` on each of these numbers of ranks, as threads, virtual ranks and processes.
    pub fn everywhere(
        &self,
        test: &str,
        ranks: &[usize],
        body: impl Fn(&Ctx) -> Result<()> + Sync,
    ) -> Result<()> {
        for ranks in ranks {
            self.threads(*ranks, &body)?;
            self.virtual_ranks(*ranks, &body)?;
            self.processes(test, *ranks, &body)?;
        }
        Ok(())
    }
}
