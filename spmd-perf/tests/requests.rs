//! What `spmd-perf` measures of calls that go on: their lines have what others lack.

#![cfg(target_os = "linux")]

mod support;

use serde_json::Value;
use support::{command, perf, said, spmdrun};

/// The lines of one bench on two ranks.
#[track_caller]
fn lines(mode: &str, bench: &str) -> Vec<Value> {
    let mut job = command(spmdrun());
    job.args(["-n", "2", "--as", mode, "--timeout", "120"]).arg(perf()).arg(bench);
    job.args(["--sizes", "8,64K", "--iterations", "20", "--json"]);
    let output = job.output().expect("it starts");
    assert!(output.status.success(), "{bench} as {mode}: {output:?}");
    let text = said(&output.stdout);
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn windows_of_requests_have_a_rate() {
    for mode in ["processes", "threads", "virtual"] {
        for line in lines(mode, "isend") {
            let number = |key: &str| line[key].as_f64().expect("a number");
            let rate = 64e6 / number("avg_us");
            assert_eq!(line["wrong"], 0, "{line}");
            assert!((number("messages_per_s") / rate - 1.0).abs() < 1e-6, "{line}");
            assert!(line.get("hidden").is_none(), "{line}");
        }
    }
}

#[test]
fn overlaps_say_what_is_hidden() {
    for mode in ["processes", "threads", "virtual"] {
        for bench in ["overlap-allreduce", "overlap-alltoall-test", "overlap-broadcast-test"] {
            let lines = lines(mode, bench);
            assert_eq!(lines.len(), 2);
            for line in lines {
                let number = |key: &str| line[key].as_f64().expect("a number");
                assert!(number("communication_us") > 0.0 && number("computation_us") > 0.0);
                assert!((0.0..=1.0).contains(&number("hidden")), "{line}");
                assert_eq!(line["wrong"], 0, "{line}");
                assert!(line.get("messages_per_s").is_none(), "{line}");
            }
        }
    }
}

#[test]
fn persistent_and_one_sided_calls_are_right() {
    for mode in ["processes", "threads", "virtual"] {
        for (bench, sizes) in
            [("persistent-allreduce", 2), ("put", 2), ("get", 2), ("fetch-and-add", 1)]
        {
            let lines = lines(mode, bench);
            assert_eq!(lines.len(), sizes, "{bench} as {mode}");
            for line in lines {
                assert!(line["wrong"] == 0 && line["p50_us"].as_f64() > Some(0.0), "{line}");
            }
        }
    }
}
