//! `spmd-perf sweep` over shared memory: it goes on after it was killed, and after jobs have
//! failed.

#![cfg(target_os = "linux")]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use support::{command, perf, said, spmdrun};
use tempfile::TempDir;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(5);

/// A folder whose files may be links to programs.
fn folder() -> TempDir {
    tempfile::tempdir_in(perf().parent().expect("it lies in a folder")).expect("made")
}

/// `spmd-perf sweep` of this program, free of settings of whoever runs the tests.
fn sweep(perf: &Path, out: &Path, line: &str) -> Command {
    spmdrun();
    let mut command = command(perf);
    command.args(["sweep", "--out"]).arg(out).args(line.split_whitespace());
    command
}

#[track_caller]
fn good(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    said(&output.stdout)
}

#[track_caller]
fn refused(mut command: Command, words: &str) {
    let output = command.output().expect("it starts");
    let told = said(&output.stderr);
    assert!(output.status.code() == Some(1) && told.contains(words), "{words}: {output:?}");
    assert!(told.starts_with("spmd-perf: "), "{told}");
}

/// The files of a folder with this ending, and when they were written.
fn files(folder: &Path, ending: &str) -> Vec<(PathBuf, SystemTime)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let mut found: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|it| it == ending))
        .map(|path| {
            let written = path.metadata().and_then(|it| it.modified()).expect("it is there");
            (path, written)
        })
        .collect();
    found.sort();
    found
}

/// The processes with this word in their command lines.
fn running(word: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.map(|line| said(&line).replace('\0', " ")).filter(|line| line.contains(word)).collect()
}

const SMALL: &str = "--ranks-per-host 2 --as processes,threads --bench barrier,allreduce,latency \
                     --sizes 8,1K --seconds 0.1";

#[test]
fn killed_in_the_middle_it_goes_on() {
    let folder = folder();
    let out = folder.path().join("results");
    let word = format!("SPMD_TEST_SWEEP={}", std::process::id());
    let line = format!("{SMALL} --env {word}");
    let mut first = sweep(perf(), &out, &line).stdout(Stdio::null()).spawn().expect("it starts");
    let start = Instant::now();
    while files(&out, "json").len() < 2 {
        assert!(start.elapsed() < PATIENCE, "nothing is measured");
        assert!(first.try_wait().expect("our child").is_none(), "it has ended before its time");
        sleep(LOOK);
    }
    first.kill().expect("our child");
    first.wait().expect("our child");
    let start = Instant::now();
    while !running(&word).is_empty() {
        assert!(start.elapsed() < PATIENCE, "left: {:?}", running(&word));
        sleep(LOOK);
    }

    let before = files(&out, "json");
    assert!((2..6).contains(&before.len()), "{before:?}");
    let told = good(&sweep(perf(), &out, &line).output().expect("it starts"));
    assert!(told.contains(&format!("{} were done before", before.len())), "{told}");
    let after = files(&out, "json");
    assert!(after.len() == 6 && before.iter().all(|file| after.contains(file)), "{after:?}");
    assert_eq!((files(&out, "svg").len(), files(&out, "part").len()), (3, 0));
    for (file, _) in &after {
        let text = fs::read_to_string(file).expect("written");
        for word in ["\"p50_us\"", "\"wrong\": 0", "\"cpu\"", "\"interfaces\"", "rustc "] {
            assert!(text.contains(word), "{word} in {text}");
        }
    }

    // Once more there is nothing to do, and with other settings nothing is done.
    let told = good(&sweep(perf(), &out, &line).output().expect("it starts"));
    assert!(told.contains("6 were done before"), "{told}");
    let other = line.replace("--seconds 0.1", "--seconds 0.2");
    refused(sweep(perf(), &out, &other), "seconds 0.1, and now it is 0.2");
    assert_eq!(files(&out, "json"), after);
}

#[test]
fn a_failed_job_is_tried_again() {
    let folder = folder();
    let (perf, fake) = (folder.path().join("spmd-perf"), folder.path().join("spmdrun"));
    fs::hard_link(support::perf(), &perf).expect("one file system");
    let mended = folder.path().join("mended");
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in\n*--dry-run*) ;;\n*allreduce*) [ -e {} ] || {{ echo rubbish >&2; \
         echo 'spmd: rank 1 failed: deliberate' >&2; exit 3; }} ;;\nesac\nexec {} \"$@\"\n",
        mended.display(),
        spmdrun().display()
    );
    fs::write(&fake, script).expect("our folder");
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&fake, executable).expect("our file");

    let out = folder.path().join("results");
    let output = sweep(&perf, &out, SMALL).output().expect("it starts");
    let (printed, told) = (said(&output.stdout), said(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{printed}\n{told}");
    assert!(printed.contains("FAILED: spmd: rank 1 failed: deliberate"), "{printed}");
    assert!(printed.contains("4 results and 2 pictures"), "{printed}");
    assert!(told.contains("2 of 6 jobs failed: allreduce-shm-1x2-processes, "), "{told}");
    let file = out.join("allreduce-shm-1x2-threads2.json");
    let text = fs::read_to_string(&file).expect("written");
    assert!(text.contains("failed: deliberate") && text.contains("rubbish"), "{text}");

    fs::write(mended, "").expect("our folder");
    let told = good(&sweep(&perf, &out, SMALL).output().expect("it starts"));
    assert!(told.contains("4 were done before") && told.contains("6 results and 3"), "{told}");

    let more = format!("{SMALL} --bench reduce --timeout 60 --dry-run");
    let told = good(&sweep(&perf, &out, &more).output().expect("it starts"));
    assert_eq!(told.lines().count(), 2, "{told}");
    assert!(told.contains("--transport shm -n 2 --as threads --timeout 60"), "{told}");
    let elsewhere = folder.path().join("elsewhere");
    let line = format!("{SMALL} --env A=$B --dry-run");
    let told = good(&sweep(&perf, &elsewhere, &line).output().expect("it starts"));
    assert!(told.lines().count() == 6 && told.contains(" --env 'A=$B' "), "{told}");
    assert!(!elsewhere.exists());

    let both = folder.path().join("both");
    let mut compare = Command::new(&perf);
    compare.arg("compare").args([&out, &out]).arg("--out").arg(&both);
    let told = good(&compare.output().expect("it starts"));
    assert!(told.lines().any(|line| line.starts_with("latency") && line.ends_with(" 1")), "{told}");
    assert_eq!(files(&both, "svg").len(), 3);
}

#[test]
fn a_job_that_takes_too_long_is_ended() {
    let folder = folder();
    let out = folder.path().join("results");
    let line = "--ranks-per-host 2 --bench allreduce --seconds 60 --timeout 0.5";
    let sweep = sweep(perf(), &out, line);
    let start = Instant::now();
    refused(sweep, "1 of 1 jobs failed");
    assert!(start.elapsed() < PATIENCE);
    let text = fs::read_to_string(out.join("allreduce-shm-1x2-processes.json")).expect("written");
    assert!(text.contains("it took longer than 0.5 s (--timeout)"), "{text}");
}

#[test]
fn what_cannot_be() {
    let folder = folder();
    let out = folder.path().join("results");
    let file = folder.path().join("file");
    fs::write(&file, "").expect("our folder");
    refused(sweep(perf(), &file.join("results"), SMALL), "file/results");
    refused(sweep(perf(), &out, "--hosts a,b --transport shm"), "shared memory joins no hosts");
    refused(sweep(perf(), &out, "--ranks-per-host 2 --bind nowhere"), "--bind");

    let mut inside = sweep(perf(), &out, SMALL);
    inside.env("SPMD_JOB", "1-1");
    refused(inside, "SPMD_JOB is set");

    let alone = folder.path().join("spmd-perf");
    fs::hard_link(perf(), &alone).expect("one file system");
    let mut lost = sweep(&alone, &out, SMALL);
    lost.env("PATH", "/nowhere");
    refused(lost, "spmdrun is neither beside");
    assert!(!out.exists());

    fs::create_dir(&out).expect("our folder");
    let busy = fs::File::open(&out).expect("our folder");
    busy.lock().expect("it is free");
    refused(sweep(perf(), &out, SMALL), "another sweep is at work");
    drop(busy);
    fs::write(out.join("barrier-shm-1x2-processes.json"), "{}").expect("our folder");
    refused(sweep(perf(), &out, SMALL), "is no result of spmd-perf sweep");

    // Without an MPI, or with one that does not know the host.
    let unknown = "--hosts no-such-host.invalid --ranks-per-host 2";
    refused(sweep(perf(), &out, unknown), "no-such-host.invalid");
}
