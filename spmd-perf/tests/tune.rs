//! `spmd-perf tune` writes a file that runs after it load; `--list-algorithms` and `--algorithm`.

use std::path::Path;
use std::process::{Command, Output};

/// `spmd-perf` on two ranks of this process.
fn perf(mode: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spmd-perf"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("SPMD_")) {
        command.env_remove(name);
    }
    command.env("SPMD_AS", mode).env("SPMD_RANKS", "2").args(arguments);
    command.output().expect("it starts")
}

#[track_caller]
fn text(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn tune(mode: &str, file: &Path, only: &str) -> String {
    let file = file.to_str().expect("a path of text");
    let quick = ["--seconds", "0.0001", "--rounds", "1"];
    let all = [&["tune", "--only", only, "--output", file], &quick[..]].concat();
    text(&perf(mode, &all))
}

#[test]
fn a_section_is_added_or_replaced() {
    let folder = tempfile::tempdir().expect("made");
    let file = folder.path().join("new").join("tuning.toml");
    let said = tune("threads", &file, "reduce,scatter");
    assert!(said.contains("# scatter, 2 ranks as Threads") && said.contains("default ÷ best"));
    let read = || std::fs::read_to_string(&file).expect("written");
    let first = read();
    assert!(first.contains("version = 1") && first.contains("[threads.2]\nreduce = ["), "{first}");
    // By all blocks together: two of 8 bytes are the least, and 4096 bytes the most.
    let scatter = first.lines().find(|line| line.starts_with("scatter")).expect("measured");
    assert!(scatter.contains("up_to = 4096, use = "), "{scatter}");
    tune("virtual", &file, "reduce");
    let both = read();
    assert!(both.starts_with(&first) && both.contains("[virtual.2]\nreduce = ["), "{both}");
    tune("threads", &file, "allgather");
    let replaced = read();
    assert!(!replaced.contains("scatter") && replaced.contains("[threads.2]\nallgather = ["));
    assert!(replaced.contains("[virtual.2]\nreduce = ["), "{replaced}");
}

#[test]
fn algorithms_are_named() {
    let list = text(&perf("threads", &["--list-algorithms"]));
    assert!(list.contains("broadcast (by") && list.contains("doubling"), "{list}");
    let measured = ["reduce", "--sizes", "8", "--iterations", "20", "--algorithm"];
    text(&perf("threads", &[&measured[..], &["tree"]].concat()));
    let refused = perf("threads", &[&measured[..], &["ring"]].concat());
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success(), "{said}");
    assert!(said.contains("the algorithms of reduce are combining, flat, tree, chunked"), "{said}");
}
