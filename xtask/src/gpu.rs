//! The step `gpu`: the tests of GPUs on the stand-in card, which the machine's C++ compiler makes.

use std::fs;
use std::path::PathBuf;

use crate::programs;
use crate::steps::Outcome;
use crate::tools::{self, built, command, root};

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
    let programs = match programs::build(&["--workspace", "--test", "gpu"], |_| {}) {
        Ok(programs) => programs,
        Err(why) => return Outcome::failed(why),
    };
    match programs::of(&programs, "tests/gpu.rs") {
        Ok(program) => {
            let mut command = program.command(&[], &[]);
            command.env("LD_LIBRARY_PATH", folder).env("SPMD_REQUIRE_GPU", "1");
            Outcome::of(command)
        }
        Err(why) => Outcome::failed(why),
    }
}
