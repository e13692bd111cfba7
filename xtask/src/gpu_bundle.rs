//! `cargo xtask gpu-bundle`: a folder that runs the tests and measurements of GPUs on a machine
//! without Rust.

use std::fs;
use std::path::Path;

use crate::programs;
use crate::tools::{self, built, cargo, command, root};

/// What the folder may be at most: some machines take no more.
const MOST: u64 = 60 << 20;

/// Those that a machine with a GPU is to run, each a folder of the tests.
const TESTS: [&str; 4] = ["gpu", "gpu_memory", "gpu_messages", "gpu_nccl"];
const EXAMPLES: [&str; 2] = ["heat_gpu", "digits"];

pub(crate) fn make() -> Result<bool, String> {
    let mut build = cargo(&["build", "--release", "--package", "spmd-launcher", "--package"]);
    build.args([
        "spmd-perf",
        "--package",
        "spmd-examples",
        "--bin",
        "spmdrun",
        "--bin",
        "spmd-perf",
    ]);
    build.args(EXAMPLES.iter().flat_map(|name| ["--example", name]));
    if let Some(wrong) = tools::watch(build).wrong {
        return Err(wrong);
    }
    let options = TESTS.iter().flat_map(|name| ["--test", name]);
    let options: Vec<&str> =
        ["--release", "--package", "spmd-tests"].into_iter().chain(options).collect();
    // As fast as can be, the matrix and the tests take more room than all else.
    let smaller = ["spmd-matrix", "spmd-conformance", "spmd-tests"].into_iter().flat_map(|name| {
        ["opt-level='s'", "codegen-units=1"]
            .map(|setting| format!("profile.release.package.{name}.{setting}"))
    });
    let smaller: Vec<String> = smaller.collect();
    let tests = programs::build(&options, |cargo| {
        cargo.args(smaller.iter().flat_map(|setting| ["--config", setting]));
    })?;
    let folder = built("gpu-bundle");
    let _ = fs::remove_dir_all(&folder);
    let told = |error: std::io::Error| format!("{}: {error}", folder.display());
    fs::create_dir_all(&folder).map_err(told)?;
    let release = built("release");
    for name in ["spmdrun", "spmd-perf"] {
        strip(&release.join(name), &folder.join(name))?;
    }
    for name in EXAMPLES {
        strip(&release.join("examples").join(name), &folder.join(name))?;
    }
    for name in TESTS {
        let test = programs::of(&tests, &format!("tests/{name}"))?;
        strip(&test.path, &folder.join(name))?;
    }
    let script = "run-gpu-checks.sh";
    fs::copy(root().join("xtask/gpu").join(script), folder.join(script)).map_err(told)?;
    let sizes = fs::read_dir(&folder).map_err(told)?.flatten();
    let size: u64 = sizes.filter_map(|entry| entry.metadata().ok()).map(|it| it.len()).sum();
    println!("{}: {} MiB; run {script} there", folder.display(), size >> 20);
    match size {
        0..=MOST => Ok(true),
        _ => Err(format!("it is larger than {} MiB", MOST >> 20)),
    }
}

/// A copy without what only a debugger needs.
fn strip(program: &Path, copy: &Path) -> Result<(), String> {
    let mut strip = command("strip", &["-o"]);
    strip.arg(copy).arg(program);
    tools::watch(strip).wrong.map_or(Ok(()), Err)
}
