//! `cargo xtask demo`: two examples on four processes.

use std::time::Instant;

use crate::tools::{self, built, cargo};

pub(crate) fn run() -> Result<bool, String> {
    println!("Building the launcher and the examples digits and heat ..");
    let mut build =
        cargo(&["build", "--release", "--package", "spmd-launcher", "--bin", "spmdrun"]);
    build.args(["--package", "spmd-examples", "--example", "digits", "--example", "heat"]);
    if !succeeds(&mut build)? {
        return Ok(false);
    }
    let release = built("release");
    let spmdrun = release.join("spmdrun");
    let picture = release.with_file_name("heat.png");

    let start = Instant::now();
    println!("\nLearning to read handwritten digits:");
    let digits = release.join("examples/digits");
    let mut digits_run = tools::command(&spmdrun, &["--ranks", "4"]);
    if !succeeds(digits_run.arg(digits))? {
        return Ok(false);
    }

    println!("\nWarming up a plate:");
    let heat = release.join("examples/heat");
    let mut heat_run = tools::command(&spmdrun, &["--ranks", "4"]);
    if !succeeds(heat_run.arg(heat).args(["720", "1600"]).arg(&picture))? {
        return Ok(false);
    }

    println!("\nBoth ran as four processes, in {:.0} s.", start.elapsed().as_secs_f64());
    println!("The picture of the plate is {}", picture.display());
    Ok(true)
}

fn succeeds(command: &mut std::process::Command) -> Result<bool, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.status().map_err(|error| format!("{program} cannot be run: {error}"))?;
    Ok(status.success())
}
