//! Output that nobody takes or that cannot be written, and input that nobody reads: it holds up
//! neither the launcher nor more memory than is said, and is no success.

#![cfg(target_os = "linux")]

mod support;

use std::fs::{self, File, OpenOptions};
use std::io::{self, PipeReader, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use support::{PATIENCE, finish, spmdrun, state, wait_until};

/// Rank 0 fills standard error, which nobody reads; the others sleep.
const FLOOD: &str = "if [ $SPMD_RANK = 0 ]; then exec yes >&2; else exec sleep 777; fi";

/// A job whose standard error nobody reads, when that is full. The other end stays open.
fn with_stuck_stderr(arguments: &[&str], script: &str) -> (Child, PipeReader) {
    let (reader, writer) = io::pipe().unwrap();
    let mut command = spmdrun(&[arguments, &["sh", "-c", script]].concat());
    let child = command.stdout(Stdio::null()).stderr(writer).spawn().expect("spmdrun starts");
    wait_until("the pipe is full", || rustix::io::ioctl_fionread(&reader).unwrap() >= 60_000);
    (child, reader)
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

fn ended(child: &mut Child) -> ExitStatus {
    let mut status = None;
    wait_until("the launcher has ended", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap()
}

#[test]
fn the_time_limit_needs_no_reader() {
    let limits = ["-n", "2", "--timeout", "1", "--grace", "200ms"];
    let (mut child, _unread) = with_stuck_stderr(&limits, FLOOD);
    assert_eq!(ended(&mut child).code(), Some(124));
}

#[test]
fn signals_need_no_reader() {
    for (number, times, code) in [(Signal::TERM, 1, 143), (Signal::INT, 2, 130)] {
        let script = format!("trap '' INT; {FLOOD}");
        let (mut child, _unread) = with_stuck_stderr(&["-n", "2", "--grace", "200ms"], &script);
        for _ in 0..times {
            signal(&child, number);
            std::thread::sleep(Duration::from_millis(100));
        }
        assert_eq!(ended(&mut child).code(), Some(code));
    }
}

#[test]
fn signals_need_no_reader_whatever_the_ranks_end_with() {
    let own = |code| format!("trap 'exit {code}' TERM; yes >&2 & wait; wait");
    let survived = "[ $SPMD_RANK = 1 ] || exec yes >&2; trap 'exit 0' TERM; sleep 777 & wait";
    let failed = "trap '' INT TERM; [ $SPMD_RANK = 1 ] || { sleep 0.2; exit 3; }; exec yes >&2";
    for (options, script, number, times, code) in [
        (&[][..], own(0).as_str(), Signal::TERM, 1, 143),
        (&[], own(1).as_str(), Signal::TERM, 1, 1),
        (&["--on-failure", "continue"], survived, Signal::TERM, 1, 143),
        (&[], failed, Signal::INT, 2, 3),
    ] {
        let options = [&["-n", "2", "--grace", "1s"], options].concat();
        let (mut child, _unread) = with_stuck_stderr(&options, script);
        // The rank that fails by itself has failed.
        std::thread::sleep(Duration::from_millis(500));
        for _ in 0..times {
            signal(&child, number);
            std::thread::sleep(Duration::from_millis(100));
        }
        assert_eq!(ended(&mut child).code(), Some(code), "{script}");
    }
}

#[test]
fn reports_need_no_reader_and_other_output_goes_on() {
    let script = "if [ $SPMD_RANK = 0 ]; then exec yes >&2; fi; exec seq 100000";
    let (reader, writer) = io::pipe().unwrap();
    let mut command = spmdrun(&["-n", "2", "--grace", "100ms", "sh", "-c", script]);
    let mut child = command.stdout(Stdio::piped()).stderr(writer).spawn().unwrap();
    wait_until("it is full", || rustix::io::ioctl_fionread(&reader).unwrap() >= 60_000);
    (0..50).for_each(|_| signal(&child, Signal::QUIT));
    let mut out = io::BufReader::new(child.stdout.take().unwrap());
    let lines = io::BufRead::lines(&mut out).take(100_000);
    assert_eq!(lines.last().unwrap().unwrap(), "100000");
    signal(&child, Signal::TERM);
    assert_eq!(ended(&mut child).code(), Some(143));
}

#[test]
fn a_reader_that_has_stopped_does_not_keep_a_job_that_is_told_to_end() {
    let mut child = spmdrun(&["-n", "2", "--timeout", "300ms", "--grace", "100ms", "yes"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("spmdrun starts");
    // Its output is open until here, and nobody reads it.
    let unread = child.stdout.take();
    assert_eq!(ended(&mut child).code(), Some(124));
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("the last of the output is lost"), "{said}");
    assert!(said.lines().last().unwrap().contains("time limit of 300ms"), "{said}");
    drop(unread);
}

#[test]
fn a_signal_ends_the_wait_for_a_reader_and_is_no_success() {
    let mut child = spmdrun(&["-n", "2", "seq", "50000"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("spmdrun starts");
    let unread = child.stdout.take();
    wait_until("the ranks have ended", || {
        let children = format!("/proc/{0}/task/{0}/children", child.id());
        fs::read_to_string(children).is_ok_and(|list| list.trim().is_empty())
    });
    std::thread::sleep(Duration::from_millis(200));
    assert!(child.try_wait().unwrap().is_none(), "it waits for the reader");
    // Ctrl-Z stops it even then, or a shell would not take the terminal back.
    signal(&child, Signal::TSTP);
    let pid = child.id() as i32;
    wait_until("it has stopped", || state(pid) == 'T');
    signal(&child, Signal::CONT);
    wait_until("it goes on", || state(pid) != 'T');
    signal(&child, Signal::HUP);
    assert_eq!(ended(&mut child).code(), Some(129));
    drop(unread);
}

#[test]
fn an_output_that_does_not_block_gets_every_line() {
    let (mut reader, writer) = io::pipe().unwrap();
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    let mut command = spmdrun(&["-n", "2", "seq", "100000"]);
    let mut child = command.stdout(writer).spawn().expect("spmdrun starts");
    drop(command);
    std::thread::sleep(Duration::from_millis(300));
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!((ended(&mut child).code(), text.lines().count()), (Some(0), 200_000));
}

fn full() -> File {
    OpenOptions::new().write(true).open("/dev/full").unwrap()
}

#[test]
fn a_full_disk_is_no_success() {
    let full_disk = |arguments: &[&str]| {
        let output = spmdrun(arguments).stdout(full()).stderr(Stdio::piped()).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, said) = full_disk(&["-n", "2", "echo", "x"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("cannot write standard output: No space left"), "{said}");
    // The job goes on, and its own failure comes first.
    let (code, said) = full_disk(&["-n", "2", "sh", "-c", "seq 100000; exit 7"]);
    assert_eq!(code, Some(7), "{said}");
    for arguments in [&["--help"][..], &["--doctor"], &["-n", "2", "--dry-run", "true"]] {
        assert_eq!(full_disk(arguments).0, Some(1), "{arguments:?}");
    }
    let unsaid = spmdrun(&["-n", "2", "sh", "-c", "echo x >&2"]).stderr(full()).status();
    assert_eq!(unsaid.unwrap().code(), Some(1));
}

#[test]
fn a_file_of_a_rank_on_a_full_disk_is_no_success() {
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/dev/full", dir.path().join("rank-1.stdout")).unwrap();
    let at = dir.path().to_str().unwrap();
    let ran = support::run(&["-n", "2", "--output-dir", at, "sh", "-c", "seq 10000"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains("cannot write the output of rank 1: No space"), "{ran:?}");
    assert_eq!(
        fs::read_to_string(dir.path().join("rank-0.stdout")).unwrap().lines().count(),
        10_000
    );
}

#[test]
fn the_limit_of_file_sizes_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let spmdrun = env!("CARGO_BIN_EXE_spmdrun");
    let limited = |command: &str| {
        finish(Command::new("sh").args(["-c", &format!("ulimit -f 8; exec {spmdrun} {command}")]))
    };
    let arena = limited("-n 2 true");
    assert_eq!((arena.code, arena.err.lines().count()), (Some(1), 1), "{arena:?}");
    assert!(arena.err.contains("ulimit -f unlimited"), "{arena:?}");
    let doctor = limited("--doctor");
    assert!(doctor.code == Some(1) && doctor.out.contains("ulimit -f"), "{doctor:?}");
    let log = format!("-n 2 --as threads --output-dir {} seq 100000", dir.path().display());
    let log = limited(&log);
    assert!(log.code == Some(1) && log.err.contains("File too large"), "{log:?}");
}

/// Bytes of memory that the process has to itself.
fn memory(child: &Child) -> usize {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    let kib: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib << 10
}

#[test]
fn output_that_nobody_reads_is_bounded() {
    // Empty lines, and one without an end from each rank.
    for (script, most) in [("exec yes ''", 24 << 20), ("exec tr '\\0' x </dev/zero", 60 << 20)] {
        let mut command = spmdrun(&["-n", "128", "--grace", "100ms", "--tag", "sh", "-c", script]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let unread = child.stdout.take().unwrap();
        wait_until("it is full", || rustix::io::ioctl_fionread(&unread).unwrap() >= 60_000);
        std::thread::sleep(Duration::from_millis(500));
        assert!(memory(&child) < most, "{script}: {}", memory(&child));
        signal(&child, Signal::TERM);
        assert_eq!(ended(&mut child).code(), Some(143));
    }
}

#[test]
fn input_that_a_rank_does_not_read_is_bounded() {
    let script = "if [ $SPMD_RANK = 0 ]; then exec sleep 1000; fi; wc -c";
    let mut child = spmdrun(&["-n", "2", "--stdin", "all", "sh", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("spmdrun starts");
    let mut input = child.stdin.take().unwrap();
    rustix::io::ioctl_fionbio(&input, true).unwrap();
    let (mut given, mut since) = (0, Instant::now());
    while since.elapsed() < Duration::from_millis(500) {
        match input.write(&[b'x'; 1 << 16]) {
            Ok(count) => (given, since) = (given + count, Instant::now()),
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        assert!(given < 1 << 30, "it takes all that comes");
    }
    assert!(given >= 16 << 20, "{given}");
    assert!(memory(&child) < 64 << 20, "{}", memory(&child));
    // Once the sleeper is gone, the other one gets the rest.
    signal(&child, Signal::TERM);
    assert!(ended(&mut child).code().is_some());
    assert!(since.elapsed() < PATIENCE);
}
