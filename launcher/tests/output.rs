//! The ranks' output: whole lines, tags, times, files, unfinished lines.

#![cfg(target_os = "linux")]

mod support;

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use std::time::{Duration, Instant};

use support::{Ran, finish, run, spmdrun};

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
    let path = run(&["-n", "3", "--as", "threads", "--tag", "/bin/echo", "x"]);
    assert_eq!(path.out, "[echo] x\n");
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

/// What the ranks of this script print; `$0` is a file that the test makes when the line of rank 0
/// that ends in a question has arrived, which it waits for without end.
fn with_a_question(arguments: &[&str], script: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let answer = folder.path().join("answer");
    let job = [arguments, &["sh", "-c", script, answer.to_str().unwrap()]].concat();
    let mut child = spmdrun(&job).stdout(Stdio::piped()).spawn().expect("spmdrun starts");
    let mut out = child.stdout.take().unwrap();
    let mut text = Vec::new();
    while !text.ends_with(b"? ") {
        let mut byte = [0];
        out.read_exact(&mut byte).expect("the question comes before the end");
        text.extend(byte);
    }
    fs::write(answer, "").unwrap();
    out.read_to_end(&mut text).unwrap();
    assert!(child.wait().unwrap().success());
    String::from_utf8(text).unwrap()
}

/// Waits for the answer, but not for ever: the question is held back, then.
const UNTIL_ANSWERED: &str = "i=0; until [ -e \"$0\" ] || [ $i = 500 ]; do sleep 0.02; i=$((i+1)); done; \
     [ -e \"$0\" ] || exit 1; ";

#[test]
fn a_question_is_passed_on_before_its_line_ends() {
    let script = format!("printf 'name? '; {UNTIL_ANSWERED} echo Ada");
    assert_eq!(with_a_question(&["-n", "1", "--tag"], &script), "[0] name? Ada\n");
    let ask = format!("test $SPMD_RANK = 1 || {{ {script}; }}");
    assert_eq!(with_a_question(&["-n", "2"], &ask), "name? Ada\n");
    // Marked by the library as a rank's of several in one process.
    let marked = format!("printf '\\0362\\036name? '; {UNTIL_ANSWERED} echo Ada");
    let threads = ["-n", "3", "--as", "threads", "--tag"];
    assert_eq!(with_a_question(&threads, &marked), "[2] name? Ada\n");
}

#[test]
fn an_unfinished_line_is_ended_for_that_of_another_rank() {
    let script = format!(
        "if [ $SPMD_RANK = 0 ]; then printf 'name? '; {UNTIL_ANSWERED} sleep 0.5; echo Ada; \
         else {UNTIL_ANSWERED} echo hello; fi"
    );
    let text = with_a_question(&["-n", "2", "--tag"], &script);
    assert_eq!(text, "[0] name? \n[1] hello\n[0] Ada\n");
}

#[test]
fn full_buffers_are_no_questions() {
    // 4096 bytes, then for long nothing, in each of two ranks; the first to go on is rank 0.
    let script = "head -c 4096 /dev/zero | tr '\\0' x; sleep 0.$((5 + 3 * SPMD_RANK)); echo";
    let ran = run(&["-n", "2", "sh", "-c", script]);
    let line = "x".repeat(4096);
    assert_eq!(ran.lines(), [line.as_str(), &line], "{ran:?}");
}

#[test]
fn many_files_need_no_higher_limit() {
    let dir = tempfile::tempdir().unwrap();
    let limited = format!(
        "ulimit -Sn 64; exec {} -n 40 --output-dir {} sh -c 'ulimit -Sn'",
        env!("CARGO_BIN_EXE_spmdrun"),
        dir.path().display()
    );
    let ran = finish(std::process::Command::new("sh").args(["-c", &limited]));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let said = fs::read_to_string(dir.path().join("rank-39.stdout")).unwrap();
    assert_eq!(said, "64\n", "the limit of the ranks is what it was");
}

#[test]
fn an_error_that_many_ranks_print_is_shown_once() {
    let script = "echo 'Error: no' >&2; echo because >&2; echo hello $SPMD_RANK >&2; exit 1";
    let job = ["-n", "8", "--on-failure", "continue", "sh", "-c", script];
    let ran = run(&job);
    let count = |ran: &Ran, line: &str| ran.err.lines().filter(|it| *it == line).count();
    assert_eq!(count(&ran, "Error: no"), 1, "{ran:?}");
    assert!((0..8).all(|rank| count(&ran, &format!("hello {rank}")) == 1), "{ran:?}");
    assert!(ran.err.contains("have printed the same as rank "), "{ran:?}");
    let ran = run(&[&["-v"][..], &job].concat());
    assert!(count(&ran, "Error: no") == 8 && count(&ran, "because") == 8, "{ran:?}");
}
