//! Signals to the launcher, and its own death.

#![cfg(target_os = "linux")]

mod support;

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use support::{Job, state, wait_until};

const SLEEP: &str = "echo ready; exec sleep 1000";

#[test]
fn ending_signals_are_passed_on() {
    for (signal, number) in [(Signal::INT, 2), (Signal::TERM, 15), (Signal::HUP, 1)] {
        let job = Job::start(&["-n", "3", "sh", "-c", SLEEP], 3);
        job.signal(signal);
        let ran = job.end();
        assert_eq!(ran.code, Some(128 + number), "{ran:?}");
        let words = format!("the job was ended by signal {number}");
        assert!(ran.last_line().contains(&words), "{ran:?}");
    }
}

#[test]
fn user_signals_reach_every_rank() {
    for (signal, name) in [(Signal::USR1, "USR1"), (Signal::USR2, "USR2")] {
        let wait =
            format!("trap 'echo got it; exit 0' {name}; echo ready; while :; do sleep 0.02; done");
        let job = Job::start(&["-n", "2", "sh", "-c", &wait], 2);
        job.signal(signal);
        let ran = job.end();
        assert_eq!((ran.code, ran.out.as_str()), (Some(0), "got it\ngot it\n"), "{ran:?}");
    }
}

#[test]
fn a_second_interrupt_kills() {
    let stubborn = "trap 'echo interrupted' INT TERM; echo ready; while :; do sleep 0.02; done";
    let mut job = Job::start(&["-n", "2", "sh", "-c", stubborn], 2);
    job.signal(Signal::INT);
    assert_eq!(job.line(), "interrupted");
    assert_eq!(job.line(), "interrupted");
    job.signal(Signal::INT);
    let ran = job.end();
    assert_eq!(ran.code, Some(130), "{ran:?}");
}

#[test]
fn a_second_sigterm_kills() {
    let stubborn = "trap 'echo told' TERM; echo ready; while :; do sleep 0.02; done";
    let mut job = Job::start(&["-n", "2", "--grace", "1h", "sh", "-c", stubborn], 2);
    job.signal(Signal::TERM);
    assert_eq!((job.line().as_str(), job.line().as_str()), ("told", "told"));
    job.signal(Signal::TERM);
    let ran = job.end();
    assert_eq!(ran.code, Some(143), "{ran:?}");
    assert!(ran.last_line().contains("ended by signal 15"), "{ran:?}");
}

#[test]
fn the_grace_after_sigterm_kills() {
    let stubborn = "trap '' TERM; echo ready; while :; do sleep 0.02; done";
    let job = Job::start(&["-n", "2", "--grace", "200ms", "sh", "-c", stubborn], 2);
    job.signal(Signal::TERM);
    assert_eq!(job.end().code, Some(143));
}

#[test]
fn an_interrupt_after_sigterm_kills_but_not_the_reverse() {
    let stubborn = "trap 'echo told' INT TERM; echo ready; while :; do sleep 0.02; done";
    let mut job = Job::start(&["-n", "1", "--tag", "--grace", "1h", "sh", "-c", stubborn], 1);
    job.signal(Signal::INT);
    assert_eq!(job.line(), "[0] told");
    job.signal(Signal::TERM);
    assert_eq!(job.line(), "[0] told");
    job.signal(Signal::INT);
    assert_eq!(job.end().code, Some(130));
}

#[test]
#[ignore = "the program of the next test"]
fn go_to_the_group_of_the_launcher() {
    use rustix::process::{getpgid, getppid, setpgid};
    if std::env::var_os("SPMD_RANK").is_some() {
        let group = getpgid(getppid()).unwrap();
        setpgid(None, Some(group)).unwrap();
        println!("ready");
        std::thread::sleep(support::PATIENCE);
    }
}

#[test]
fn a_rank_that_leaves_its_group_is_ended() {
    let program = std::env::current_exe().unwrap();
    let test = ["--ignored", "--exact", "--nocapture", "go_to_the_group_of_the_launcher"];
    let arguments = [&["-n", "2", "--grace", "0", program.to_str().unwrap()], &test[..]].concat();
    // In a group of its own, which the signals of its ranks must not reach.
    let mut command = support::spmdrun(&arguments);
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut job = Job::of(command, 0);
    while !job.line().ends_with("ready") {}
    while !job.line().ends_with("ready") {}
    job.signal(Signal::TERM);
    let ran = job.end();
    assert_eq!(ran.code, Some(143), "{ran:?}");
}

#[test]
fn quit_reports_and_ends_nothing() {
    let wait = "trap 'exit 0' USR1; echo ready; while :; do sleep 0.02; done";
    for mode in ["processes", "threads"] {
        let processes = if mode == "processes" { 3 } else { 1 };
        let job = Job::start(&["-n", "3", "--as", mode, "sh", "-c", wait], processes);
        job.signal(Signal::QUIT);
        std::thread::sleep(Duration::from_millis(100));
        job.signal(Signal::USR1);
        let ran = job.end();
        let told = ran.err.lines().filter(|line| line.contains("has not entered the world"));
        assert_eq!((ran.code, told.count()), (Some(0), processes), "{ran:?}");
        assert_eq!(ran.err.matches("(pid ").count(), processes, "{ran:?}");
    }
}

#[test]
fn stopping_and_going_on() {
    let folder = tempfile::tempdir().unwrap();
    let go_on = folder.path().join("go-on");
    // It starts nothing meanwhile: a shell is not stopped while what it starts is, by vfork.
    let script = "echo $$; until [ -e \"$0\" ]; do :; done; echo went on";
    let mut job =
        Job::start(&["-n", "2", "--timeout", "2h", "sh", "-c", script, go_on.to_str().unwrap()], 0);
    let mut pids: Vec<i32> = (0..2).map(|_| job.line().parse().unwrap()).collect();
    pids.push(job.pid().as_raw_nonzero().get());
    job.signal(Signal::TSTP);
    wait_until("all have stopped", || pids.iter().all(|&pid| state(pid) == 'T'));
    job.signal(Signal::CONT);
    std::fs::write(&go_on, "").unwrap();
    let ran = job.end();
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "went on\nwent on\n"), "{ran:?}");
}

#[test]
fn what_is_typed_for_others_stops_no_launcher_in_the_background() {
    // A shell with job control, in a terminal: Ctrl-Z brings it from the job to its next line.
    let shell = "set -m; $LAUNCHER -n 2 --timeout 1 sh -c 'echo ready; exec sleep 1000'; bg; \
                 echo others; wait";
    let mut child = Command::new("script")
        .args(["-qec", shell, "/dev/null"])
        .env("LAUNCHER", env!("CARGO_BIN_EXE_spmdrun"))
        .env("SHELL", "/bin/sh")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script starts");
    let mut keys = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut shown = |word: &str| lines.any(|line| line.contains(word));
    assert!(shown("ready") && shown("ready"));
    keys.write_all(b"\x1a").unwrap();
    assert!(shown("others"));
    keys.write_all(b"x\n").unwrap();
    assert!(shown("time limit of 1s"), "it has ended otherwise");
    drop(keys);
    child.wait().unwrap();
}

#[test]
fn ranks_do_not_outlive_the_launcher() {
    let family = "sleep 1000 & echo ready; sleep 1000";
    let job = Job::start(&["-n", "3", "sh", "-c", family], 3);
    assert!(job.processes().len() >= 8, "ranks, their children, the launcher and its watchdog");
    job.signal(Signal::KILL);
    assert_eq!(job.end().code, None);
}

#[test]
fn a_launcher_killed_at_any_moment_leaves_nothing() {
    for step in 0..40 {
        let job = Job::start(&["-n", "4", "sh", "-c", "sleep 1000 & sleep 1000"], 0);
        std::thread::sleep(Duration::from_micros(step * 500));
        job.signal(Signal::KILL);
        job.end();
    }
}

#[test]
fn a_job_inside_a_rank_dies_with_the_outer_launcher() {
    let inner = env!("CARGO_BIN_EXE_spmdrun");
    let job = Job::start(&["-n", "2", inner, "-n", "2", "sh", "-c", SLEEP], 4);
    job.signal(Signal::KILL);
    job.end();
}

#[test]
fn the_watchdog_outlives_the_terminals_signals_and_the_job_outlives_it() {
    let job = Job::start(&["-n", "2", "sh", "-c", SLEEP], 2);
    let is_watchdog = |pid: &i32| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        name.trim() == "spmd-watchdog"
    };
    let mut found = Vec::new();
    wait_until("the watchdog is up", || {
        found = job.processes().into_iter().filter(is_watchdog).collect();
        found.len() == 1
    });
    let pid = rustix::process::Pid::from_raw(found[0]).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT] {
        rustix::process::kill_process(pid, signal).unwrap();
    }
    std::thread::sleep(Duration::from_millis(50));
    assert!(!"Z ".contains(state(found[0])), "the watchdog has ended");
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    assert!(job.processes().len() > 2, "the ranks go on without it");
    job.signal(Signal::TERM);
    assert_eq!(job.end().code, Some(143));
}
