//! Jobs that fail: exit statuses, the last line, and how the other ranks are ended.

#![cfg(target_os = "linux")]

mod support;

use std::time::{Duration, Instant};

use support::{Job, PATIENCE, run, state, wait_until};

/// Rank 1 does this while rank 0 would sleep for long.
fn rank_1_does(what: &str) -> String {
    format!("if [ $SPMD_RANK = 1 ]; then {what}; fi; echo ready; sleep 1000")
}

#[test]
fn the_first_cause_gives_the_status_and_the_last_line() {
    for (what, code, words) in [
        ("exit 7", 7, "rank 1 failed first: its process exited with status 7"),
        ("exit 255", 255, "rank 1 failed first: its process exited with status 255"),
        ("kill -9 $$", 137, "rank 1 failed first: its process was killed by signal 9 (SIGKILL)"),
        (
            "kill -SEGV $$",
            139,
            "rank 1 failed first: its process was killed by signal 11 (SIGSEGV)",
        ),
    ] {
        let start = Instant::now();
        let ran = Job::start(&["-n", "3", "sh", "-c", &rank_1_does(what)], 0).end();
        assert_eq!(ran.code, Some(code), "{ran:?}");
        assert_eq!(ran.last_line(), format!("spmdrun: {words}"), "{ran:?}");
        assert!(start.elapsed() < PATIENCE, "{:?}", start.elapsed());
    }
    let threads = run(&["-n", "4", "--as", "threads", "sh", "-c", "exit 3"]);
    assert_eq!(threads.code, Some(3));
    assert!(
        threads.last_line().contains("the process of ranks 0 to 3 failed first"),
        "{threads:?}"
    );
    assert_eq!(run(&["-n", "2", "true"]).err, "");
}

/// A script whose rank 1 exits with status 4 once the file `$0` is there; the others do `what`.
fn rank_1_fails_when_told(what: &str) -> (tempfile::TempDir, String) {
    let until = "until [ -e \"$0\" ]; do sleep 0.02; done; exit 4";
    let script = format!("if [ $SPMD_RANK = 1 ]; then {until}; fi; {what}");
    (tempfile::tempdir().unwrap(), script)
}

#[test]
fn who_ignores_sigterm_is_killed_after_the_grace() {
    let stubborn = "trap '' TERM; echo ready; while :; do sleep 0.1; done";
    let (folder, job) = rank_1_fails_when_told(stubborn);
    let go_on = folder.path().join("go-on");
    let script = ["sh", "-c", &job, go_on.to_str().unwrap()];
    let job = Job::start(&[&["-n", "3", "--grace", "300ms"], &script[..]].concat(), 2);
    let start = Instant::now();
    std::fs::write(&go_on, "").unwrap();
    let ran = job.end();
    assert_eq!(ran.code, Some(4), "{ran:?}");
    assert!(start.elapsed() > Duration::from_millis(300), "{:?}", start.elapsed());
}

#[test]
fn who_heeds_sigterm_may_clean_up() {
    let tidy = "trap 'echo cleaned up; exit 0' TERM; echo ready; while :; do sleep 0.05; done";
    let (folder, job) = rank_1_fails_when_told(tidy);
    let go_on = folder.path().join("go-on");
    let script = ["sh", "-c", &job, go_on.to_str().unwrap()];
    let job = Job::start(&[&["-n", "2", "--grace", "10"], &script[..]].concat(), 1);
    std::fs::write(&go_on, "").unwrap();
    let ran = job.end();
    assert_eq!((ran.code, ran.out.as_str()), (Some(4), "cleaned up\n"), "{ran:?}");
}

#[test]
fn survivors_may_go_on() {
    let job = "if [ $SPMD_RANK = 1 ]; then kill -9 $$; fi; sleep 0.3; echo finished";
    let ran = run(&["-n", "3", "--on-failure", "continue", "sh", "-c", job]);
    assert_eq!((ran.code, ran.lines()), (Some(0), vec!["finished", "finished"]), "{ran:?}");
    assert!(ran.last_line().contains("rank 1 failed first"), "{ran:?}");
    assert!(ran.last_line().contains("2 of 3 ranks finished"), "{ran:?}");
    let none = run(&["-n", "2", "--on-failure", "continue", "sh", "-c", "exit 5"]);
    assert_eq!(none.code, Some(5), "{none:?}");
}

#[test]
fn the_time_limit() {
    let ran = Job::start(&["-n", "2", "--timeout", "300ms", "sleep", "1000"], 0).end();
    assert_eq!(ran.code, Some(124), "{ran:?}");
    assert!(ran.err.contains("rank 1 (pid "), "{ran:?}");
    assert!(ran.last_line().contains("time limit of 300ms"), "{ran:?}");
    assert_eq!(run(&["-n", "2", "--timeout", "1h", "true"]).code, Some(0));
}

#[test]
fn a_stopped_rank_meets_the_time_limit() {
    let stop = rank_1_does("kill -STOP $$");
    let ran =
        Job::start(&["-n", "2", "--timeout", "0.5", "--grace", "0.1", "sh", "-c", &stop], 0).end();
    assert_eq!(ran.code, Some(124), "{ran:?}");
}

#[test]
fn what_a_rank_leaves_in_its_group_is_ended() {
    let ran = Job::start(&["-n", "2", "sh", "-c", "sleep 1000 & sleep 1000 & exit 0"], 0).end();
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

#[test]
fn zombies_keep_their_numbers_until_the_end() {
    let job = "echo $$; if [ $SPMD_RANK = 1 ]; then sleep 1000; fi";
    let mut job = Job::start(&["-n", "2", "sh", "-c", job], 0);
    let pids: Vec<i32> = (0..2).map(|_| job.line().parse().unwrap()).collect();
    wait_until("one is a zombie", || pids.iter().any(|&pid| state(pid) == 'Z'));
    assert!(pids.iter().any(|&pid| state(pid) != 'Z'));
    job.signal(rustix::process::Signal::TERM);
    assert_eq!(job.end().code, Some(128 + 15));
    assert!(pids.iter().all(|&pid| state(pid) != 'Z'));
}
