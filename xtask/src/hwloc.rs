//! The launcher with the feature that needs a C library.

use crate::programs;
use crate::steps::Outcome;
use crate::tools::{self, command};

/// Debian's packages of what the feature is built with.
const PACKAGES: [&str; 3] = ["libhwloc-dev", "libudev-dev", "pkg-config"];

/// Files of the launcher's tests.
const TESTS: [&str; 3] = ["launch", "output", "mistakes"];

pub(crate) fn run() -> Outcome {
    if !is_there() {
        let mut install = command("apt-get", &["install", "--yes", "--no-install-recommends"]);
        install.args(PACKAGES).env("DEBIAN_FRONTEND", "noninteractive");
        if tools::output(install).is_none() || !is_there() {
            let packages = PACKAGES.join(", ");
            return Outcome::Skipped(format!("hwloc is not installed, and cannot be: {packages}"));
        }
    }
    // What the signals of a job do is tested without the feature, by a runner that ends what hangs.
    let options = ["--features", "spmd-launcher/hwloc", "--lib", "--bins"];
    let tests = TESTS.iter().flat_map(|name| ["--test", name]);
    let options: Vec<&str> = options.into_iter().chain(tests).collect();
    let programs = match programs::build(&options, |_| ()) {
        Ok(programs) => programs,
        Err(why) => return Outcome::failed(why),
    };
    Outcome::of_all(programs::in_folder(&programs, "launcher").map(|test| test.command(&[], &[])))
}

fn is_there() -> bool {
    let found = command("pkg-config", &["--exists", "hwloc >= 2.0", "libudev"]);
    tools::output(found).is_some()
}
