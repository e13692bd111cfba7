//! Running tests of the workspace that are chosen by name.

use crate::steps::Outcome;
use crate::tools::{self, cargo};

/// Runs tests with cargo-nextest, or with `cargo test` where that is not installed.
///
/// Both are given the whole workspace: a part of it would be built with other features.
pub(crate) fn run(nextest: &[&str], test: &[&str]) -> Outcome {
    if has_nextest() {
        let mut command = cargo(&["nextest", "run", "--workspace", "--no-fail-fast", "-E"]);
        command.args(nextest);
        return Outcome::of(command);
    }
    println!("cargo-nextest is not installed: cargo test runs the tests, one file at a time");
    let mut command = cargo(&["test", "--workspace", "--no-fail-fast"]);
    command.args(test);
    Outcome::of(command)
}

/// Whether cargo-nextest is installed.
pub(crate) fn has_nextest() -> bool {
    tools::output(cargo(&["nextest", "--version"])).is_some()
}
