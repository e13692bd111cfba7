//! Our own programs that are measured: the launcher and spmd-perf.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::rows::{Group, Side};
use crate::tools::{self, built, cargo};

/// Our programs, as they were built.
#[derive(Clone)]
pub(super) struct Programs {
    /// The folder that they are in.
    pub(super) release: PathBuf,
}

impl Programs {
    /// Builds those of this checkout.
    pub(super) fn build() -> Result<Programs, String> {
        let mut build = cargo(&["build", "--release", "--package", "spmd-launcher", "--package"]);
        build.args(["spmd-perf", "--bin", "spmdrun", "--bin", "spmd-perf"]);
        let release = built("release");
        tools::watch(build).wrong.map_or_else(|| Ok(Programs { release }), Err)
    }

    /// The target folder that they are in.
    pub(super) fn target(&self) -> &Path {
        self.release.parent().unwrap_or(&self.release)
    }

    /// The command that measures rows of a group; without rows, the start of an empty world.
    pub(super) fn ours(&self, side: Side, group: Group, rows: &[String]) -> Command {
        let mut command = tools::command(self.release.join("spmdrun"), &["-n", group.ranks()]);
        command.args(["--as", side.mode()]);
        if group == Group::Two {
            command.args(["--bind", "core"]);
        }
        command.arg(self.release.join("spmd-perf"));
        if rows.is_empty() {
            command.arg("empty");
        } else {
            command.args(measuring(side.memory(), rows));
        }
        command
    }
}

/// The arguments by which spmd-perf measures these rows.
pub(super) fn measuring<'a>(memory: &'a str, rows: &'a [String]) -> impl Iterator<Item = &'a str> {
    ["--json", "--memory", memory].into_iter().chain(rows.iter().flat_map(|row| ["--row", row]))
}

/// How ours is started, for the report.
pub(super) fn our_settings(side: Side, group: Group) -> String {
    let bind = if group == Group::Two { " --bind core" } else { "" };
    format!(
        "spmdrun -n {} --as {}{bind} spmd-perf --memory {}",
        group.ranks(),
        side.mode(),
        side.memory()
    )
}
