//! Miri on the modules whose unsafe code needs neither threads that share an arena nor the kernel.

use crate::steps::Outcome;
use crate::tools::{self, cargo};

/// The tests of these modules of `spmd-core`.
const MODULES: [&str; 4] = ["element::", "op::", "buffer::", "heap::ranges"];

pub(crate) fn run() -> Outcome {
    if tools::output(cargo(&["miri", "--version"])).is_none() {
        return Outcome::Skipped(
            "this toolchain has no Miri (rustup +nightly component add miri)".into(),
        );
    }
    let mut command = cargo(&["miri", "test", "--package", "spmd-core", "--lib", "--"]);
    command.args(MODULES);
    Outcome::of(command)
}
