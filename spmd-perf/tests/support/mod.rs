//! What the tests of `spmd-perf` share: the programs that they start.

#![allow(dead_code, reason = "each test file uses a part of this")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// The program under test.
pub fn perf() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_spmd-perf"))
}

/// `spmdrun`, beside it: cargo builds the programs of this package alone for its tests.
pub fn spmdrun() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let folder = perf().parent().expect("it lies in a folder");
        let profile = match folder.file_name().and_then(|name| name.to_str()) {
            Some("debug") | None => "dev",
            Some(name) => name,
        };
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--package", "spmd-launcher", "--bin", "spmdrun"]);
        cargo.args(["--profile", profile, "--target-dir"]);
        cargo.arg(folder.parent().expect("a profile lies in the target folder"));
        // Of this package: with them, build scripts would run again now, and once more later.
        for (name, _) in std::env::vars() {
            if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
                cargo.env_remove(name);
            }
        }
        let status = cargo.status();
        assert!(status.as_ref().is_ok_and(|status| status.success()), "building: {status:?}");
        folder.join("spmdrun")
    })
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
