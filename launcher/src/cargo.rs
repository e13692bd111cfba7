//! `cargo spmdrun`: builds a program with cargo and finds the executable.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use clap::{Args, Parser};
use serde_json::Value;

use crate::args::{self, JobOptions, ProgramOptions, Request, Section};
use crate::error::Error;

/// Build a program with cargo, then start its ranks as spmdrun does
#[derive(Parser, Debug)]
#[command(name = "cargo spmdrun", version)]
#[command(override_usage = "cargo spmdrun [OPTIONS] [--bin NAME | --example NAME] [-- ARGS...]")]
struct CargoArgs {
    #[command(flatten)]
    build: BuildOptions,
    #[command(flatten)]
    job: JobOptions,
    #[command(flatten)]
    program: ProgramOptions,
    /// The arguments of the program
    #[arg(last = true)]
    arguments: Vec<OsString>,
}

/// What cargo is told; the names are cargo's.
#[derive(Args, Debug)]
#[command(next_help_heading = "Build options")]
struct BuildOptions {
    /// The example to build and run
    #[arg(long, value_name = "NAME", conflicts_with = "bin")]
    example: Option<String>,
    /// The binary to build and run
    #[arg(long, value_name = "NAME")]
    bin: Option<String>,
    /// The package that it is in
    #[arg(short, long, value_name = "SPEC")]
    package: Option<String>,
    /// Build with optimisations
    #[arg(short, long)]
    release: bool,
    /// Build with this profile
    #[arg(long, value_name = "NAME", conflicts_with = "release")]
    profile: Option<String>,
    /// Features to activate
    #[arg(short = 'F', long, value_name = "LIST")]
    features: Vec<String>,
    /// Activate all features
    #[arg(long)]
    all_features: bool,
    /// Do not activate the default features
    #[arg(long)]
    no_default_features: bool,
    /// Path of the Cargo.toml
    #[arg(long, value_name = "PATH")]
    manifest_path: Option<PathBuf>,
    /// Cargo.lock must not change
    #[arg(long)]
    locked: bool,
    /// Do not reach for the network
    #[arg(long)]
    offline: bool,
    /// Print only warnings and errors of the build
    #[arg(short, long)]
    quiet: bool,
}

/// Reads the arguments, builds, and gives the job to run.
pub(crate) fn parse(mut arguments: Vec<OsString>) -> Result<Request, Error> {
    // `cargo spmdrun ..` runs `cargo-spmdrun spmdrun ..`.
    if arguments.first().is_some_and(|first| first == "spmdrun") {
        arguments.remove(0);
    }
    let words = std::iter::once(OsString::from("cargo spmdrun")).chain(arguments);
    let cargo = match CargoArgs::try_parse_from(words) {
        Ok(cargo) => cargo,
        Err(error) => return args::refuse(error, ""),
    };
    if cargo.job.doctor {
        return Ok(Request::Doctor(Vec::new()));
    }
    let program = build(&cargo.build)?;
    let mut command = vec![program.into_os_string()];
    command.extend(cargo.arguments);
    let section = Section { options: cargo.program, command };
    Ok(Request::Run(Box::new(cargo.job), vec![section]))
}

impl BuildOptions {
    fn arguments(&self) -> Vec<OsString> {
        let mut list: Vec<OsString> =
            vec!["build".into(), "--message-format=json-render-diagnostics".into()];
        let mut flag = |given: bool, name: &str| {
            if given {
                list.push(name.into());
            }
        };
        flag(self.release, "--release");
        flag(self.all_features, "--all-features");
        flag(self.no_default_features, "--no-default-features");
        flag(self.locked, "--locked");
        flag(self.offline, "--offline");
        flag(self.quiet, "--quiet");
        let named = [
            ("--example", &self.example),
            ("--bin", &self.bin),
            ("--package", &self.package),
            ("--profile", &self.profile),
        ];
        for (name, value) in named {
            list.extend(value.iter().flat_map(|value| [name.into(), value.into()]));
        }
        for features in &self.features {
            list.extend(["--features".into(), features.into()]);
        }
        if let Some(path) = &self.manifest_path {
            list.extend(["--manifest-path".into(), path.into()]);
        }
        list
    }
}

/// Builds, with cargo's own words on standard error, and gives the one executable.
fn build(options: &BuildOptions) -> Result<PathBuf, Error> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let failed = |error| Error::System {
        action: format!("run {}", cargo.display()),
        source: error,
        remedy: "; install Rust's cargo, or put it in PATH",
    };
    let mut child = Command::new(&cargo)
        .args(options.arguments())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let mut found = Vec::new();
    if let Some(messages) = child.stdout.take() {
        for line in BufReader::new(messages).lines() {
            found.extend(executable(&line.map_err(failed)?));
        }
    }
    if !child.wait().map_err(failed)?.success() {
        return Err(Error::Build("the build failed; cargo says why above".into()));
    }
    match &found[..] {
        [one] => Ok(one.clone()),
        [] => Err(Error::Usage(
            "the build gave no program to run; name one with --bin or --example".into(),
        )),
        several => Err(Error::Usage(format!(
            "the build gave {} programs ({}); choose one with --bin",
            several.len(),
            several
                .iter()
                .filter_map(|path| path.file_stem()?.to_str())
                .collect::<Vec<_>>()
                .join(", ")
        ))),
    }
}

/// The path in one of cargo's messages, where it tells of a program.
fn executable(message: &str) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(message).ok()?;
    if message["reason"] != "compiler-artifact" {
        return None;
    }
    message["executable"].as_str().map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_programs_are_found() {
        let program = r#"{"reason":"compiler-artifact","executable":"/t/heat"}"#;
        assert_eq!(executable(program), Some(PathBuf::from("/t/heat")));
        for other in
            [r#"{"reason":"compiler-artifact","executable":null}"#, r#"{"reason":"x"}"#, "nonsense"]
        {
            assert_eq!(executable(other), None);
        }
    }
}
