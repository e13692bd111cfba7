//! Jobs on two hosts that lose a rank, a cable or a host.
//!
//! The program of a job is the test [`program`], which `spmdrun` starts again as each rank. Ranks 0
//! and 1 are on the host where the launcher is, 2 and 3 on the other, where what fails fails.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Signal, getpid, kill_process};
use spmd::prelude::*;

use crate::support::{again, is_mpi_process};
use crate::world::World;

/// What the rank that fails does.
const DEED: &str = "SPMD_TEST_DEED";
/// A file that is written when it does so, or, where no rank fails, when all ranks are at work.
const FILE: &str = "SPMD_TEST_FILE";
/// The rank that fails.
const RANK: usize = 2;
/// The other host.
const OTHER: usize = 1;

/// How long the job may go on, and anything that belongs to it may run.
const BOUND: Duration = Duration::from_secs(5);
/// How long they are watched, so that a failure says how long it took.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(5);

#[test]
#[ignore = "the program of the other tests"]
fn program() {
    if !is_mpi_process() {
        return;
    }
    let deed = std::env::var(DEED).expect("set by the test");
    let file = std::env::var(FILE).expect("set by the test");
    let result = run(|ctx| {
        let mut data = vec![1.0; 1000];
        for turn in 0.. {
            ctx.allreduce_in_place(&mut data, Max)?;
            if turn == 100 && ctx.rank() == RANK {
                fs::write(&file, "now")?;
                commit(&deed)?;
            }
            if turn == 100 && ctx.rank() == RANK && deed == "leave" {
                break;
            }
        }
        Ok(())
    });
    if let Err(error) = result {
        eprintln!("told: {error}");
        std::process::exit(1);
    }
}

fn commit(deed: &str) -> Result<()> {
    match deed {
        "panic" => panic!("deliberate"),
        "error" => Err("deliberate".into()),
        "exit" => std::process::exit(7),
        "kill" => {
            kill_process(getpid(), Signal::KILL).expect("a process may signal itself");
            Ok(())
        }
        _ => Ok(()),
    }
}

/// How a job ended.
#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    err: String,
    /// From the deed to the end of `spmdrun`.
    took: Duration,
    /// From the deed to the end of the last process on any host.
    gone: Duration,
    /// What was still there when patience ended.
    left: Vec<(u32, String)>,
}

/// Has a job fail by `deed`, in the middle of which `act` is done.
fn fail(world: &mut World, deed: &str, act: impl FnOnce(&mut World)) -> Ended {
    let folder = world.hosts.folder().to_path_buf();
    let (file, err) = (folder.join("deed"), folder.join("stderr"));
    let _ = fs::remove_file(&file);
    let mut command = again(world.spmdrun(2, 1), "failures::program");
    command.env(DEED, deed).env(FILE, &file).env("RUST_BACKTRACE", "0");
    command.stdout(Stdio::null()).stderr(fs::File::create(&err).expect("our own folder"));
    let mut job = command.spawn().expect("nsenter starts");
    wait_for(&file, &mut job, &err);
    let start = Instant::now();
    act(world);
    let (mut code, mut took) = (None, None);
    while start.elapsed() < PATIENCE {
        if took.is_none()
            && let Some(status) = job.try_wait().expect("our own child")
        {
            (code, took) = (status.code(), Some(start.elapsed()));
        }
        if took.is_some() && world.hosts.running().is_empty() {
            break;
        }
        sleep(LOOK);
    }
    let gone = start.elapsed();
    let left = world.hosts.running();
    let _ = job.kill();
    let _ = job.wait();
    let mut text = String::new();
    let _ = fs::File::open(&err).and_then(|mut file| file.read_to_string(&mut text));
    let took = took.unwrap_or(PATIENCE);
    println!(
        "{}: {deed}: status {code:?} after {:.2} s, all gone after {:.2} s, left {left:?}\n{text}",
        world.mpi.name,
        took.as_secs_f64(),
        gone.as_secs_f64()
    );
    Ended { code, err: text, took, gone, left }
}

fn wait_for(file: &Path, job: &mut Child, err: &Path) {
    let start = Instant::now();
    while !file.exists() {
        let ended = job.try_wait().expect("our own child");
        let said = || fs::read_to_string(err).unwrap_or_default();
        assert!(ended.is_none(), "it has ended before its time: {ended:?}\n{}", said());
        assert!(start.elapsed() < PATIENCE, "no rank works\n{}", said());
        sleep(LOOK);
    }
}

/// Under each library, the job fails in time, says why in these words, and leaves nothing.
#[track_caller]
fn everywhere(deed: &str, act: impl Fn(&mut World), words: &[&str]) {
    // All of them first, so that the output tells of each.
    let all: Vec<_> = World::each(2).map(|mut world| fail(&mut world, deed, &act)).collect();
    for ended in all {
        assert!(ended.code.is_some_and(|code| code != 0), "{ended:?}");
        assert!(ended.took < BOUND && ended.gone < BOUND, "{ended:?}");
        assert_eq!(ended.left, [], "{ended:?}");
        for word in words {
            assert!(ended.err.contains(word), "{word}: {ended:?}");
        }
    }
}

#[test]
fn a_panic() {
    everywhere("panic", |_| (), &["rank 2", "panicked: deliberate at tests/hosts/failures.rs:"]);
}

#[test]
fn an_error() {
    everywhere("error", |_| (), &["rank 2", "returned an error: deliberate"]);
}

#[test]
#[ignore = "ranks in a native collective do not learn that a peer has left the block"]
fn an_early_end() {
    everywhere("leave", |_| (), &["rank 2", "allreduce"]);
}

#[test]
fn an_exit() {
    everywhere("exit", |_| (), &["rank 2"]);
}

#[test]
fn a_kill() {
    everywhere("kill", |_| (), &["rank 2"]);
}

#[test]
#[ignore = "nobody notices that a peer has fallen silent: the job goes on for ever"]
fn a_cable_that_is_cut() {
    everywhere("cut", |world| world.hosts.cut(OTHER), &["rank"]);
}

#[test]
#[ignore = "nobody notices that a peer has fallen silent: the job goes on for ever"]
fn a_host_that_is_gone() {
    everywhere("gone", |world| world.hosts.kill(OTHER), &["rank"]);
}
