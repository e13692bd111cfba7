//! What later steps need, built and fetched while the tests of an earlier one leave processors idle.

use std::fs;
use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle};

/// Builds that are under way.
pub(crate) struct Builds(JoinHandle<()>);

/// Runs these commands, each of which is asked for when its turn has come, one after the other, behind
/// everything else that wants a processor.
///
/// What goes wrong here is not told: the step builds what is missing, and tells why it cannot. One
/// that comes to its turn meanwhile waits at cargo's lock of the folder.
pub(crate) fn build(builds: Vec<fn() -> Option<Command>>) -> Builds {
    Builds(thread::spawn(move || {
        // Beside tests that look at the time, nothing is built otherwise.
        let builds = if step_behind() { builds } else { Vec::new() };
        for mut command in builds.into_iter().filter_map(|build| build()) {
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let _ = command.status();
        }
    }))
}

impl Builds {
    pub(crate) fn end(self) {
        let _ = self.0.join();
    }
}

/// From now on this thread, and what it starts, has processors that nobody else wants: at a low priority
/// alone it would keep them for some milliseconds from tests that look at the time. Whether that is so.
fn step_behind() -> bool {
    let this = fs::read_link("/proc/thread-self").unwrap_or_default();
    let Some(number) = this.file_name() else { return false };
    let behind = Command::new("chrt").args(["--idle", "--pid", "0"]).arg(number).status();
    behind.is_ok_and(|status| status.success())
}
