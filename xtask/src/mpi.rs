//! The tests that need MPI libraries, hosts or Slurm: what they need is installed first, where it
//! can be. What is missing after that, the tests themselves report as SKIPPED.

use std::fs;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use crate::gpu;
use crate::non_root::is_root;
use crate::runner;
use crate::steps::Outcome;
use crate::tools::{self, built, cargo, command};
use crate::versus::peers::LIBRARIES;

/// What a library must have to be loaded, and to be linked with.
const STANDARD: &str = "lib/libmpi_abi.so.1";
const COMPILER: &str = "bin/mpicc";

pub(crate) fn mpi() -> Outcome {
    // Those of the launcher, of the benchmark and of all else that looks for them.
    tests(&["mpi", "one_program", "under_mpi", "over_mpi", "trace"], &[])
}

/// Fetches what [`mpi()`] needs.
pub(crate) fn prepare() -> Option<Command> {
    libraries(true);
    None
}

pub(crate) fn hosts() -> Outcome {
    // Of some worlds each host has cards.
    if gpu::has_compiler()
        && let Err(why) = gpu::stand_in(None)
    {
        println!("The stand-in card cannot be built: {why}");
    }
    tests(&["hosts"], &[("ip", "iproute2"), ("nsenter", "util-linux")])
}

pub(crate) fn slurm() -> Outcome {
    let needed = [("ip", "iproute2"), ("srun", "slurm-wlm"), ("munged", "munge")];
    tests(&["slurm"], &needed)
}

/// A test of the file `trace`, which the step `mpi` runs.
pub(crate) const OVER_MPI: &str = "across::over_mpi";

fn tests(names: &[&str], programs: &[(&str, &str)]) -> Outcome {
    libraries(true);
    packages(programs);
    // The tests start these.
    let mut build = cargo(&["build", "--workspace", "--bins", "--examples"]);
    build.arg("--quiet");
    if let Some(wrong) = tools::watch(build).wrong {
        return Outcome::Failed(Default::default(), wrong);
    }
    // What the tests write says what they skipped, and how long failures took.
    let chosen = |name: &&str| match *name {
        "trace" => format!("binary(trace) & test({OVER_MPI})"),
        name => format!("binary({name})"),
    };
    let chosen: Vec<String> = names.iter().map(chosen).collect();
    let files: Vec<&str> = names.iter().flat_map(|name| ["--test", name]).collect();
    runner::run(&[&chosen.join(" | "), "--success-output", "immediate"], &files)
}

/// Installs the libraries that are not there yet, of those that have the standard interface, or of
/// the others.
pub(crate) fn libraries(standard: bool) {
    // A step, and what builds ahead of it, may need the same one at a time.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _installs = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let debug = built("debug");
    let target = debug.parent().unwrap_or(&debug);
    let needed = if standard { STANDARD } else { COMPILER };
    for library in LIBRARIES.iter().filter(|library| library.standard == standard) {
        if target.join("peers").join(library.folder).join(needed).exists() {
            continue;
        }
        println!("Installing {} ..", library.name);
        if let Err(why) = library.install(target) {
            println!("{} cannot be had: {why}", library.name);
        }
    }
}

/// Installs Debian's packages for programs that are not there, or says what to install.
fn packages(programs: &[(&str, &str)]) {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<_> = std::env::split_paths(&folders).collect();
    let has = |program: &str| {
        let system = ["/usr/sbin", "/sbin"].map(Into::into);
        folders
            .iter()
            .chain(&system)
            .any(|folder| fs::exists(folder.join(program)).unwrap_or(false))
    };
    let missing = programs.iter().filter(|(program, _)| !has(program));
    let missing: Vec<&str> = missing.map(|(_, package)| *package).collect();
    if missing.is_empty() {
        return;
    }
    if !is_root() || !has("apt-get") {
        println!("To be installed for all of these tests: {}", missing.join(", "));
        return;
    }
    println!("Installing {} ..", missing.join(", "));
    let update = tools::watch(command("apt-get", &["update", "--quiet"])).wrong;
    let mut install = command("apt-get", &["install", "--yes", "--quiet"]);
    install.arg("--no-install-recommends").args(&missing).env("DEBIAN_FRONTEND", "noninteractive");
    for why in update.into_iter().chain(tools::watch(install).wrong) {
        println!("{why}");
    }
}
