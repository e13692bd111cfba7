//! Environments of Python with packages from PyPI, by which libraries come that no registry of Rust has.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::tools;

/// Installs the newest versions of these packages into an environment, which is made if it is not
/// there.
///
/// Errors: why they cannot be had.
pub(crate) fn install(environment: &Path, packages: &[&str]) -> Result<(), String> {
    let python = environment.join("bin/python");
    if !python.exists() {
        fs::create_dir_all(environment)
            .map_err(|error| format!("{} cannot be made: {error}", environment.display()))?;
        let mut make = tools::command("python3", &["-m", "venv"]);
        make.arg(environment);
        succeed(make)?;
    }
    let mut install = tools::command(&python, &["-m", "pip", "install", "--quiet", "--upgrade"]);
    install.arg("--disable-pip-version-check").args(packages);
    succeed(install)
}

/// Runs a command to its end. Errors: what it wrote last, on one line.
pub(crate) fn succeed(mut command: Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{program} cannot be run: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("");
    Err(format!("{program}: {}: {last}", output.status))
}
