//! The launcher with the feature that needs a C library.

use crate::steps::Outcome;
use crate::tools::{self, cargo, command};

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
    let mut test = cargo(&["test", "--package", "spmd-launcher", "--features", "hwloc"]);
    // What signals and outputs of a job do is tested without the feature, by a runner that ends what
    // hangs.
    test.args(["--lib", "--bins", "--test", "launch", "--test", "mistakes"]);
    Outcome::of(test)
}

fn is_there() -> bool {
    let found = command("pkg-config", &["--exists", "hwloc >= 2.0", "libudev"]);
    tools::output(found).is_some()
}
