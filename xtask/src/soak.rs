//! `cargo xtask soak`: what takes hours.

use crate::steps::{self, Outcome, Step};
use crate::tools::cargo;

/// How often the conformance matrix is run again.
const REPEATS: usize = 50;

const STEPS: [Step; 2] = [
    Step::new("kills", "10,000 ranks killed at random moments", kills),
    Step::new("conformance", "the matrix, again and again", conformance),
];

pub(crate) fn run() -> Result<bool, String> {
    let steps: Vec<&Step> = STEPS.iter().collect();
    Ok(steps::run(&steps))
}

fn kills() -> Outcome {
    let mut command =
        cargo(&["test", "--release", "--package", "spmd-tests", "--test", "failures"]);
    command.args(["--", "kill", "--nocapture"]).env("SPMD_TEST_KILLS", "10000");
    Outcome::of(command)
}

fn conformance() -> Outcome {
    Outcome::of_all(
        (0..REPEATS).map(|_| {
            cargo(&["test", "--release", "--package", "spmd-tests", "--test", "conformance"])
        }),
    )
}
