//! Programs of tests, built and then run apart. With `--workspace` they are built with the features
//! that the whole workspace has: a part of it by itself would have others, and all that it needs
//! would be compiled once more.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::tools::{self, built, cargo, command, root};

/// A program of tests.
pub(crate) struct Program {
    /// Its main file.
    source: PathBuf,
    /// Where it was built.
    pub(crate) path: PathBuf,
}

/// Builds the tests that `options` choose, by a cargo that `prepare` has seen.
pub(crate) fn build(
    options: &[&str],
    prepare: impl FnOnce(&mut Command),
) -> Result<Vec<Program>, String> {
    let mut build = cargo(&["test", "--no-run"]);
    build.arg("--message-format=json-render-diagnostics").args(options);
    prepare(&mut build);
    let output = build.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cargo cannot be run: {error}"))?;
    if !output.status.success() {
        return Err(format!("building the tests: {}", output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().filter_map(program).collect())
}

/// The program that this line of cargo's tells of.
fn program(line: &str) -> Option<Program> {
    let told: Value = serde_json::from_str(line).ok()?;
    let is_test = told["profile"]["test"].as_bool()?;
    let source = PathBuf::from(told["target"]["src_path"].as_str()?);
    let path = PathBuf::from(told["executable"].as_str()?);
    is_test.then_some(Program { source, path })
}

/// Puts the launcher that other tests use where those look for it that are built in this folder.
pub(crate) fn lend_launcher(folder: &Path) -> Result<(), String> {
    let build = tools::watch(cargo(&["build", "--workspace", "--bins", "--examples", "--quiet"]));
    if let Some(wrong) = build.wrong {
        return Err(wrong);
    }
    let plain = built("debug").join("spmdrun");
    // A list of its sources would have it built again when they change.
    let _ = fs::remove_file(folder.join("spmdrun.d"));
    let copied = fs::create_dir_all(folder)
        .and_then(|()| fs::copy(&plain, folder.join("spmdrun")))
        .map_err(|error| format!("copying {}: {error}", plain.display()));
    copied.map(drop)
}

/// Those of this folder of the workspace.
pub(crate) fn in_folder<'a>(
    programs: &'a [Program],
    folder: &str,
) -> impl Iterator<Item = &'a Program> {
    programs.iter().filter(move |program| program.is_of(folder))
}

/// That of this file of the workspace.
pub(crate) fn of<'a>(programs: &'a [Program], file: &str) -> Result<&'a Program, String> {
    let found = programs.iter().find(|program| program.is_of(file));
    found.ok_or_else(|| format!("cargo does not tell where {file} is built"))
}

impl Program {
    /// Whether it lies in this folder of the workspace.
    pub(crate) fn is_of(&self, folder: &str) -> bool {
        self.source.starts_with(root().join(folder))
    }

    /// Runs it by another one, or by itself, where cargo would.
    pub(crate) fn command(&self, runner: &[&str], arguments: &[&str]) -> Command {
        let mut words = runner.iter().map(PathBuf::from).chain([self.path.clone()]);
        let mut command = command(words.next().unwrap_or_default(), &[]);
        command.args(words).args(arguments);
        let folders = self.source.ancestors().filter(|folder| folder.join("Cargo.toml").exists());
        command.current_dir(folders.take(1).next().unwrap_or(Path::new("/")));
        command
    }
}
