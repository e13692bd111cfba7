//! Commands that start processes of their own, here and perhaps on other hosts: they end in time,
//! and with them all that they have started here.

use std::fs;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use super::Ran;

/// How long a command may take.
const LONGEST: Duration = Duration::from_secs(280);
/// How long what it has started may outlive it.
const FAREWELL: Duration = Duration::from_secs(5);

/// Runs a command to its end. What it starts is known by the variable `mark`, which has a value
/// that no other process has.
///
/// A panic, if it does not end, or leaves something behind; nothing is left after that either.
pub(super) fn run(command: &mut Command, (mark, value): (&str, &str)) -> Ran {
    let mark = &format!("{mark}={value}");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("the command starts");
    let (ended, end) = mpsc::channel::<()>();
    let (output, late) = thread::scope(|scope| {
        let watch = scope.spawn(move || {
            let late = end.recv_timeout(LONGEST) == Err(RecvTimeoutError::Timeout);
            late.then(|| kill(mark)).is_some()
        });
        let output = child.wait_with_output().expect("our own child");
        drop(ended);
        (output, watch.join().expect("it does not panic"))
    });
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let ran =
        Ran { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) };
    assert!(!late, "{command:?} did not end within {LONGEST:?}\n{}\n{}", ran.out, ran.err);
    let (start, mut left) = (Instant::now(), of(mark));
    while !left.is_empty() && start.elapsed() < FAREWELL {
        thread::sleep(Duration::from_millis(5));
        left = of(mark);
    }
    kill(mark);
    assert!(left.is_empty(), "{command:?} has left {left:?}\n{}\n{}", ran.out, ran.err);
    ran
}

/// The processes that have this variable: number and command line.
fn of(mark: &str) -> Vec<(i32, String)> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let marked = |pid: &i32| {
        let variables = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        variables.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
    };
    let line = |pid: i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        (pid, String::from_utf8_lossy(&line).replace('\0', " "))
    };
    numbers.filter(marked).map(line).collect()
}

fn kill(mark: &str) {
    for (pid, _) in of(mark) {
        // It may just have ended.
        let _ = Command::new("kill").args(["-9", &pid.to_string()]).stderr(Stdio::null()).status();
    }
}
