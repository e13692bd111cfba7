//! The tests of process ranks as a user without rights: root may read the memory of any process,
//! and others may not.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::programs::{self, Program};
use crate::steps::Outcome;
use crate::tools::{self, built};

/// Files of tests that start process ranks: of what rights decide about, whose memory one may read.
const TESTS: [&str; 2] = ["spawning", "single_copy"];

/// `nobody`, everywhere.
#[cfg(unix)]
const USER: u32 = 65534;

pub(crate) fn run() -> Outcome {
    if !is_root() {
        return Outcome::Skipped("no other user is needed: this one is not root".into());
    }
    let tests = TESTS.iter().flat_map(|name| ["--test", name]);
    let options: Vec<&str> = ["--workspace"].into_iter().chain(tests).collect();
    let programs = match programs::build(&options, |_| ()) {
        Ok(programs) => programs,
        Err(why) => return Outcome::failed(why),
    };
    let folder = std::env::temp_dir().join(format!("spmd-non-root-{}", std::process::id()));
    let outcome = match copy(&folder, &programs) {
        Ok(tests) => Outcome::of_all(tests.iter().map(|test| other_user(test))),
        Err(why) => Outcome::failed(format!("copying the tests: {why}")),
    };
    let _ = fs::remove_dir_all(&folder);
    outcome
}

/// Copies the tests to where everybody can read them, and the launcher to where they look for it.
fn copy(folder: &Path, programs: &[Program]) -> Result<Vec<PathBuf>, String> {
    let deps = folder.join("debug/deps");
    let told = |error: std::io::Error| error.to_string();
    fs::create_dir_all(&deps).map_err(told)?;
    fs::copy(built("debug").join("spmdrun"), folder.join("debug/spmdrun")).map_err(told)?;
    let copy = |name: &&str| {
        let file = format!("tests/{name}.rs");
        let test = programs::of(programs, &file)?;
        fs::copy(&test.path, deps.join(name)).map_err(told)?;
        Ok(deps.join(name))
    };
    TESTS.iter().map(copy).collect()
}

fn other_user(test: &Path) -> Command {
    let mut command = tools::command(test, &[]);
    command.current_dir("/");
    #[cfg(unix)]
    std::os::unix::process::CommandExt::uid(&mut command, USER);
    #[cfg(unix)]
    std::os::unix::process::CommandExt::gid(&mut command, USER);
    command
}

pub(crate) fn is_root() -> bool {
    let id = tools::output(tools::command("id", &["-u"]));
    id.is_some_and(|id| id.trim() == "0")
}
