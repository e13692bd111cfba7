//! Bad input: one clear line each, and the right exit status.

#![cfg(target_os = "linux")]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;

use support::{Ran, finish, run, spmdrun};

#[track_caller]
fn refused(ran: &Ran, code: i32, words: &str) {
    assert_eq!(ran.code, Some(code), "{ran:?}");
    assert_eq!(ran.err.lines().count(), 1, "{ran:?}");
    assert!(ran.err.starts_with("spmdrun: ") && ran.err.contains(words), "{words}: {ran:?}");
    assert_eq!(ran.out, "", "{ran:?}");
}

#[test]
fn usage() {
    for (arguments, words) in [
        (&["-n", "0", "true"][..], "at least one rank"),
        (&["-n", "many", "true"], "whole number"),
        (&["-n", "-3", "true"], "-3"),
        (&["-n", "99999", "true"], "limit of 4096"),
        (&["-n", "99999999999999999999", "true"], "whole number"),
        (&["-n", "9999999", "--as", "virtual", "true"], "limit of 1048576"),
        (&["-n", "5000", "--as", "threads", "true"], "limit of 4096"),
        (&["-n", "2"], "no program"),
        (&["-n", "2", "true", ":"], "beside `:`"),
        (&[":", "-n", "2", "true"], "beside `:`"),
        (&["-n", "1", "true", ":", "true"], "-n is missing"),
        (&["-n", "1", "true", ":", "--tag", "true"], "program 2"),
        (&["-n", "1", "--as", "threads", "true", ":", "-n", "1", "true"], "only one program"),
        (&["--as", "clouds", "true"], "--as"),
        (&["--as", "gpus", "-n", "4000", "true"], "--as gpus: "),
        (&["--gpus", "0", "true"], "add --as gpus"),
        (&["--ranks-per-gpu", "2", "--as", "threads", "true"], "add --as gpus"),
        (
            &["--as", "gpus", "--transport", "mpi", "--ranks-per-process", "2", "true"],
            "have a process each; --ranks-per-gpu",
        ),
        (&["--bind", "cores", "true"], "core may be meant; write none, core, numa"),
        (&["-np", "0", "true"], "at least one rank"),
        (&["-n", "2", "-machinefile", "/no/such/file", "true"], "hostfile /no/such/file"),
        (&["-H", "a:0", "true"], "`a:0` is not a host"),
        (&["--mca", "btl", "tcp", "true"], "--env OMPI_MCA_"),
        (&["--bind", "5000", "true"], "CPU 5000"),
        (&["--env", "=x", "true"], "NAME=VALUE"),
        (&["--env", "SURELY_NOT_SET_HERE", "true"], "not set"),
        (&["--env", "SPMD_RANK=3", "true"], "itself"),
        (&["-n", "1", "--env", "SPMD_WINDOW=65536", "true", ":", "-n", "1", "true"], "SPMD_WINDOW"),
        (&["--cwd", "/no/such/dir", "true"], "no such directory"),
        (&["--timeout", "soon", "true"], "seconds"),
        (&["--timeout", "0", "true"], "longer than zero"),
        (&["--grace", "-1", "true"], "-1"),
        (&["--on-failure", "cry", "true"], "--on-failure"),
        (&["-n", "2", "--stdin", "2", "true"], "0 to 1"),
        (&["--stdin", "some", "true"], "all or none"),
        (&["-n", "2", "--show-ranks", "0-2", "true"], "no rank 2"),
        (&["--show-ranks", "x", "true"], "`x`"),
        (&["-n", "2", "--debug-rank", "0,2", "true"], "no rank 2"),
        (&["-n", "2", "--debug-rank", "1", "--timeout", "9", "true"], "drop one"),
        (&["-n", "2", "--debug-rank", "1", "--as", "virtual", "true"], "SPMD_AS=virtual"),
        (&["--transport", "mpi", "-n", "2", "--debug-rank", "1", "true"], "--transport shm"),
        (&["--host", "a", "--transport", "shm", "true"], "mean MPI"),
        (&["--host", "a", "--hostfile", "b", "true"], "--hostfile"),
        (&["--host", "a:0", "true"], "`a:0` is not a host"),
        (&["--host", "nobody.invalid", "-n", "2", "true"], "host nobody.invalid"),
        (&["--host", "localhost", "true"], "-n is missing"),
        (&["--host", "localhost:2", "-n", "3", "true"], "more than the slots"),
        (&["--hostfile", "/no/such/file", "true"], "hostfile /no/such/file"),
        (&["--hostfile", "/dev/null", "true"], "names no host"),
        (&["--ranks-per-process", "2", "true"], "--transport mpi"),
        (&["--ranks-per-process", "0", "true"], "at least one"),
        (&["--transport", "mpi", "--as", "threads", "true"], "--ranks-per-process"),
        (
            &["--transport", "mpi", "--as", "processes", "--ranks-per-process", "2", "true"],
            "--as threads",
        ),
        (&["--transport", "mpi", "--ranks-per-process", "3", "-n", "4", "true"], "multiple of 3"),
        (&["--transport", "mpi", "-n", "2", "--show-ranks", "1", "true"], "--show-ranks"),
        (&["--transport", "mpi", "--on-failure", "continue", "true"], "--on-failure"),
        (&["--transport", "mpi", "-n", "2", "--openmpi-env", "true"], "sets its own"),
        (&["--as", "threads", "--openmpi-env", "true"], "--as processes"),
        (&["--rnks", "2", "true"], "--ranks"),
        (&["-n", "2", "--output-dir", "/dev/null/x", "true"], "/dev/null/x"),
        (&["-n", "2", "--output-dir", "/proc", "true"], "/proc/rank-0.stdout"),
    ] {
        refused(&run(arguments), 2, words);
    }
}

#[test]
fn a_pipe_among_the_files_of_output() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("rank-1.stdout");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)
        .unwrap();
    let job = ["-n", "2", "--output-dir", dir.path().to_str().unwrap(), "true"];
    refused(&run(&job), 2, "rank-1.stdout: what is there is no file");
    // The same where somebody reads it.
    let _reader = fs::OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
    refused(&run(&job), 2, "rank-1.stdout: what is there is no file");
}

#[test]
fn variables() {
    for (name, value) in [
        ("SPMD_RANKS", "0"),
        ("SPMD_RANKS", "lots"),
        ("SPMD_AS", "clouds"),
        ("SPMD_TRANSPORT", "pigeons"),
        ("SPMD_BIND", "somewhere"),
        ("SPMD_GRACE", "never"),
        ("SPMD_TIMEOUT", "0"),
        ("SPMD_TIMEOUT", "x"),
    ] {
        refused(&finish(spmdrun(&["true"]).env(name, value)), 2, &format!("{name}={value}"));
    }
    let good = finish(spmdrun(&["true"]).env("SPMD_RANKS", "3").env("SPMD_AS", "Processes"));
    assert_eq!(good.code, Some(0), "{good:?}");
}

#[test]
fn programs() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let write = |name: &str, text: &str, mode| {
        fs::write(path(name), text).unwrap();
        fs::set_permissions(path(name), fs::Permissions::from_mode(mode)).unwrap();
        path(name)
    };
    let plain = write("plain", "text", 0o644);
    let no_format = write("no-format", "\0\0\0\0", 0o755);
    let no_interpreter = write("no-interpreter", "#!/no/such/shell\n", 0o755);

    refused(&run(&["-n", "2", "surely-no-such-program"]), 127, "in PATH");
    refused(&run(&["-n", "2", &path("missing")]), 127, "cannot find");
    refused(&run(&["-n", "2", &no_interpreter]), 127, "interpreter");
    refused(&run(&["-n", "2", &plain]), 126, "chmod +x");
    refused(&run(&["-n", "2", dir.path().to_str().unwrap()]), 126, "not an executable");
    refused(&run(&["-n", "2", &no_format]), 126, "not a program");
    refused(&run(&["--dry-run", "surely-no-such-program"]), 127, "in PATH");

    let here = finish(spmdrun(&["plain"]).current_dir(dir.path()));
    refused(&here, 127, "did you mean ./plain?");
    let hidden = finish(spmdrun(&["plain"]).env("PATH", dir.path()));
    refused(&hidden, 126, "not executable");
}

#[test]
fn a_second_program_that_cannot_start_ends_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let broken = dir.path().join("broken");
    fs::write(&broken, "\0").unwrap();
    fs::set_permissions(&broken, fs::Permissions::from_mode(0o755)).unwrap();
    let job = support::Job::start(
        &["-n", "2", "sleep", "1000", ":", "-n", "1", broken.to_str().unwrap()],
        0,
    );
    refused(&job.end(), 126, "not a program");
}
