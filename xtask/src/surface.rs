//! The public surface of the crates, kept in `docs/surface/`.

use crate::steps::Outcome;
use crate::tools::{self, cargo};

/// Ends with this status where rustdoc writes a format that it does not know.
const SKIPPED: &str = "exit status: 3";

/// Writes the files anew.
pub(crate) fn write() -> Result<bool, String> {
    let wrong = tools::watch(cargo(&["run", "--quiet", "--package", "spmd-surface"])).wrong;
    wrong.map_or(Ok(true), Err)
}

/// Whether they are what the crates are.
pub(crate) fn check() -> Outcome {
    let program = cargo(&["run", "--quiet", "--package", "spmd-surface", "--", "--check"]);
    match Outcome::of(program) {
        Outcome::Failed(_, why) if why.contains(SKIPPED) => {
            Outcome::Skipped("the files are written with another version of Rust".into())
        }
        outcome => outcome,
    }
}
