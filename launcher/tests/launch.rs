//! What ranks find when they start: environment, directory, CPUs, input; and what is printed
//! without starting any.

#![cfg(target_os = "linux")]

mod support;

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use support::{finish, run, spmdrun};

#[test]
fn a_rank_finds_its_place_as_torchrun_tells_it() {
    let show = "echo $SPMD_RANK/$SPMD_SIZE $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE \
                $ROLE_RANK/$ROLE_WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE $ROLE_NAME $MASTER_ADDR";
    // Those of a rank replace what is set here, as torchrun has it.
    let ran = finish(spmdrun(&["-n", "3", "sh", "-c", show]).env("RANK", "7"));
    let line = |rank| format!("{}0/1 default 127.0.0.1", format!("{rank}/3 ").repeat(4));
    assert_eq!(ran.lines(), [line(0), line(1), line(2)], "{ran:?}");
    let port = run(&["-n", "2", "sh", "-c", "echo $MASTER_PORT"]);
    assert_eq!(port.lines()[0], port.lines()[1]);
    assert!(port.lines()[0].parse::<u16>().is_ok(), "{port:?}");
    let said = ["-n", "2", "-x", "RANK=7", "sh", "-c", "echo $RANK $MASTER_PORT"];
    let ran = finish(spmdrun(&said).env("MASTER_PORT", "29500"));
    assert_eq!(ran.lines(), ["7 29500", "7 29500"], "{ran:?}");
}

/// A program linked with an MPI would take itself for a process of a job under `mpirun`.
#[test]
fn no_variables_of_an_mpi_launcher_unless_asked_for() {
    let show = "env | grep -E '^(OMPI_COMM|PMI|MV2)' | sort | tr '\n' ' '; echo";
    let outer = [
        ("OMPI_COMM_WORLD_RANK", "7"),
        ("PMI_RANK", "7"),
        ("PMIX_NAMESPACE", "job"),
        ("PMIX_MCA_gds", "hash"),
    ];
    let with = |options: &[&str]| {
        let mut command = spmdrun(&["-n", "1", "--transport", "shm"]);
        finish(command.args(options).args(["sh", "-c", show]).envs(outer))
    };
    let setting = "PMIX_MCA_gds=hash";
    assert_eq!(with(&[]).out.trim(), setting);
    // Who names one wants it.
    let named = with(&["-x", "PMI_RANK", "-x", "PMI_SIZE=9"]);
    assert_eq!(named.out.trim(), format!("{setting} PMI_RANK=7 PMI_SIZE=9"), "{named:?}");
    let asked = with(&["--openmpi-env"]);
    let place = "OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1 \
                 OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1";
    assert_eq!(asked.out.trim(), format!("{place} {setting}"), "{asked:?}");
}

#[test]
fn one_process_for_threads_and_virtual_ranks() {
    let show = "echo $SPMD_AS $SPMD_RANKS $SPMD_TIMEOUT [$SPMD_RANK$SPMD_SIZE$SPMD_TAG]";
    for mode in ["threads", "virtual"] {
        let ran = run(&["-n", "5", "--as", mode, "--timeout", "1.5m", "sh", "-c", show]);
        assert_eq!(ran.out, format!("{mode} 5 90 []\n"), "{ran:?}");
    }
    let bound = run(&["-n", "2", "--as", "threads", "--bind", "0", "sh", "-c", "echo $SPMD_CPUS"]);
    assert_eq!(bound.out, "0;0\n", "{bound:?}");
}

#[test]
fn the_share_of_cores() {
    let show = "echo $OMP_NUM_THREADS $RAYON_NUM_THREADS";
    let cores = std::thread::available_parallelism().unwrap().get();
    assert_eq!(run(&["-n", "1", "sh", "-c", show]).out, format!("{cores} {cores}\n"));
    assert_eq!(
        run(&["-n", "500", "--as", "virtual", "sh", "-c", show]).out,
        format!("1 {cores}\n")
    );
    let own = finish(spmdrun(&["-n", "1", "sh", "-c", show]).env("OMP_NUM_THREADS", "7"));
    assert_eq!(own.out, format!("7 {cores}\n"));
    let bound = run(&["-n", "1", "--bind", "0", "--env", "RAYON_NUM_THREADS=9", "sh", "-c", show]);
    assert_eq!(bound.out, "1 9\n", "{bound:?}");
}

#[test]
fn env_and_cwd() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().canonicalize().unwrap();
    let show = "echo \"$A|$B|$(pwd -P)\"";
    let ran = finish(
        spmdrun(&["-n", "1", "--env", "A=x=y z", "--env", "B", "--cwd"])
            .arg(&at)
            .args(["sh", "-c", show])
            .env("B", "of the launcher"),
    );
    assert_eq!(ran.out, format!("x=y z|of the launcher|{}\n", at.display()), "{ran:?}");
}

#[test]
fn a_relative_program_keeps_its_meaning_under_cwd() {
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/bin/sh", dir.path().join("shell")).unwrap();
    let mut command = spmdrun(&["-n", "1", "--cwd", "/", "./shell", "-c", "echo $0 $(pwd)"]);
    let ran = finish(command.current_dir(dir.path()));
    assert_eq!(ran.out, "./shell /\n", "{ran:?}");
}

#[test]
fn several_programs_in_one_world() {
    let show = |name: &str| format!("echo {name} $SPMD_RANK of $SPMD_SIZE $X");
    let (first, second) = (show("first"), show("second"));
    let ran =
        run(&["-n", "2", "sh", "-c", &first, ":", "-n", "1", "--env", "X=x", "sh", "-c", &second]);
    assert_eq!(ran.lines(), ["first 0 of 3", "first 1 of 3", "second 2 of 3 x"], "{ran:?}");
}

#[test]
fn binding() {
    let allowed = Command::new("grep")
        .args(["Cpus_allowed_list", "/proc/self/status"])
        .output()
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap();
    let first: String = allowed.split_whitespace().nth(1).unwrap().to_owned();
    let first: String = first.chars().take_while(char::is_ascii_digit).collect();
    let show = ["grep", "Cpus_allowed_list", "/proc/self/status"];

    let ran = finish(spmdrun(&["-n", "2", "--report-bindings", "--bind", &first]).args(show));
    let cpus = format!("Cpus_allowed_list:\t{first}");
    assert_eq!(ran.lines(), [&cpus, &cpus], "{ran:?}");
    assert!(ran.err.contains(&format!("rank 1 is bound to CPU {first}")), "{ran:?}");

    let free = finish(spmdrun(&["-n", "1", "--report-bindings"]).args(show));
    assert_eq!(free.out, allowed);
    assert!(free.err.contains("rank 0 is not bound"), "{free:?}");
    for whole in ["core", "numa"] {
        let ran = finish(spmdrun(&["-n", "2", "--bind", whole]).args(show));
        assert_eq!((ran.code, ran.out.lines().count()), (Some(0), 2), "{ran:?}");
    }
}

#[test]
fn standard_input() {
    let give = |arguments: &[&str], data: &[u8]| {
        let mut child = spmdrun(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("spmdrun starts");
        // A job that reads nothing may be over already.
        let _ = child.stdin.take().unwrap().write_all(data);
        String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
    };
    let sorted = |text: String| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(give(&["-n", "3", "--tag", "cat"], b"hi\n"), "[0] hi\n");
    assert_eq!(give(&["-n", "3", "--tag", "--stdin", "2", "cat"], b"hi\n"), "[2] hi\n");
    assert_eq!(give(&["-n", "3", "--stdin", "none", "cat"], b"hi\n"), "");
    let all = give(&["-n", "3", "--tag", "--stdin", "all", "cat"], b"hi\n");
    assert_eq!(sorted(all), ["[0] hi", "[1] hi", "[2] hi"]);
    // Rank 0 never reads; the others get far more than a pipe holds.
    let count = "test $SPMD_RANK = 0 || wc -c";
    let big = give(&["-n", "3", "--stdin", "all", "sh", "-c", count], &[b'x'; 1 << 20]);
    assert_eq!(sorted(big), ["1048576", "1048576"]);
}

#[test]
fn dry_run_starts_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("made by a rank");
    let ran = finish(
        spmdrun(&["--dry-run", "-n", "2", "--cwd", "/", "--env", "X=a b", "touch"]).arg(&file),
    );
    assert!(!file.exists());
    assert_eq!((ran.code, ran.out.lines().count()), (Some(0), 2), "{ran:?}");
    for part in ["cd / && ", "SPMD_RANK=1 ", "X='a b' ", "/touch '", "# rank 1 is not bound"] {
        assert!(ran.out.contains(part), "{part}: {ran:?}");
    }
    // A shell understands each line.
    let line = ran.out.lines().next().unwrap();
    assert!(Command::new("sh").args(["-c", line]).status().unwrap().success());
    assert!(file.exists());
}

/// What the command line says, and not what is set here; nothing where nobody says anything.
#[test]
fn ranks_are_told_their_transport() {
    let cases: [(Option<&str>, Option<&str>, &str); 5] = [
        (None, None, ""),
        (Some("nccl"), None, "nccl"),
        (None, Some("nccl"), "nccl"),
        (Some("shm"), Some("nccl"), "shm"),
        (Some("auto"), Some("nccl"), "auto"),
    ];
    for (option, variable, told) in cases {
        let option = option.map_or(vec![], |name| vec!["--transport", name]);
        for mode in ["processes", "threads"] {
            let mut job = spmdrun(&["-n", "1", "--as", mode]);
            job.args(&option).args(["sh", "-c", "echo $SPMD_TRANSPORT"]);
            job.envs(variable.map(|name| ("SPMD_TRANSPORT", name)));
            let ran = finish(&mut job);
            assert_eq!((ran.code, ran.out.trim()), (Some(0), told), "{option:?} {variable:?}");
        }
    }
}

#[test]
fn a_hundred_thousand_virtual_ranks_can_be_started() {
    let job = ["-n", "100000", "--as", "virtual"];
    let dry = run(&[&job[..], &["--dry-run", "true"]].concat());
    assert!(dry.code == Some(0) && dry.out.contains("SPMD_RANKS=100000 "), "{dry:?}");
    let ran = run(&[&job[..], &["sh", "-c", "echo $SPMD_RANKS"]].concat());
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "100000\n"), "{ran:?}");
}

#[test]
fn doctor_and_help() {
    let doctor = run(&["--doctor"]);
    assert_eq!(doctor.code, Some(0), "{doctor:?}");
    for what in ["cores", "CPU quota", "NUMA", "shared memory", "process_vm_readv", "MPI", "GPU"] {
        assert!(doctor.out.contains(what), "{what}: {doctor:?}");
    }
    let help = run(&["--help"]);
    assert!(help.code == Some(0) && help.out.contains("--on-failure"), "{help:?}");
    let options = help.out.split("Options:").nth(1).unwrap_or_default();
    assert!(options.trim_start().starts_with("-n, --ranks"), "{help:?}");
    let shell = run(&["--completions", "bash"]);
    assert!(shell.code == Some(0) && shell.out.contains("--hostfile"), "{shell:?}");
    assert!(run(&["--man"]).out.contains(".TH spmdrun 1"));
    assert!(run(&["--version"]).out.starts_with("spmdrun "));
}

#[test]
fn options_are_known_as_other_launchers_spell_them() {
    let script = "echo $SPMD_RANK $KIND";
    let ran = run(&["-np", "2", "-x", "KIND=x", "--oversubscribe", "sh", "-c", script]);
    assert_eq!(ran.lines(), ["0 x", "1 x"], "{ran:?}");
}

#[test]
fn variables_that_are_none_are_told() {
    let ran = finish(spmdrun(&["-n", "2", "true"]).env("SPMD_TIMOUT", "3"));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let told = ran.err.lines().count() == 1 && ran.err.contains("SPMD_TIMEOUT would be");
    assert!(told, "{ran:?}");
}

#[test]
fn a_job_inside_a_rank() {
    let ran = finish(
        spmdrun(&["-n", "2", env!("CARGO_BIN_EXE_spmdrun"), "-n", "2", "--tag", "sh", "-c"])
            .arg("echo $SPMD_RANK of $SPMD_SIZE"),
    );
    assert_eq!(ran.lines(), ["[0] 0 of 2", "[0] 0 of 2", "[1] 1 of 2", "[1] 1 of 2"], "{ran:?}");
}

#[test]
fn starting_is_fast() {
    let time = || {
        let start = Instant::now();
        assert_eq!(run(&["-n", "16", "true"]).code, Some(0));
        start.elapsed()
    };
    // The best of several: other tests run at the same time.
    let best = (0..20).map(|_| time()).min().unwrap();
    assert!(best < Duration::from_millis(100), "16 ranks took {best:?}");
}

#[test]
fn cargo_builds_then_launches() {
    let dir = tempfile::tempdir().unwrap();
    let put = |path: &str, text: &str| {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    put("Cargo.toml", "[package]\nname = \"tiny\"\nedition = \"2024\"\n[workspace]\n");
    let print = "println!(\"{what} {} {:?}\", std::env::var(\"SPMD_RANK\").unwrap(), \
                 std::env::args().nth(1));";
    put("src/main.rs", &format!("fn main() {{ let what = \"main\"; {print} }}"));
    put("examples/heat.rs", &format!("fn main() {{ let what = \"heat\"; {print} }}"));
    put("examples/bad.rs", "fn main() { nonsense }");
    let cargo = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-spmdrun"));
        command.arg("spmdrun").args(arguments).current_dir(dir.path()).stdin(Stdio::null());
        finish(command.env("CARGO_TARGET_DIR", dir.path().join("target")).arg("--offline"))
    };
    let main = cargo(&["-n", "2"]);
    assert_eq!(main.lines(), ["main 0 None", "main 1 None"], "{main:?}");
    let bad = cargo(&["-n", "2", "--example", "bad"]);
    assert!(bad.code == Some(1) && bad.last_line().contains("build failed"), "{bad:?}");

    let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-spmdrun"));
    command.args(["spmdrun", "-n", "2", "-q", "--example", "heat", "--tag", "--", "--odd"]);
    command.current_dir(dir.path()).env("CARGO_TARGET_DIR", dir.path().join("target"));
    let heat = finish(&mut command);
    assert_eq!(heat.lines(), ["[0] heat 0 Some(\"--odd\")", "[1] heat 1 Some(\"--odd\")"]);
}
