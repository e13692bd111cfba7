//! The step `gpu`: the tests of GPUs on the stand-in card, which the machine's C++ compiler makes, and
//! of the kernels by the real NVRTC.

use std::fs;
use std::path::{Path, PathBuf};

use crate::steps::Outcome;
use crate::tools::{self, built, command, root};
use crate::{programs, python};

const FLAGS: [&str; 6] = ["-O1", "-g", "-shared", "-fPIC", "-std=c++17", "-pthread"];

pub(crate) fn run() -> Outcome {
    if tools::output(command("c++", &["--version"])).is_none() {
        return Outcome::Skipped(
            "there is no C++ compiler (c++), of which the stand-in is made".into(),
        );
    }
    match stand_in() {
        Ok(folder) => tests(folder),
        Err(why) => Outcome::failed(why),
    }
}

/// Builds the libraries of the stand-in into a folder.
fn stand_in() -> Result<PathBuf, String> {
    let (source, folder) = (root().join("spmd-gpu/standin"), built("standin"));
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let header = format!("-DKERNEL_HEADER=\"{}\"", source.join("kernel.h").display());
    let libraries: [(&str, &[&str], &[&str]); 2] = [
        ("libcuda.so.1", &["driver.cpp", "card.cpp"], &[]),
        ("libnvrtc.so", &["nvrtc.cpp"], &[&header]),
    ];
    for (library, sources, flags) in libraries {
        let mut compile = command("c++", &FLAGS);
        compile.args(["-Wall", "-Wextra", "-Werror"]).args(flags);
        compile.args(sources.iter().map(|name| source.join(name)));
        compile.arg("-o").arg(folder.join(library)).arg("-ldl");
        if let Some(wrong) = tools::watch(compile).wrong {
            return Err(wrong);
        }
    }
    Ok(folder)
}

fn tests(folder: PathBuf) -> Outcome {
    // With those of the other crates, which the step `tests` has built.
    let options = ["--workspace", "--lib", "--test", "gpu", "--test", "gpu_missing"];
    let programs = match programs::build(&options, |_| {}) {
        Ok(programs) => programs,
        Err(why) => return Outcome::failed(why),
    };
    let files =
        [("tests/gpu.rs", ""), ("tests/gpu_missing.rs", ""), ("spmd-gpu/src/lib.rs", "buffer")];
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
        Ok(commands) => Outcome::of_all(commands),
        Err(why) => Outcome::failed(why),
    }
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
