//! `cargo xtask gpu-bundle`: a folder that runs the tests and measurements of GPUs on a machine
//! without Rust.

use std::fs;
use std::path::Path;

use crate::tools::{self, built, cargo, command, root};
use crate::{gpu, programs};

/// What the folder may be at most: some machines take no more.
const MOST: u64 = 60 << 20;

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
    build.args(["--example", "heat_gpu"]);
    if let Some(wrong) = tools::watch(build).wrong {
        return Err(wrong);
    }
    let files = ["gpu", "gpu_memory", "gpu_messages", "gpu_nccl.rs", "gpu_split.rs"];
    let names = files.map(gpu::name_of);
    let options = names.iter().flat_map(|name| ["--test", name]);
    let options: Vec<&str> = ["--package", "spmd-tests"].into_iter().chain(options).collect();
    // Not optimised, the matrix and the tests take more room than all else, and checks of their
    // arithmetic some of it.
    let settings =
        ["opt-level='s'", "codegen-units=1", "overflow-checks=false", "debug-assertions=false"];
    let smaller = ["spmd-matrix", "spmd-conformance", "spmd-tests"]
        .into_iter()
        .flat_map(|name| settings.map(|setting| format!("profile.dev.package.{name}.{setting}")));
    let smaller: Vec<String> = smaller.collect();
    let tests = programs::build(&options, |cargo| {
        cargo.args(smaller.iter().flat_map(|setting| ["--config", setting]));
        cargo.env("CARGO_TARGET_DIR", built("bundle"));
    })?;
    let folder = built("gpu-bundle");
    let _ = fs::remove_dir_all(&folder);
    let told = |error: std::io::Error| format!("{}: {error}", folder.display());
    fs::create_dir_all(&folder).map_err(told)?;
    for name in ["spmdrun", "spmd-perf", "examples/heat_gpu"] {
        let name = Path::new(name);
        strip(&built("release").join(name), &folder.join(name.file_name().unwrap_or_default()))?;
    }
    for (file, name) in files.iter().zip(names) {
        let test = programs::of(&tests, &format!("tests/{file}"))?;
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
