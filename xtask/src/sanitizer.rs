//! AddressSanitizer on the arenas and all that reads and writes them by raw pointers.

use std::path::Path;

use crate::steps::Outcome;
use crate::tools::{self, cargo, command};

pub(crate) fn run() -> Outcome {
    let Some(host) = tools::host() else { return Outcome::Skipped("rustc does not run".into()) };
    if !has_runtime(&host) {
        return Outcome::Skipped("this toolchain has no AddressSanitizer for this machine".into());
    }
    let asan = |arguments: &[&str]| {
        let mut command = cargo(arguments);
        // Sanitizers are not stable yet: this lets the stable compiler build with them. Flags for
        // a named target do not reach build scripts and macros.
        command
            .args(["--target", &host, "--features", "corosensei/sanitizer"])
            .env("RUSTC_BOOTSTRAP", "1")
            .env("RUSTFLAGS", "-Zsanitizer=address")
            .env_remove("CARGO_ENCODED_RUSTFLAGS");
        command
    };
    Outcome::of_all([asan(&["test", "--package", "spmd-core", "--lib"])])
}

fn has_runtime(host: &str) -> bool {
    let Some(sysroot) = tools::output(command("rustc", &["--print", "sysroot"])) else {
        return false;
    };
    let folder = Path::new(sysroot.trim()).join("lib/rustlib").join(host).join("lib");
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    files.map(|file| file.file_name()).any(|name| name.to_string_lossy().contains("rt.asan"))
}
