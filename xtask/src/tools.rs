//! Running programs, and where things are.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use crate::count::{self, Count};

/// The root of the repository.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this crate lies in the root's folder")
}

/// The folder in which cargo puts the programs of a profile, `debug` or `release`: beside this
/// program's own, wherever cargo is told to build.
pub(crate) fn built(profile: &str) -> PathBuf {
    let this = std::env::current_exe().expect("a program knows its own path");
    let debug = this.parent().expect("a program lies in a folder");
    debug.with_file_name(profile)
}

/// A command in the root, free of the settings of whoever runs it.
pub(crate) fn command(program: impl AsRef<std::ffi::OsStr>, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root()).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        let ours = name.to_string_lossy().starts_with("SPMD_");
        if ours && !name.to_string_lossy().starts_with("SPMD_TEST_") {
            command.env_remove(name);
        }
    }
    command
}

/// `cargo` with these arguments, the one that runs this program.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = command(std::env::var_os("CARGO").unwrap_or("cargo".into()), arguments);
    // Of the package whose program this is; build scripts would see other values than under a
    // cargo that was started by hand, and be run again.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(name);
        }
    }
    command
}

/// Has cargo leave out the optimisation of tests that take longer to compile with it than they run.
pub(crate) fn unoptimised(command: &mut Command) {
    let plain = ["dev", "test"].map(|profile| format!("profile.{profile}.opt-level=0"));
    command.args(plain.iter().flat_map(|setting| ["--config", setting]));
}

/// What a command wrote to its standard output; `None` if it could not be run, or failed.
pub(crate) fn output(mut command: Command) -> Option<String> {
    let output = command.stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    output.status.success().then_some(text)
}

/// The triple of this machine.
pub(crate) fn host() -> Option<String> {
    let text = output(command("rustc", &["-vV"]))?;
    text.lines().find_map(|line| line.strip_prefix("host: ")).map(str::to_owned)
}

/// How a command went.
pub(crate) struct Ran {
    /// What is wrong; `None` if it succeeded.
    pub(crate) wrong: Option<String>,
    /// The tests that it told of.
    pub(crate) count: Count,
    /// All that it wrote.
    pub(crate) text: String,
}

/// What a command has told so far.
#[derive(Default)]
struct Seen {
    count: Count,
    /// Tests that had nothing to test.
    idle: usize,
    /// The tests that have failed, in order.
    failed: Vec<String>,
    text: String,
}

/// Runs a command, showing what it writes.
pub(crate) fn watch(mut command: Command) -> Ran {
    let program = command.get_program().to_string_lossy().into_owned();
    let mut child = match command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn() {
        Ok(child) => child,
        Err(error) => {
            let wrong = Some(format!("{program} cannot be run: {error}"));
            return Ran { wrong, count: Count::default(), text: String::new() };
        }
    };
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let seen = Mutex::new(Seen::default());
    std::thread::scope(|scope| {
        scope.spawn(|| show(stderr.expect("piped"), &seen));
        show(stdout.expect("piped"), &seen);
    });
    let status = child.wait();
    let Seen { mut count, idle, failed, text } =
        seen.into_inner().unwrap_or_else(|poison| poison.into_inner());
    count.skip(idle);
    let names = failed.iter().map(|name| format!("; {name}")).collect::<String>();
    let wrong = match status {
        Ok(status) if status.success() => None,
        Ok(status) => Some(format!("{program}: {status}{names}")),
        Err(error) => Some(format!("{program}: {error}")),
    };
    Ran { wrong, count, text }
}

fn show(from: impl Read, seen: &Mutex<Seen>) {
    for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        // Nobody may be reading any more: the tests go on.
        let _ = writeln!(std::io::stdout(), "{line}");
        let mut seen = seen.lock().unwrap_or_else(|poison| poison.into_inner());
        seen.count += Count::of_line(&line);
        seen.idle += usize::from(count::is_of_idle_test(&line));
        if let Some(name) =
            count::failed_test(&line).filter(|name| !seen.failed.iter().any(|it| it == name))
        {
            seen.failed.push(name.to_owned());
        }
        seen.text.push_str(&line);
        seen.text.push('\n');
    }
}
