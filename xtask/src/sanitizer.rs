//! AddressSanitizer on the arenas and all that reads and writes them by raw pointers.

use std::path::Path;
use std::process::Command;

use crate::steps::Outcome;
use crate::tools::{self, cargo, command};

/// Tests of what memory is taken and where variables lie, which the sanitizer changes.
const UNFIT: [&str; 2] =
    ["ranks_that_never_wait_share_a_stack", "started_coroutines_take_little_memory"];

pub(crate) fn run() -> Outcome {
    let Some(host) = tools::host() else { return Outcome::Skipped("rustc does not run".into()) };
    if !has_runtime(&host) {
        return Outcome::Skipped("this toolchain has no AddressSanitizer for this machine".into());
    }
    let mut crates = cargo(&["test", "--package", "spmd-core", "--package", "spmd-collectives"]);
    crates.args(["--lib", "--tests", "--features", "corosensei/sanitizer", "--target", &host]);
    crates.arg("--").args(UNFIT.iter().flat_map(|test| ["--skip", test]));
    // A peer that writes where it must not, among processes: with a launcher of the same build.
    let mut launcher = cargo(&["build", "--package", "spmd-launcher", "--bin", "spmdrun"]);
    launcher.args(["--target", &host]);
    let mut hostile = cargo(&["test", "--package", "spmd", "--package", "spmd-core"]);
    hostile.args(["--test", "hostile", "--features", "corosensei/sanitizer", "--target", &host]);
    Outcome::of_all([crates, launcher, hostile].map(sanitized))
}

/// The command with the sanitizer on, for the target that it names: flags for a named target do
/// not reach build scripts and macros.
fn sanitized(mut command: Command) -> Command {
    // Sanitizers are not stable yet: this lets the stable compiler build with them.
    command.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", "-Zsanitizer=address --cfg sanitizer");
    command.env_remove("CARGO_ENCODED_RUSTFLAGS");
    // SIGSEGV is the library's, which tells a stack overflow. A second stack for each coroutine,
    // to find uses of variables after their function's end, would take gigabytes. Leaks are told
    // by looking through the stacks of all threads, which fails where ranks have stacks of their
    // own.
    let options = "handle_segv=0:detect_stack_use_after_return=0:detect_leaks=0:\
                   allocator_may_return_null=1";
    command.env("ASAN_OPTIONS", options);
    command
}

pub(crate) fn has_runtime(host: &str) -> bool {
    let Some(sysroot) = tools::output(command("rustc", &["--print", "sysroot"])) else {
        return false;
    };
    let folder = Path::new(sysroot.trim()).join("lib/rustlib").join(host).join("lib");
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    files.map(|file| file.file_name()).any(|name| name.to_string_lossy().contains("rt.asan"))
}
