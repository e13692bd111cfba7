//! The public surface of the crates, kept in `docs/surface/`.

use std::process::Command;

use crate::steps::Outcome;
use crate::tools::{self, cargo};

/// Ends with this status where rustdoc writes a format that it does not know.
const SKIPPED: &str = "exit status: 3";

/// Writes the files anew.
pub(crate) fn write() -> Result<bool, String> {
    let wrong = tools::watch(cargo(&["run", "--quiet", "--package", "spmd-surface"])).wrong;
    wrong.map_or(Ok(true), Err)
}

/// The command that says whether they are what the crates are.
pub(crate) fn build() -> Option<Command> {
    Some(cargo(&["run", "--quiet", "--package", "spmd-surface", "--", "--check"]))
}

/// Whether they are what the crates are.
pub(crate) fn check() -> Outcome {
    match Outcome::of_all(build()) {
        Outcome::Failed(_, why) if why.contains(SKIPPED) => {
            Outcome::Skipped("the files are written with another version of Rust".into())
        }
        outcome => outcome,
    }
}
