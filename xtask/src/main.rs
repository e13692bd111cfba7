//! What a contributor runs: `cargo xtask demo`, `test`, `soak`, `surface`, `gpu-bundle` and
//! `versus`.

mod ahead;
mod count;
mod demo;
mod docs;
mod examples;
mod fuzz;
mod gpu;
mod gpu_bundle;
mod hwloc;
mod leftovers;
mod linked;
mod miri;
mod mpi;
mod non_root;
mod package;
mod programs;
mod python;
mod runner;
mod sanitizer;
mod soak;
mod steps;
mod surface;
mod test;
mod tools;
mod versus;

use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask demo                       builds everything, runs two examples on four processes
cargo xtask test [--full] [STEP..]     all tests, or only these steps
cargo xtask test --list                the steps
cargo xtask soak                       10,000 kills and many repetitions: hours
cargo xtask surface                    writes down what is public, in docs/surface
cargo xtask gpu-bundle                 a folder that tests and measures on a machine with a GPU and
                                       without Rust, in the target folder
cargo xtask versus [--rounds 5] [--only TEXT] [--group two|sixteen] [--output DIR]
                                       how long calls take beside Open MPI, MPICH and Intel MPI,
                                       which it installs into the target folder
cargo xtask versus --against REF       how long they took at an older commit, and take here

cargo xtask versus over [--rounds 5] [--output DIR]
                                       how much longer calls take over MPI than the library's own

--full   with the exhaustive products of types, operations, ranks and lengths (SPMD_TEST_FULL=1)";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["demo"] => demo::run(),
        ["test", options @ ..] => test::run(options),
        ["soak"] => soak::run(),
        ["surface"] => surface::write(),
        ["gpu-bundle"] => gpu_bundle::make(),
        ["versus", options @ ..] => versus::run(options),
        [] | ["help" | "-h" | "--help"] => {
            println!("{USAGE}");
            Ok(true)
        }
        other => Err(format!("'{}' is not known.\n\n{USAGE}", other.join(" "))),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(text) => {
            eprintln!("{text}");
            ExitCode::from(2)
        }
    }
}
