//! The step `gpu`: the tests of GPUs on the stand-in card, which the machine's C++ compiler makes, and
//! of the kernels by the real NVRTC.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::steps::Outcome;
use crate::tools::{self, built, cargo, command, root};
use crate::{programs, python};

/// Numbers as on the host: integers go around, and a product and a sum are rounded each.
const FLAGS: [&str; 7] =
    ["-O1", "-g", "-fPIC", "-std=c++17", "-pthread", "-fwrapv", "-ffp-contract=off"];
/// With a sanitizer, GCC warns of its own library.
const WARNINGS: [&str; 3] = ["-Wall", "-Wextra", "-Werror"];

pub(crate) fn run() -> Outcome {
    if !has_compiler() {
        return Outcome::Skipped(
            "there is no C++ compiler (c++), of which the stand-in is made".into(),
        );
    }
    match stand_in(None) {
        Ok(folder) => tests(folder),
        Err(why) => Outcome::failed(why),
    }
}

pub(crate) fn has_compiler() -> bool {
    tools::output(command("c++", &["--version"])).is_some()
}

/// Builds the libraries of the stand-in, and the kernels that it will compile, for this sanitizer, whose
/// runtime is the one of the program that loads them. The folder that they are in.
pub(crate) fn stand_in(sanitizer: Option<&str>) -> Result<PathBuf, String> {
    let source = root().join("spmd-gpu/standin");
    let folder = built("standin").join(sanitizer.unwrap_or("plain"));
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let sanitize = sanitizer.map(|name| format!("-fsanitize={name}"));
    let header = format!("-DKERNEL_HEADER=\"{}\"", source.join("kernel.h").display());
    let libraries = [
        ("libcuda.so.1", &["driver.cpp", "card.cpp"][..]),
        ("libnvrtc.so", &["nvrtc.cpp"]),
        // After the driver, whose streams it uses.
        ("libnccl.so.2", &["nccl.cpp"]),
    ];
    for (library, sources) in libraries {
        let objects = sources.iter().map(|name| folder.join(name).with_extension("o"));
        let objects: Vec<PathBuf> = objects.collect();
        for (name, object) in sources.iter().zip(&objects) {
            let mut compile = command("c++", &FLAGS);
            compile.arg(&header).arg("-c").arg(source.join(name)).arg("-o").arg(object);
            match &sanitize {
                Some(flag) => compile.arg(flag).arg(format!("-DSANITIZE=\"{flag}\"")),
                None => compile.args(WARNINGS),
            };
            built_by(compile)?;
        }
        let mut link = command("c++", &["-shared", "-pthread"]);
        link.args(&objects).arg("-o").arg(folder.join(library)).arg("-ldl");
        if library == "libnccl.so.2" {
            link.arg("-L").arg(&folder).arg("-l:libcuda.so.1");
        }
        built_by(link)?;
    }
    Ok(folder)
}

fn built_by(compiler: Command) -> Result<(), String> {
    tools::watch(compiler).wrong.map_or(Ok(()), Err)
}

fn tests(folder: PathBuf) -> Outcome {
    // With those of the other crates, which the step `tests` has built.
    let options =
        ["--workspace", "--lib", "--test", "gpu", "--test", "gpu_missing", "--test", "gpu_nccl"];
    let programs = match programs::build(&options, |_| {}) {
        Ok(programs) => programs,
        Err(why) => return Outcome::failed(why),
    };
    let files = [
        ("tests/gpu.rs", ""),
        ("tests/gpu_missing.rs", ""),
        ("tests/gpu_nccl.rs", ""),
        ("spmd-gpu/src/lib.rs", "buffer"),
    ];
    let on_card = files.map(|(file, chosen)| {
        let mut command = programs::of(&programs, file)?.command(&[], &[chosen]);
        command.env("LD_LIBRARY_PATH", &folder).env("SPMD_REQUIRE_GPU", "1");
        Ok(command)
    });
    let kernels = programs::of(&programs, "spmd-gpu/src/lib.rs").map(|program| {
        let mut command = program.command(&[], &["every_kernel_compiles", "--nocapture"]);
        match nvrtc() {
            Ok(library) => {
                command.env("SPMD_NVRTC_LIB", library).env("SPMD_REQUIRE_NVRTC", "1");
            }
            Err(why) => println!("NVRTC cannot be had: {why}"),
        }
        command
    });
    match on_card.into_iter().chain([kernels]).collect::<Result<Vec<_>, String>>() {
        Ok(commands) => Outcome::of_all(commands.into_iter().chain(examples(&folder))),
        Err(why) => Outcome::failed(why),
    }
}

/// The examples on stand-in cards: ranks on one, and processes with one each.
fn examples(folder: &Path) -> Vec<Command> {
    let build = cargo(&["build", "--workspace", "--bins", "--examples", "--quiet"]);
    let debug = built("debug");
    let run = |options: &[&str], cards: &str| {
        let mut command = command(debug.join("spmdrun"), options);
        command.arg(debug.join("examples/heat_gpu")).args(["96", "40"]);
        command.env("LD_LIBRARY_PATH", folder).env("SPMD_STANDIN_CARDS", cards);
        command
    };
    vec![
        build,
        run(&["-n", "3", "--as", "threads"], "1"),
        run(&["-n", "2", "--as", "virtual"], "1"),
        run(&["-n", "2", "--as", "processes"], "1"),
        run(&["-n", "3", "--as", "gpus"], "3"),
    ]
}

/// The real NVRTC, from PyPI, which needs no GPU.
fn nvrtc() -> Result<PathBuf, String> {
    let environment = built("nvrtc");
    let find = || {
        let versions = fs::read_dir(environment.join("lib")).ok()?.flatten();
        let library = Path::new("site-packages/nvidia/cu13/lib/libnvrtc.so.13");
        versions.map(|version| version.path().join(library)).find(|path| path.exists())
    };
    if let Some(library) = find() {
        return Ok(library);
    }
    println!("Installing NVRTC ..");
    python::install(&environment, &["nvidia-cuda-nvrtc"])?;
    find().ok_or_else(|| "its package has no libnvrtc.so.13".into())
}
