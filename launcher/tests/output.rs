//! The ranks' output: whole lines, tags, times, files, and what happens when nobody reads.

#![cfg(target_os = "linux")]

mod support;

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use support::{run, spmdrun};

#[test]
fn bursts_are_never_split() {
    // Every line is written in two pieces by its rank.
    let burst = "i=0; while [ $i -lt 300 ]; do printf \"rank $SPMD_RANK line $i begins, \"; \
                 printf 'and after a while this line also ends\\n'; i=$((i+1)); done";
    let ran = run(&["-n", "8", "--tag", "sh", "-c", burst]);
    let mut next: HashMap<usize, usize> = HashMap::new();
    for line in ran.out.lines() {
        let rank: usize = line[1..2].parse().unwrap();
        let number = next.entry(rank).or_default();
        let expected = format!(
            "[{rank}] rank {rank} line {number} begins, and after a while this line also ends"
        );
        assert_eq!(line, expected);
        *number += 1;
    }
    assert!(next.len() == 8 && next.values().all(|&count| count == 300), "{next:?}");
}

#[test]
fn tags_line_up_and_streams_stay_apart() {
    let ran = run(&["-n", "11", "--tag", "sh", "-c", "echo out; echo err >&2; printf unfinished"]);
    assert!(ran.lines().contains(&"[ 3] out") && ran.lines().contains(&"[10] unfinished"));
    assert_eq!((ran.out.lines().count(), ran.err.lines().count()), (22, 11), "{ran:?}");
    assert!(ran.err.contains("[10] err\n") && !ran.err.contains("out"), "{ran:?}");
}

#[test]
fn timestamps() {
    let ran = run(&["-n", "1", "--timestamps", "--tag", "echo", "x"]);
    let (time, rest) = ran.out.split_once(' ').unwrap();
    assert_eq!(rest, "[0] x\n");
    assert!(time.len() == 12 && time.as_bytes()[2] == b':' && time.as_bytes()[8] == b'.', "{time}");
}

#[test]
fn ranks_of_one_process_are_told_apart() {
    let print =
        r"printf '\0362\036from two\nfrom nobody\n\0360\036from zero\n' ; echo tag $SPMD_TAG";
    let ran = run(&["-n", "3", "--as", "threads", "--tag", "sh", "-c", print]);
    assert_eq!(ran.out, "[2] from two\n[sh] from nobody\n[0] from zero\n[sh] tag 1\n");
    let one = run(&["-n", "3", "--as", "virtual", "--show-ranks", "2", "sh", "-c", print]);
    assert_eq!(one.out, "from two\nfrom nobody\ntag 1\n");
}

#[test]
fn only_some_ranks_are_shown() {
    let ran = run(&["-n", "5", "--show-ranks", "1,3-4", "sh", "-c", "echo $SPMD_RANK"]);
    assert_eq!(ran.lines(), ["1", "3", "4"], "{ran:?}");
}

#[test]
fn a_file_per_process_and_stream() {
    let dir = tempfile::tempdir().unwrap();
    let logs = dir.path().join("new/logs");
    let at = logs.to_str().unwrap();
    let print = "echo out $SPMD_RANK; echo err $SPMD_RANK >&2";
    let ran = run(&["-n", "11", "--output-dir", at, "--show-ranks", "7", "sh", "-c", print]);
    assert_eq!((ran.out.as_str(), ran.err.as_str()), ("out 7\n", "err 7\n"));
    assert_eq!(fs::read_dir(&logs).unwrap().count(), 22);
    assert_eq!(fs::read_to_string(logs.join("rank-03.stdout")).unwrap(), "out 3\n");
    assert_eq!(fs::read_to_string(logs.join("rank-10.stderr")).unwrap(), "err 10\n");

    let quiet = run(&["-n", "2", "--as", "threads", "--output-dir", at, "--tag", "echo", "x"]);
    assert_eq!(quiet.out, "");
    assert_eq!(fs::read_to_string(logs.join("ranks.stdout")).unwrap(), "[echo] x\n");
}

#[test]
fn a_reader_that_goes_ends_the_ranks() {
    let mut child = spmdrun(&["-n", "2", "yes"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("spmdrun starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "y\n");
    assert_eq!(child.wait().unwrap().code(), Some(128 + 13));
}

#[test]
fn a_descendant_that_keeps_a_pipe_is_not_waited_for() {
    let start = Instant::now();
    let ran = run(&["-n", "2", "sh", "-c", "setsid sleep 5 & echo done"]);
    assert_eq!((ran.code, ran.lines()), (Some(0), vec!["done", "done"]));
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
}

#[test]
fn much_output_arrives_whole() {
    let ran = run(&["-n", "3", "sh", "-c", "seq 100000"]);
    assert_eq!(ran.out.lines().count(), 300_000);
    let sum: u64 = ran.out.lines().map(|line| line.parse::<u64>().unwrap()).sum();
    assert_eq!(sum, 3 * 100_000 * 100_001 / 2);
}

#[test]
fn a_reader_that_has_stopped_does_not_keep_a_job_that_is_told_to_end() {
    let mut child = spmdrun(&["-n", "2", "--timeout", "300ms", "--grace", "100ms", "yes"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("spmdrun starts");
    // Its output is open until here, and nobody reads it.
    let pipe = child.stdout.take();
    assert_eq!(child.wait().unwrap().code(), Some(124));
    drop(pipe);
}
