//! Nonsense in the variables that make a process a rank, and processes that are none: one clear
//! error each. (What `spmdrun` itself refuses is tested with the launcher.)

#![cfg(target_os = "linux")]

use std::process::Command;

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags};
use spmd::algorithm::{Algorithm, Kind};
use spmd::prelude::*;

mod support;

use support::{Ran, finish, spmdrun};

/// What launcher and program speak.
const PROTOCOL: &str = "6";
/// Set in the processes that these tests start.
const PROGRAM: &str = "TEST_PROGRAM";

#[test]
#[ignore = "the program of the other tests"]
fn program() {
    let Ok(what) = std::env::var(PROGRAM) else { return };
    let result = match what.as_str() {
        "block" => Spmd::new(2).run(|ctx| ctx.barrier()).map(drop),
        "blocks" => (0..3).try_for_each(|_| spmd(2, |ctx| ctx.barrier()).map(drop)),
        "child" => run(|_| {
            // A program that a rank starts finds the rank's variables, but not its descriptors.
            let ran = finish(this_program().env(PROGRAM, "world"));
            print!("{}", ran.out);
            Ok(())
        })
        .map(drop),
        "slow" => run(|ctx| {
            std::thread::sleep(std::time::Duration::from_millis(300));
            ctx.barrier()
        })
        .map(drop),
        "nested" => run(|_| run(|ctx| ctx.barrier()).map(drop)).map(drop),
        _ => run(|ctx| ctx.barrier()).map(drop),
    };
    match result {
        Ok(()) => println!("<ended well>"),
        Err(error) => println!("<{error}>"),
    }
}

fn this_program() -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a test knows its own path"));
    command.args(["program", "--exact", "--nocapture", "--include-ignored", "--quiet"]);
    command
}

/// The program without a launcher, with these variables.
fn alone(what: &str, variables: &[(&str, &str)]) -> Ran {
    let mut command = this_program();
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("SPMD_")) {
        command.env_remove(name);
    }
    finish(command.env(PROGRAM, what).envs(variables.iter().copied()))
}

/// What the program said: one line, and no panic.
#[track_caller]
fn said(ran: &Ran) -> &str {
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{ran:?}");
    let mut lines = ran.out.lines().filter_map(|line| line.strip_prefix('<')?.strip_suffix('>'));
    let line = lines.next().unwrap_or_else(|| panic!("nothing was said: {ran:?}"));
    assert_eq!(lines.next(), None, "{ran:?}");
    line
}

#[test]
fn nonsense_in_settings() {
    for (name, value) in [
        ("SPMD_AS", "clouds"),
        ("SPMD_RANKS", "0"),
        ("SPMD_RANKS", "many"),
        ("SPMD_RANKS", "-1"),
        ("SPMD_RANKS", "99999999999999999999999"),
        ("SPMD_TIMEOUT", "soon"),
        ("SPMD_TIMEOUT", "0"),
        ("SPMD_TIMEOUT", "-3"),
        ("SPMD_TIMEOUT", "NaN"),
        ("SPMD_TIMEOUT", "inf"),
        ("SPMD_PROGRESS", "threads"),
        ("SPMD_STACK_SIZE", "0"),
        ("SPMD_STACK_SIZE", "2MB"),
        ("SPMD_CORES", "0"),
        ("SPMD_CORES", "all"),
        ("SPMD_CPUS", "3-1"),
        ("SPMD_CPUS", "0;x"),
        ("SPMD_CPUS", "99999999"),
        ("SPMD_SEGMENT", "0"),
        ("SPMD_SEGMENT", "64k"),
        ("SPMD_SINGLE_COPY", "2"),
        ("SPMD_SINGLE_COPY", "yes"),
        ("SPMD_CHAOS", "much"),
    ] {
        for what in ["world", "block"] {
            let ran = alone(what, &[(name, value)]);
            let text = said(&ran);
            assert!(text.contains(name), "{name}={value}: {text}");
            assert!(text.starts_with("cannot start ranks: "), "{name}={value}: {text}");
        }
    }
}

/// By the program at its first block, or by `spmdrun`, once.
#[test]
fn variables_that_are_none() {
    let line = "warning: SPMD_TIMOUT is no variable of spmd, SPMD_TIMEOUT would be \
                (docs/variables.md lists them)\n";
    for what in ["blocks", "world"] {
        let ran = alone(what, &[("SPMD_TIMOUT", "3")]);
        assert_eq!((ran.code, ran.err), (Some(0), format!("spmd: {line}")));
    }
    let program = this_program();
    let mut command = spmdrun(&["-n", "2"]);
    command.arg(program.get_program()).args(program.get_args());
    let ran = finish(command.env(PROGRAM, "world").env("SPMD_TIMOUT", "3"));
    assert_eq!((ran.code, ran.err), (Some(0), format!("spmdrun: {line}")));
}

#[test]
fn algorithms_that_do_not_exist() {
    for (value, words) in [
        ("tree", "'tree' is not of the form call=algorithm"),
        ("allreduse=tree", "no call is named allreduse"),
        (
            "allreduce=magic",
            "the algorithms of allreduce are combining, flat, central, tree, chunked",
        ),
        ("allgather=tree", "the algorithms of allgather are flat, single_copy, chunked"),
        ("barrier=tree", "barrier has one algorithm, and no choice"),
        ("allreduce=tree,,", "'' is not of the form"),
    ] {
        let ran = alone("block", &[("SPMD_FORCE", value)]);
        let text = said(&ran);
        assert!(text.contains("SPMD_FORCE") && text.contains(words), "{value}: {text}");
    }
    assert_eq!(
        said(&alone("block", &[("SPMD_FORCE", "allreduce=tree, reduce=flat")])),
        "ended well"
    );
    let forced = Spmd::new(2).force(Kind::Allreduce, Algorithm::Doubling).run(|ctx| ctx.barrier());
    assert!(forced.unwrap_err().to_string().contains("the algorithms of allreduce are"));
}

#[test]
fn variables_that_are_not_text() {
    use std::os::unix::ffi::OsStrExt;
    let mut command = this_program();
    let value = std::ffi::OsStr::from_bytes(b"1\xff");
    let ran = finish(command.env(PROGRAM, "world").env("SPMD_TIMEOUT", value));
    assert!(said(&ran).contains("the variable SPMD_TIMEOUT is not text"), "{ran:?}");
}

#[test]
fn a_process_alone_has_no_process_ranks() {
    let ran = alone("world", &[("SPMD_RANKS", "3"), ("SPMD_AS", "processes")]);
    let text = said(&ran);
    assert!(text.contains("SPMD_AS") && text.contains("spmdrun --ranks 3"), "{text}");
    let one = alone("world", &[("SPMD_RANKS", "1"), ("SPMD_AS", "processes")]);
    assert_eq!(said(&one), "ended well");
}

#[test]
fn empty_variables_are_none() {
    let names = ["SPMD_AS", "SPMD_RANKS", "SPMD_TIMEOUT", "SPMD_FORCE", "SPMD_ARENA_FD"];
    let empty: Vec<_> = names.into_iter().map(|name| (name, "")).collect();
    assert_eq!(said(&alone("world", &empty)), "ended well");
}

/// A memory file that is passed on to the programs that these tests start.
fn memory_file(bytes: u64, sealed: bool) -> OwnedFd {
    let file = rustix::fs::memfd_create("test", MemfdFlags::ALLOW_SEALING).expect("made");
    rustix::fs::ftruncate(&file, bytes).expect("sized");
    if sealed {
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW).expect("sealed");
    }
    file
}

#[test]
fn arenas_that_are_none() {
    let small = memory_file(4096, true);
    let unsealed = memory_file(64 << 30, false);
    let empty = memory_file(0, true);
    let plain = std::fs::File::open("/dev/null").expect("there");
    let plain = rustix::io::dup(&plain).expect("duplicated");
    let (small, unsealed) = (small.as_raw_fd().to_string(), unsealed.as_raw_fd().to_string());
    let (empty, plain) = (empty.as_raw_fd().to_string(), plain.as_raw_fd().to_string());
    for fd in ["987", "3", &small, &unsealed, &empty, &plain, "2147483647"] {
        let variables = [
            ("SPMD_ARENA_FD", fd),
            ("SPMD_PROTOCOL", PROTOCOL),
            ("SPMD_RANK", "0"),
            ("SPMD_SIZE", "1"),
        ];
        let ran = alone("world", &variables);
        let text = said(&ran);
        assert!(
            text.contains(&format!("SPMD_ARENA_FD={fd} is not the arena of this job")),
            "{text}"
        );
        assert!(text.contains("must not inherit its SPMD_* variables"), "{text}");
    }
}

#[test]
fn a_launcher_that_is_not_understood() {
    let arena = ("SPMD_ARENA_FD", "9");
    for (variables, words) in [
        (&[arena][..], "an unknown protocol and this program protocol 6"),
        (&[arena, ("SPMD_PROTOCOL", "0")], "spmdrun speaks protocol 0 and this program protocol 6"),
        (&[arena, ("SPMD_PROTOCOL", "99")], "install the spmdrun of the program's version of spmd"),
        (&[arena, ("SPMD_PROTOCOL", "new")], "SPMD_PROTOCOL=new is not a protocol version"),
        (&[arena, ("SPMD_PROTOCOL", PROTOCOL)], "the variable SPMD_RANK is not set"),
        (
            &[arena, ("SPMD_PROTOCOL", PROTOCOL), ("SPMD_RANK", "0")],
            "the variable SPMD_SIZE is not set",
        ),
        (&[arena, ("SPMD_PROTOCOL", PROTOCOL), ("SPMD_RANK", "x")], "SPMD_RANK=x is not a rank"),
        (
            &[arena, ("SPMD_PROTOCOL", PROTOCOL), ("SPMD_RANK", "2"), ("SPMD_SIZE", "2")],
            "rank 2 of a job of 2 ranks",
        ),
        (
            &[arena, ("SPMD_PROTOCOL", PROTOCOL), ("SPMD_RANK", "0"), ("SPMD_SIZE", "0")],
            "rank 0 of a job of 0 ranks",
        ),
        (
            &[
                arena,
                ("SPMD_PROTOCOL", PROTOCOL),
                ("SPMD_RANK", "0"),
                ("SPMD_SIZE", "99999999999999"),
            ],
            "SPMD_",
        ),
        (
            &[
                ("SPMD_ARENA_FD", "1"),
                ("SPMD_PROTOCOL", PROTOCOL),
                ("SPMD_RANK", "0"),
                ("SPMD_SIZE", "1"),
            ],
            "SPMD_ARENA_FD=1 is not the arena",
        ),
        (&[("SPMD_ARENA_FD", "-7"), ("SPMD_PROTOCOL", PROTOCOL)], "SPMD_"),
        (&[("SPMD_ARENA_FD", "fd")], "SPMD_ARENA_FD=fd is not a file descriptor"),
    ] {
        let ran = alone("world", variables);
        let text = said(&ran);
        assert!(text.starts_with("cannot start ranks: "), "{text}");
        assert!(text.contains(words), "{variables:?}: {text}");
    }
}

/// Starts this program from a shell under `spmdrun`.
const START: &str = "\"$EXE\" program --exact --nocapture --include-ignored --quiet";

#[test]
fn a_rank_whose_variables_were_changed() {
    for (changed, words) in [
        ("SPMD_RANK=x", "SPMD_RANK=x is not a rank"),
        ("SPMD_RANK=2", "rank 2 of a job of 2 ranks"),
        ("SPMD_RANK=", "the variable SPMD_RANK is not set"),
        ("SPMD_SIZE=", "the variable SPMD_SIZE is not set"),
        ("SPMD_SIZE=3", "is not the arena of this job"),
        ("SPMD_PROTOCOL=", "an unknown protocol"),
        ("SPMD_TIMEOUT=x", "SPMD_TIMEOUT=x is not a number of seconds"),
    ] {
        let ran = launched(&["-n", "2", "sh", "-c", &format!("{changed} exec {START}")], "world");
        let line = "<cannot start ranks: ";
        assert_eq!(ran.out.matches(line).count(), 2, "{changed}: {ran:?}");
        assert_eq!(ran.out.matches(words).count(), 2, "{changed}: {ran:?}");
    }
}

fn launched(arguments: &[&str], what: &str) -> Ran {
    let mut command = spmdrun(arguments);
    let exe = std::env::current_exe().expect("a test knows its own path");
    if !arguments.contains(&"sh") {
        command.arg(&exe);
        command.args(["program", "--exact", "--nocapture", "--include-ignored", "--quiet"]);
    }
    finish(command.env(PROGRAM, what).env("EXE", exe))
}

#[test]
fn a_program_started_by_a_rank() {
    let ran = launched(&["-n", "2"], "child");
    let text =
        "is not the arena of this job; a program started by a rank must not inherit its SPMD_*";
    assert_eq!(ran.out.matches(text).count(), 2, "{ran:?}");
    assert_eq!(ran.out.matches("<ended well>").count(), 2, "{ran:?}");
}

#[test]
fn a_program_started_twice_as_the_same_rank() {
    let both = format!("{START} & {START} & wait");
    let ran = launched(&["-n", "1", "sh", "-c", &both], "slow");
    assert_eq!(
        ran.out.matches("is rank 0 already; a program started by a rank").count(),
        1,
        "{ran:?}"
    );
    assert_eq!(ran.out.matches("<ended well>").count(), 1, "{ran:?}");
}

#[test]
fn a_world_entered_within_itself() {
    for arguments in [&["-n", "2"][..], &["-n", "1"]] {
        let ran = launched(arguments, "nested");
        assert!(
            ran.out.contains("spmd::run was called inside the world that it enters"),
            "{ran:?}"
        );
    }
}

/// The standard library would abort the process.
#[test]
fn more_threads_than_a_process_holds() {
    let error = Spmd::new(900_000).threads().run(|ctx| ctx.barrier()).unwrap_err();
    assert!(matches!(error, Error::Unavailable(_)), "{error}");
    assert!(error.to_string().contains("use virtual ranks"), "{error}");
}

/// A program that is to find an MPI, with these variables and nothing else that leads to one.
fn looks_for_mpi(variables: &[(&str, &str)]) -> Ran {
    let mut command = this_program();
    for name in ["SPMD_MPI_LIB", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX"] {
        command.env_remove(name);
    }
    command.env("PATH", "/nowhere").env("SPMD_TRANSPORT", "mpi").env(PROGRAM, "world");
    finish(command.envs(variables.iter().copied()))
}

#[test]
fn no_mpi_on_the_machine() {
    let ran = looks_for_mpi(&[]);
    let text = said(&ran);
    // Unless the system itself has one.
    if text != "ended well" {
        assert!(text.contains("MPI is not available: "), "{text}");
        assert!(text.contains("libmpi_abi.so.1") && text.contains("pip install mpich"), "{text}");
    }
    let ran = looks_for_mpi(&[("SPMD_MPI_LIB", "/nowhere/libmpi_abi.so.1")]);
    let text = said(&ran);
    assert!(text.contains("SPMD_MPI_LIB is /nowhere/") && text.contains("unset it"), "{text}");
}

/// Libraries that are none of use, made with the system's C compiler.
#[test]
fn mpi_libraries_of_no_use() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (number, code, words) in [
        (0, "int nothing;", "it has no MPI_Abi_get_version"),
        (1, "int MPI_Abi_get_version(int *a, int *b) { *a = 0; *b = 9; return 0; }", "version 0.9"),
        (2, "int MPI_Abi_get_version(int *a, int *b) { *a = 2; *b = 0; return 0; }", "version 2.0"),
        (3, "int MPI_Abi_get_version(int *a, int *b) { *a = *b = -1; return 0; }", "not the one"),
        (
            4,
            "int MPI_Abi_get_version(int *a, int *b) { *a = 1; *b = 0; return 0; }",
            "it has no MPI_",
        ),
    ] {
        let file = |name| folder.path().join(format!("{number}.{name}"));
        let (source, library) = (file("c"), file("so"));
        std::fs::write(&source, code).expect("our own folder");
        let mut compile = Command::new("cc");
        compile.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source);
        match compile.status() {
            Err(error) => return println!("SKIPPED libraries that are made up: no cc: {error}"),
            Ok(status) => assert!(status.success(), "{compile:?}"),
        }
        let ran = looks_for_mpi(&[("SPMD_MPI_LIB", library.to_str().expect("it is text"))]);
        let text = said(&ran);
        assert!(text.contains(words) && text.contains("SPMD_MPI_LIB"), "{words}: {text}");
    }
}
