//! Ranks under a debugger: without one, with gdb, and with gdb in a window of tmux.

#![cfg(target_os = "linux")]

mod support;

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use support::{Job, finish, spmdrun, wait_until};
use tempfile::TempDir;

/// Each rank says that it is there.
const SCRIPT: [&str; 3] = ["sh", "-c", "echo $SPMD_RANK is there"];

/// Without a terminal for the debugger.
fn debugged(arguments: &[&str], program: &[&str]) -> Command {
    let mut command = spmdrun(&[arguments, program].concat());
    for name in ["TMUX", "DISPLAY", "WAYLAND_DISPLAY"] {
        command.env_remove(name);
    }
    command
}

/// The process of the job that waits for a debugger.
fn waiting(job: &Job) -> i32 {
    let is_waiting = |pid: &i32| {
        let cmdline = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        cmdline.split(|&byte| byte == 0).any(|word| word == b"--debugged")
    };
    let mut found = None;
    wait_until("a rank waits for a debugger", || {
        found = job.processes().into_iter().find(is_waiting);
        found.is_some()
    });
    found.expect("it was found")
}

/// Whether there is such a program, which says its version so.
fn there_is(program: &str, version: &str) -> bool {
    let found = Command::new(program).arg(version).stdout(Stdio::null()).status();
    let there = found.is_ok_and(|status| status.success());
    if !there {
        println!("SKIPPED: there is no {program} in PATH (Debian: apt install {program})");
    }
    there
}

#[test]
fn a_debugged_rank_waits_before_its_first_instruction() {
    let mut job = Job::of(debugged(&["-n", "2", "--debug-rank", "1"], &SCRIPT), 0);
    assert_eq!(job.line(), "0 is there");
    let pid = waiting(&job);
    std::thread::sleep(Duration::from_millis(200));
    job.signal(Signal::TERM);
    let ran = job.end();
    assert_eq!((ran.code, ran.out.as_str()), (Some(143), ""), "{ran:?}");
    let told = format!("rank 1 (process {pid}) waits for a debugger");
    assert!(ran.err.contains(&told) && ran.err.contains(&format!("gdb -p {pid} -ex")), "{ran:?}");
}

#[test]
fn a_debugged_rank_dies_with_the_launcher() {
    let job = Job::of(debugged(&["-n", "2", "--debug-rank", "0,1"], &["true"]), 0);
    wait_until("both ranks wait", || job.processes().len() == 4);
    job.signal(Signal::KILL);
    let ran = job.end();
    assert_eq!(ran.code, None, "{ran:?}");
}

#[test]
fn gdb_must_be_there_for_a_window() {
    let tools = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/bin/true", tools.path().join("xterm")).unwrap();
    std::os::unix::fs::symlink("/bin/true", tools.path().join("true")).unwrap();
    let mut command = debugged(&["-n", "1", "--debug-rank", "0"], &["true"]);
    let ran = finish(command.env("PATH", tools.path()).env("DISPLAY", ":0"));
    assert!(ran.code == Some(2) && ran.last_line().contains("gdb is not in PATH"), "{ran:?}");
}

#[test]
fn a_window_that_does_not_open_is_told() {
    let tools = tempfile::tempdir().unwrap();
    for (name, is) in [("xterm", "/bin/false"), ("gdb", "/bin/true"), ("true", "/bin/true")] {
        std::os::unix::fs::symlink(is, tools.path().join(name)).unwrap();
    }
    let mut command = debugged(&["-n", "1", "--debug-rank", "0"], &["true"]);
    command.env("PATH", tools.path()).env("DISPLAY", ":0").env_remove("TERMINAL");
    let job = Job::of(command, 0);
    waiting(&job);
    std::thread::sleep(Duration::from_millis(300));
    job.signal(Signal::TERM);
    let ran = job.end();
    assert!(ran.err.contains("xterm has ended (exit status: 1)"), "{ran:?}");
}

/// gdb stops it at the first instruction of the program; stopped, it alarms nobody, and the job ends
/// as it would without gdb.
#[test]
fn gdb_has_a_rank_and_lets_it_go_on() {
    if !there_is("gdb", "--version") {
        return;
    }
    let mut job = Job::of(debugged(&["-n", "2", "--debug-rank", "1", "--tag"], &SCRIPT), 1);
    let pid = waiting(&job);
    let gdb = Command::new("gdb")
        .args([
            "-q",
            "-batch",
            "-nx",
            "-p",
            &pid.to_string(),
            "-ex",
            "tcatch exec",
            "-ex",
            "continue",
        ])
        .args(["-ex", "shell sleep 1", "-ex", "info program", "-ex", "continue"])
        .stdin(Stdio::null())
        .output()
        .expect("gdb starts");
    let said = String::from_utf8_lossy(&gdb.stdout);
    if !said.contains("is executing new program") {
        let why = String::from_utf8_lossy(&gdb.stderr);
        println!("SKIPPED: gdb cannot attach here: {}", why.lines().last().unwrap_or_default());
        job.signal(Signal::TERM);
        return;
    }
    assert!(said.contains("exited normally"), "{said}");
    assert_eq!(job.line(), "[1] 1 is there");
    assert_eq!(job.end().code, Some(0));
}

/// A server of tmux of its own.
struct Tmux(TempDir);

impl Tmux {
    fn tell(&self, words: &[&str]) -> String {
        let mut command = Command::new("tmux");
        command.args(["-f", "/dev/null"]).env("TMUX_TMPDIR", self.0.path()).env_remove("TMUX");
        let ran = finish(command.args(words));
        assert_eq!(ran.code, Some(0), "{words:?}: {ran:?}");
        ran.out
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        self.tell(&["kill-server"]);
    }
}

#[test]
fn inside_tmux_a_rank_has_a_window() {
    if !there_is("gdb", "--version") || !there_is("tmux", "-V") {
        return;
    }
    let tmux = Tmux(tempfile::tempdir().expect("a temporary folder"));
    let [out, code] = ["out", "code"].map(|name| tmux.0.path().join(name));
    let job = [env!("CARGO_BIN_EXE_spmdrun"), "-n 2 --debug-rank 1", "sh -c 'echo $SPMD_RANK'"];
    let job =
        format!("{} >{}; echo $? >{}; sleep 99", job.join(" "), out.display(), code.display());
    tmux.tell(&["new-session", "-d", "-s", "here", "-x", "120", "-y", "40", &job]);
    let window = "here:rank 1";
    let screen = || tmux.tell(&["capture-pane", "-p", "-t", window]);
    wait_until("there is a window", || tmux.tell(&["list-windows"]).contains("rank 1"));
    let mut last = String::new();
    wait_until("gdb has the rank", || {
        last = screen();
        last.contains("is executing new program") || last.contains("ptrace: ")
    });
    if last.contains("ptrace: ") {
        println!("SKIPPED: gdb cannot attach here");
        return;
    }
    wait_until("gdb has stopped it", || screen().trim_end().ends_with("(gdb)"));
    assert_eq!(fs::read_to_string(&out).expect("made by the shell"), "0\n");
    tmux.tell(&["send-keys", "-t", window, "continue", "Enter"]);
    wait_until("the job has ended", || fs::read_to_string(&code).is_ok_and(|text| text == "0\n"));
    assert_eq!(fs::read_to_string(&out).expect("there"), "0\n1\n");
}
