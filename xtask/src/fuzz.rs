//! libFuzzer on all that reads bytes from outside (`fuzz/`): some seconds each, or, with `--full`,
//! ten minutes each.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::sanitizer;
use crate::steps::Outcome;
use crate::tools::{self, built, cargo, command, root};

/// What cargo-fuzz builds with: the counters that tell libFuzzer where an input leads.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
     -Cllvm-args=-sanitizer-coverage-trace-compares -Zsanitizer=address";
/// Seconds for each target.
const SHORT: &str = "1";
const FULL: &str = "600";

pub(crate) fn run() -> Outcome {
    let Some(host) = tools::host() else { return Outcome::Skipped("rustc does not run".into()) };
    if !sanitizer::has_runtime(&host, "asan") {
        return Outcome::Skipped("this toolchain has no AddressSanitizer for this machine".into());
    }
    if tools::output(command("c++", &["--version"])).is_none() {
        return Outcome::Skipped("libFuzzer is built with a C++ compiler, `c++`".into());
    }
    let programs = built("fuzz").join(&host).join("release");
    let runs = targets().into_iter().map(|name| fuzzed(&programs, &name));
    Outcome::of_all(build().into_iter().chain(runs))
}

/// The command that builds the targets.
pub(crate) fn build() -> Option<Command> {
    let mut build =
        cargo(&["build", "--release", "--locked", "--manifest-path", "fuzz/Cargo.toml"]);
    build.args(["--target", &tools::host()?]).arg("--target-dir").arg(built("fuzz"));
    if !is_full() {
        // It takes longer to compile than it runs.
        build.args(["--config", "profile.release.opt-level=0"]);
        build.args(["--config", "profile.release.codegen-units=16"]);
    }
    build.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", FLAGS).env_remove("CARGO_ENCODED_RUSTFLAGS");
    Some(build)
}

/// The names of the targets.
fn targets() -> Vec<String> {
    let files = fs::read_dir(root().join("fuzz/fuzz_targets")).into_iter().flatten().flatten();
    let mut names: Vec<String> = files
        .filter_map(|file| Some(file.path().file_stem()?.to_string_lossy().into_owned()))
        .collect();
    names.sort();
    names
}

fn is_full() -> bool {
    std::env::var_os("SPMD_TEST_FULL").is_some()
}

fn fuzzed(programs: &Path, name: &str) -> Command {
    // What it finds on the way is kept for the next time; what breaks the target, beside it.
    let corpus: PathBuf = programs.join("corpus").join(name);
    let _ = fs::create_dir_all(&corpus);
    let mut run = command(programs.join(name), &[]);
    run.arg(format!("-max_total_time={}", if is_full() { FULL } else { SHORT }));
    run.arg(format!("-artifact_prefix={}/{name}-", programs.join("corpus").display()));
    run.args(["-rss_limit_mb=1024", "-timeout=10", "-verbosity=0", "-print_final_stats=1"]);
    run.arg(corpus).arg(root().join("fuzz/seeds").join(name));
    run
}
