//! Jobs on two hosts in which a rank makes a mistake, or that lose a rank, a cable or a host.
//!
//! The program of a job is the test [`program`], which `spmdrun` starts again as each rank. Ranks 0
//! and 1 are on the host where the launcher is, 2 and 3 on the other, where what fails fails.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Signal, getpid, kill_process};
use spmd::prelude::*;
use spmd_conformance::full;

use crate::mistakes::{self, MISTAKES};
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

/// What is said of the other host's ranks.
const LOST: &[&str] =
    &["rank 2 failed|rank 3 failed", "its process has ended, or its host cannot be reached"];
/// What `spmdrun` says of MPI's launcher, which waits for ever for a host that has fallen silent,
/// though all ranks that it can reach have ended.
const WAITED: &str = "did not end by itself, and was ended";

/// How long ranks may go on. Five seconds are promised, to which comes what a machine takes on
/// which much else runs.
const BOUND: Duration = Duration::from_secs(6);
/// How long whatever belongs to the job may go on after that, and how long if MPI's launcher must
/// be ended, which is given some seconds first to end by itself.
const END: Duration = Duration::from_secs(2);
const ENDED: Duration = Duration::from_secs(9);
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
    let known = MISTAKES.iter().find(|(name, ..)| *name == deed);
    if known.is_some() {
        mistakes::leave_other_threads();
    }
    let result =
        run(|ctx| known.map_or_else(|| work(ctx, &deed, &file), |it| err(ctx, it.1, &file)));
    if let Err(error) = result {
        // In one piece, not to be mixed with what others write.
        let _ = std::io::stderr().write_all(format!("told: {error}\n").as_bytes());
        std::process::exit(1);
    }
    if known.is_some() {
        mistakes::end(Ok(()));
    }
}

fn err(ctx: &Ctx, mistake: fn(&Ctx) -> Result<()>, file: &str) -> Result<()> {
    ctx.barrier()?;
    if ctx.rank() == 0 {
        fs::write(file, "now")?;
    }
    ctx.barrier()?;
    mistake(ctx)?;
    ctx.barrier()
}

/// For ever, unless something fails.
fn work(ctx: &Ctx, deed: &str, file: &str) -> Result<()> {
    let mut data = vec![1.0; 1000];
    for turn in 0.. {
        ctx.allreduce_in_place(&mut data, Max)?;
        if turn == 100 && ctx.rank() == RANK {
            fs::write(file, "now")?;
            if deed == "kill" {
                kill_process(getpid(), Signal::KILL).expect("a process may signal itself");
            }
        }
    }
    Ok(())
}

/// How a job ended.
#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    /// What it wrote.
    said: String,
    /// From the deed to the end of the last rank.
    ranks: Duration,
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
    let (file, out) = (folder.join("deed"), folder.join("output"));
    let _ = fs::remove_file(&file);
    let mut command = again(world.spmdrun(2, 1), "failures::program");
    command.env(DEED, deed).env(FILE, &file).env("RUST_BACKTRACE", "0");
    let output = fs::File::create(&out).expect("our own folder");
    command.stdout(output.try_clone().expect("our own file")).stderr(output);
    let mut job = command.spawn().expect("nsenter starts");
    wait_for(&file, &mut job, &out);
    let start = Instant::now();
    act(world);
    let (mut code, mut took, mut ranks) = (None, None, None);
    while start.elapsed() < PATIENCE {
        if took.is_none()
            && let Some(status) = job.try_wait().expect("our own child")
        {
            (code, took) = (status.code(), Some(start.elapsed()));
        }
        if ranks.is_none() && of(world, &is_rank).is_empty() {
            ranks = Some(start.elapsed());
        }
        if took.is_some() && left(world, deed).is_empty() {
            break;
        }
        sleep(LOOK);
    }
    let gone = start.elapsed();
    let left = left(world, deed);
    let _ = job.kill();
    let _ = job.wait();
    let text = fs::read_to_string(&out).unwrap_or_default();
    // Where nothing is left, the last rank may have ended since it was looked for ranks.
    let last = if left.is_empty() { gone } else { PATIENCE };
    let (took, ranks) = (took.unwrap_or(PATIENCE), ranks.unwrap_or(last));
    println!(
        "{}: {deed}: no rank after {:.2} s, status {code:?} after {:.2} s, nothing after {:.2} s, \
         left {left:?}\n{text}",
        world.mpi.name,
        ranks.as_secs_f64(),
        took.as_secs_f64(),
        gone.as_secs_f64()
    );
    Ended { code, said: text, ranks, took, gone, left }
}

/// Of what runs on the hosts, those with such a command line.
fn of(world: &World, is: &dyn Fn(&str) -> bool) -> Vec<u32> {
    let running = world.hosts.running().into_iter();
    running.filter(|(_, line)| is(line)).map(|(pid, _)| pid).collect()
}

/// What is left of the job. Open MPI's daemon on a host that is cut off stays there until TCP gives
/// up what it has to tell the others, which takes a quarter of an hour.
fn left(world: &World, deed: &str) -> Vec<(u32, String)> {
    let daemon = |line: &str| {
        let program = line.split(' ').next().unwrap_or_default();
        deed == "cut" && ["/prted", "/orted", "/sh"].iter().any(|name| program.ends_with(name))
    };
    let running = world.hosts.running().into_iter();
    running.filter(|(_, line)| world.mpi.name != "linked" || !daemon(line)).collect()
}

fn is_rank(line: &str) -> bool {
    let test = std::env::current_exe().expect("a test knows its own path");
    line.starts_with(&*test.to_string_lossy())
}

fn wait_for(file: &Path, job: &mut Child, out: &Path) {
    let start = Instant::now();
    while !file.exists() {
        let ended = job.try_wait().expect("our own child");
        let said = || fs::read_to_string(out).unwrap_or_default();
        assert!(ended.is_none(), "it has ended before its time: {ended:?}\n{}", said());
        assert!(start.elapsed() < PATIENCE, "no rank works\n{}", said());
        sleep(LOOK);
    }
}

impl Ended {
    /// It failed in time, said why in these words, and left nothing.
    #[track_caller]
    fn check(&self, words: &[&str]) {
        assert!(self.code.is_some_and(|code| code != 0), "{self:?}");
        assert!(self.ranks < BOUND, "{self:?}");
        let end = self.ranks + if self.said.contains(WAITED) { ENDED } else { END };
        assert!(self.took < end && self.gone < end, "{self:?}");
        assert_eq!(self.left, [], "{self:?}");
        for word in words {
            // Any of these.
            let said = word.split('|').any(|word| self.said.contains(word));
            assert!(said, "{word}: {self:?}");
        }
    }
}

/// Under each library, the job fails so.
#[track_caller]
fn everywhere(deed: &str, act: impl Fn(&mut World), check: impl Fn(&Ended)) {
    // All of them first, so that the output tells of each.
    let all: Vec<_> = World::each(2).map(|mut world| fail(&mut world, deed, &act)).collect();
    all.iter().for_each(check);
}

fn mistakes_over(library: &str) {
    // Each library meets a third of them; on one host it meets all.
    let turn = ["mpich", "impi", "linked"].iter().position(|name| *name == library);
    let (first, step) = if full() { (0, 1) } else { (turn.unwrap_or(0), 3) };
    for mut world in World::each(2).filter(|world| world.mpi.name == library) {
        let chosen = MISTAKES.iter().skip(first).step_by(step);
        let each = chosen.map(|(name, _, words)| (fail(&mut world, name, |_| ()), words));
        let all: Vec<_> = each.collect();
        all.iter().for_each(|(ended, words)| ended.check(words));
    }
}

// One each, as most of their time is waiting, which they can do together.
#[test]
fn mistakes_over_mpich() {
    mistakes_over("mpich");
}

#[test]
fn mistakes_over_intel_mpi() {
    mistakes_over("impi");
}

#[test]
fn mistakes_over_what_is_linked() {
    mistakes_over("linked");
}

/// Programs that never let others run.
struct Busy(Vec<Child>);

impl Busy {
    fn start(programs: usize) -> Busy {
        let busy = |_| Command::new("sh").args(["-c", "while :; do :; done"]).spawn();
        Busy((0..programs).map(|it| busy(it).expect("a shell starts")).collect())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Who waits for the library lets others run each time that it looks, and then looks rarely.
#[test]
fn a_cycle_on_busy_cores() {
    let name = "a synchronous send to a rank that has left";
    let words = MISTAKES.iter().find(|(it, ..)| *it == name).expect("a known mistake").2;
    let _busy = Busy::start(3);
    everywhere(name, |_| (), |ended| ended.check(words));
}

/// The failure detector of rank 0 says which rank it was, unless the launcher is faster, which
/// kills that process, too, and then says itself on which host it was.
#[test]
fn a_kill() {
    everywhere("kill", |_| (), |ended| ended.check(&["rank 2 failed|RUNNING AT beta"]));
}

/// The failure detector says what has happened, and so does the last line of `spmdrun`, which ends
/// by itself whatever MPI's launcher does.
#[track_caller]
fn check_lost(ended: &Ended) {
    ended.check(LOST);
    let last = ended.said.lines().last().unwrap_or_default();
    let told = last.contains("cannot be reached") && ended.code == Some(1);
    assert!(told || !ended.said.contains(WAITED), "{ended:?}");
}

#[test]
fn a_cable_that_is_cut() {
    everywhere("cut", |world| world.hosts.cut(OTHER), check_lost);
}

#[test]
fn a_host_that_is_gone() {
    everywhere("gone", |world| world.hosts.kill(OTHER), check_lost);
}
