//! What the tests of `spmd-perf` share: the programs that they start.

#![allow(dead_code, reason = "each test file uses a part of this")]

#[path = "../../../tests/support/programs.rs"]
mod programs;

use std::path::Path;
use std::process::{Command, Stdio};

/// The program under test.
pub fn perf() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_spmd-perf"))
}

/// `spmdrun`, beside it.
pub fn spmdrun() -> &'static Path {
    programs::spmdrun_path()
}

/// A command free of settings of whoever runs the tests.
pub fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("SPMD_")) {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

pub fn said(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
