//! The launcher with the feature that needs a C library.

use crate::programs;
use crate::steps::Outcome;
use crate::tools::{self, command};

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
    // What signals and outputs of a job do is tested without the feature, by a runner that ends what
    // hangs.
    let options = ["--lib", "--bins", "--test", "launch", "--test", "mistakes"];
    let features = ["--workspace", "--features", "spmd-launcher/hwloc"];
    match programs::build(&[&features[..], &options].concat(), |_| {}) {
        Ok(programs) => {
            let own = programs::in_folder(&programs, "launcher");
            Outcome::of_all(own.map(|program| program.command(&[], &[])))
        }
        Err(why) => Outcome::failed(why),
    }
}

fn is_there() -> bool {
    let found = command("pkg-config", &["--exists", "hwloc >= 2.0", "libudev"]);
    tools::output(found).is_some()
}
