//! What later steps build, built while the tests of an earlier one leave processors idle.

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
        for command in builds.into_iter().filter_map(|build| build()) {
            let _ = behind(&command).status();
        }
    }))
}

impl Builds {
    pub(crate) fn end(self) {
        let _ = self.0.join();
    }
}

/// The same command, on processors that nobody else wants, without a word: at a low priority alone it
/// would keep them for some milliseconds from tests that look at the time.
fn behind(command: &Command) -> Command {
    let mut low = Command::new("chrt");
    low.args(["--idle", "0"]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => low.env(name, value),
            None => low.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        low.current_dir(folder);
    }
    low.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    low
}
