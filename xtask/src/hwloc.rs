//! The launcher with the feature that needs a C library.

use std::process::Command;

use crate::steps::Outcome;
use crate::tools::{self, built, cargo, command};

/// Debian's packages of what the feature is built with.
const PACKAGES: [&str; 3] = ["libhwloc-dev", "libudev-dev", "pkg-config"];

pub(crate) fn run() -> Outcome {
    if !is_there() {
        let mut install = command("apt-get", &["install", "--yes", "--no-install-recommends"]);
        install.args(PACKAGES).env("DEBIAN_FRONTEND", "noninteractive");
        if tools::output(install).is_none() || !is_there() {
            let packages = PACKAGES.join(", ");
            return Outcome::Skipped(format!("hwloc is not installed, and cannot be: {packages}"));
        }
    }
    Outcome::of(tests())
}

pub(crate) fn build() -> Option<Command> {
    let mut build = tests();
    build.arg("--no-run");
    is_there().then_some(build)
}

fn tests() -> Command {
    let mut tests = cargo(&["test", "--package", "spmd-launcher", "--features", "hwloc"]);
    // What signals and outputs of a job do is tested without the feature, by a runner that ends what
    // hangs.
    tests.args(["--lib", "--bins", "--test", "launch", "--test", "mistakes"]);
    tools::unoptimised(&mut tests);
    tests.env("CARGO_TARGET_DIR", built("hwloc"));
    tests
}

fn is_there() -> bool {
    let found = command("pkg-config", &["--exists", "hwloc >= 2.0", "libudev"]);
    tools::output(found).is_some()
}
