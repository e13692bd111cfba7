//! The tests of process ranks as a user without rights: root may read the memory of any process,
//! and others may not.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::steps::Outcome;
use crate::tools::{self, built, cargo};

/// Files of tests that start process ranks: of what rights decide about, whose memory one may read.
const TESTS: [&str; 2] = ["spawning", "single_copy"];

/// `nobody`, everywhere.
#[cfg(unix)]
const USER: u32 = 65534;

pub(crate) fn run() -> Outcome {
    if !is_root() {
        return Outcome::Skipped("no other user is needed: this one is not root".into());
    }
    let mut build = cargo(&["test", "--workspace", "--tests", "--no-run"]);
    build.env("CARGO_TERM_COLOR", "never");
    let compiled = tools::watch(build);
    if let Some(wrong) = compiled.wrong {
        return Outcome::Failed(Default::default(), wrong);
    }
    let folder = std::env::temp_dir().join(format!("spmd-non-root-{}", std::process::id()));
    let outcome = match copy(&folder, &compiled.text) {
        Ok(tests) => Outcome::of_all(tests.iter().map(|test| other_user(test))),
        Err(error) => Outcome::Failed(Default::default(), format!("copying the tests: {error}")),
    };
    let _ = fs::remove_dir_all(&folder);
    outcome
}

/// Copies the tests to where everybody can read them, and the launcher to where they look for it.
fn copy(folder: &Path, compiled: &str) -> io::Result<Vec<PathBuf>> {
    let deps = folder.join("debug/deps");
    fs::create_dir_all(&deps)?;
    fs::copy(built("debug").join("spmdrun"), folder.join("debug/spmdrun"))?;
    TESTS
        .iter()
        .map(|name| {
            let source = executable(compiled, name).ok_or_else(|| {
                io::Error::other(format!("cargo does not tell where tests/{name}.rs is built"))
            })?;
            fs::copy(source, deps.join(name))?;
            Ok(deps.join(name))
        })
        .collect()
}

/// Where a test was built: `Executable tests/name.rs (target/debug/deps/name-0123)`.
fn executable(compiled: &str, name: &str) -> Option<PathBuf> {
    let sources = [format!("tests/{name}.rs"), format!("tests/{name}/main.rs")];
    let line = compiled.lines().find(|line| {
        let mut words = line.split_whitespace();
        words.next() == Some("Executable")
            && words.next().is_some_and(|path| sources.iter().any(|source| source == path))
    })?;
    let path = line.split_once('(')?.1.strip_suffix(')')?;
    Some(tools::root().join(path))
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
