//! Processes joined by MPI that go on when others fail: Open MPI 5 under `mpirun --with-ft ulfm`.
//! What ranks do is in the variable [`DEED`]; how they have ended they say in lines of their own.

#![cfg(all(target_os = "linux", feature = "mpi"))]

#[path = "support/one_failure.rs"]
mod one_failure;
mod support;
#[path = "support/survival.rs"]
mod survival;
#[path = "support/use_all.rs"]
mod use_all;

use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use one_failure::{BOUND, split_for_ever, survived};
use rustix::process::{Pid, Signal, getpid, kill_process};
use spmd::prelude::*;
use support::{Mpi, Ran, is_mpi_process, to_its_end};
use survival::{Doom, STEPS, die, oracle, survive};
use use_all::use_all;

const DEED: &str = "SPMD_TEST_DEED";

/// Open MPI's failure detector, without which its agreement may not end when two processes die in
/// close succession.
const DETECTOR: [(&str, &str); 3] = [
    ("OMPI_MCA_mpi_ft_detector", "1"),
    ("OMPI_MCA_mpi_ft_detector_period", "0.3"),
    ("OMPI_MCA_mpi_ft_detector_timeout", "1.5"),
];

/// So many processes of this many ranks each, of which some may fail.
fn launch(processes: usize, each: usize) -> Command {
    let mut command = Mpi::all().remove(0).launch(processes, each, "threads");
    command.args(["--with-ft", "ulfm"]).env("RUST_BACKTRACE", "0");
    command
}

/// Whether the library goes on when processes fail: Open MPI does from version 5 on.
fn survives() -> bool {
    let out = support::finish(Command::new(Mpi::all().remove(0).launcher()).arg("--version")).out;
    let version = out.split_once("(Open MPI) ").and_then(|(_, rest)| rest.split('.').next());
    let survives =
        version.and_then(|major| major.parse().ok()).is_some_and(|major: u32| major >= 5);
    if !survives {
        println!("SKIPPED: {} is not Open MPI 5", out.lines().next().unwrap_or_default());
    }
    survives
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Says something that the test counts.
fn say(text: &str) {
    // In one piece, not to be mixed with what others say.
    print!("\n<{text}>\n");
}

fn said(ran: &Ran, text: &str) -> usize {
    ran.out.lines().filter(|line| *line == format!("<{text}>")).count()
}

fn deed() -> String {
    std::env::var(DEED).unwrap_or_default()
}

/// Runs the test `test` in processes that all do `deed`; nothing in these.
fn job(
    test: &str,
    (processes, each): (usize, usize),
    deed: &str,
    body: impl Fn(&Ctx) -> Result<()> + Sync,
) -> Result<Option<Ran>> {
    if !is_mpi_process() && !survives() {
        return Ok(None);
    }
    let ran = to_its_end(test, || launch(processes, each), &[(DEED, deed)], body)?;
    if let Some(ran) = &ran {
        println!("{deed}: status {:?}\n{}\n{}", ran.code, ran.out, ran.err);
    }
    Ok(ran)
}

/// Kills this process in a moment.
fn die_soon() {
    let micros = u64::from(std::process::id()) * 7 % 20_000;
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_micros(micros));
        die()
    });
}

/// What the ranks do of which those of one process fail: how, at what, and whose.
fn one_fails(ctx: &Ctx) -> Result<()> {
    let deed = deed();
    let words: Vec<&str> = deed.split(' ').collect();
    let [how, at, whose] = words[..] else { panic!("{deed}") };
    let victim: usize = whose.parse().expect("a rank");
    let each = number("SPMD_RANKS_PER_PROCESS").expect("the launcher sets it") as usize;
    let fail = || match how {
        "killed" if at == "split" => {
            die_soon();
            split_for_ever(ctx).map(drop)
        }
        "killed" => die(),
        "exits" => std::process::exit(7),
        "panics" => panic!("deliberate"),
        _ => Err("deliberate".into()),
    };
    if survived(ctx, (at, victim, each), fail)? {
        say("went on");
    }
    Ok(())
}

#[test]
fn one_of_four_fails() -> Result<()> {
    let test = "one_of_four_fails";
    for deed in [
        "killed collective 2",
        "killed receive 2",
        "killed send 1",
        "killed other 1",
        "killed computing 3",
        "killed split 1",
        "killed collective 0",
        "killed receive 0",
        "exits collective 1",
        "panics receive 2",
        "fails computing 0",
    ] {
        if let Some(ran) = job(test, (4, 1), deed, one_fails)? {
            assert_eq!(said(&ran, "went on"), 3, "{deed}");
        }
    }
    Ok(())
}

#[test]
fn a_process_of_several_ranks_fails() -> Result<()> {
    for deed in ["killed collective 2", "killed receive 5", "killed split 1", "fails computing 0"] {
        if let Some(ran) = job("a_process_of_several_ranks_fails", (3, 2), deed, one_fails)? {
            assert_eq!(said(&ran, "went on"), 4, "{deed}");
        }
    }
    Ok(())
}

/// That of the rank that runs here; the variable holds `rank step micros`, with `,` between
/// several.
fn doom(rank: usize) -> Option<Doom> {
    let numbers = |doom: &str| -> Vec<u64> {
        doom.split(' ').map(|number| number.parse().expect("a number")).collect()
    };
    let deed = deed();
    let mine = deed.split(',').map(numbers).find(|doom| doom[0] == rank as u64)?;
    Some(Doom { step: mine[1], micros: mine[2] })
}

#[test]
fn two_of_five_are_killed() -> Result<()> {
    let test = "two_of_five_are_killed";
    let iteration = |ctx: &Ctx| {
        let hash = survive(ctx, doom(ctx.rank()))?;
        say(&format!("result {hash}"));
        Ok(())
    };
    if is_mpi_process() {
        // The number of this process's job is not known here.
        return spmd::run(iteration).map(drop);
    }
    if !survives() {
        return Ok(());
    }
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
    let seed = number("SPMD_TEST_SEED").unwrap_or_else(now);
    println!("SPMD_TEST_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut below = |limit: u64| random.u64(..limit);
    let result = format!("result {}", oracle());
    for turn in 0..number("SPMD_TEST_SURVIVALS").unwrap_or(5) {
        let first = below(5);
        let second = (first + 1 + below(4)) % 5;
        let step = below(STEPS);
        // Now and then in the same step, so that one dies while others shrink.
        let other = if below(3) == 0 { step } else { below(STEPS) };
        let deed = format!("{first} {step} {},{second} {other} {}", below(3000), below(30_000));
        let launch = || {
            let mut command = launch(5, 1);
            command.envs(DETECTOR);
            command
        };
        let Some(ran) = to_its_end(test, launch, &[(DEED, &deed)], iteration)? else { break };
        println!("{deed}: status {:?}\n{}\n{}", ran.code, ran.out, ran.err);
        assert_eq!(said(&ran, &result), 3, "turn {turn}: {deed}");
    }
    Ok(())
}

/// Flags are agreed on, and a failure is the same on all.
#[test]
fn agreements() -> Result<()> {
    let ran = job("agreements", (4, 1), "agree", |ctx| {
        assert_eq!(ctx.agree(u64::MAX << ctx.rank())?, u64::MAX << 3);
        if ctx.rank() == 1 {
            die();
        }
        let failed = ctx.agree(1).unwrap_err();
        assert!(matches!(&failed, Error::PeerFailed(peer) if peer.rank == 1), "{failed}");
        let comm = ctx.shrink()?;
        assert_eq!(comm.agree(0b111 - (1 << comm.rank()))?, 0);
        say("agreed");
        Ok(())
    })?;
    assert!(ran.is_none_or(|ran| said(&ran, "agreed") == 3));
    Ok(())
}

/// A process that is stopped keeps the others in an agreement, and the job ends in words; or before
/// one, and they get an error.
#[test]
fn one_is_stopped_in_an_agreement() -> Result<()> {
    let body = |ctx: &Ctx| {
        if ctx.rank() == 1 {
            ctx.send(&[getpid().as_raw_nonzero().get()], 0, 0)?;
            std::thread::spawn(|| {
                std::thread::sleep(Duration::from_millis(300));
                kill_process(getpid(), Signal::STOP)
            });
        }
        let stopped = if ctx.rank() == 0 { Some(ctx.recv_vec::<i32>(1, 0)?.0[0]) } else { None };
        let failed = loop {
            if let Err(error) = ctx.agree(1) {
                break error;
            }
        };
        // The launcher waits for it.
        if let Some(pid) = stopped.and_then(Pid::from_raw) {
            kill_process(pid, Signal::KILL).map_err(std::io::Error::from)?;
        }
        Err(failed)
    };
    let launch = || {
        let mut command = launch(3, 1);
        command.env("SPMD_TIMEOUT", "2");
        command
    };
    if !is_mpi_process() && !survives() {
        return Ok(());
    }
    let start = Instant::now();
    let Some(ran) = to_its_end("one_is_stopped_in_an_agreement", launch, &[], body)? else {
        return Ok(());
    };
    println!("{:?}: status {:?}\n{}\n{}", start.elapsed(), ran.code, ran.out, ran.err);
    let said = ["of its agreement", "longer than the limit"].iter().any(|it| ran.err.contains(it));
    assert!(said && start.elapsed() < 6 * BOUND);
    Ok(())
}

/// The ends of a block wait for each other: not for one that is killed there.
#[test]
fn one_is_killed_as_it_leaves() -> Result<()> {
    let body = |ctx: &Ctx| {
        ctx.barrier()?;
        if ctx.rank() == 2 {
            die_soon();
        }
        Ok(())
    };
    if is_mpi_process() {
        // Whether the others had come to their end before decides what they get.
        let start = Instant::now();
        if let Err(error) = spmd::run(body) {
            assert!(matches!(&error, Error::PeerFailed(peer) if peer.rank == 2), "{error}");
        }
        assert!(start.elapsed() < 2 * BOUND, "{:?}", start.elapsed());
        say("left");
        std::thread::sleep(Duration::from_millis(100));
        return Ok(());
    }
    for _ in 0..5 {
        let Some(ran) = job("one_is_killed_as_it_leaves", (4, 1), "leave", body)? else { break };
        assert!(said(&ran, "left") >= 3);
    }
    Ok(())
}

/// Blocks that come after a loss are of those that are left alone.
#[test]
fn several_blocks_after_a_loss() -> Result<()> {
    let first = |ctx: &Ctx| {
        if ctx.rank() == 1 {
            die();
        }
        ctx.shrink()?.barrier()
    };
    let next = |ctx: &Ctx| {
        let failed = ctx.barrier().unwrap_err();
        assert!(matches!(&failed, Error::PeerFailed(peer) if peer.rank == 1), "{failed}");
        let comm = ctx.shrink()?;
        assert_eq!(comm.size(), 3);
        use_all(&comm)
    };
    if is_mpi_process() {
        spmd::run(first)?;
        for _ in 0..3 {
            spmd::run(next)?;
            say("went on");
        }
        return Ok(());
    }
    let ran = job("several_blocks_after_a_loss", (4, 1), "blocks", first)?;
    assert!(ran.is_none_or(|ran| said(&ran, "went on") == 9 && ran.code == Some(0)));
    Ok(())
}

/// One that returns while others shrink is told of, where MPI would wait for it for ever.
#[test]
fn all_that_live_must_take_part() -> Result<()> {
    let ran = job("all_that_live_must_take_part", (3, 1), "return", |ctx| {
        if ctx.rank() > 0 {
            return Ok(());
        }
        let alone = ctx.shrink().expect_err("the others have returned");
        assert!(alone.to_string().contains("has left its block"), "{alone}");
        say("told");
        Ok(())
    })?;
    assert!(ran.is_none_or(|ran| said(&ran, "told") == 1 && ran.code == Some(0)));
    Ok(())
}

#[test]
fn a_mistake_ends_the_job() -> Result<()> {
    let cycle = job("a_mistake_ends_the_job", (3, 1), "cycle", |ctx| {
        ctx.recv(&mut [0], (ctx.rank() + 1) % ctx.size(), 0).map(drop)
    })?;
    assert!(cycle.is_none_or(|ran| ran.code == Some(101) && ran.err.contains("deadlock")));
    Ok(())
}

/// The one with which a process has ended after its block: as others do at that moment, long after
/// them, or before they come to the next block.
#[test]
fn a_status_is_that_of_the_job() -> Result<()> {
    for when in ["with", "after", "before"] {
        let body = |ctx: &Ctx| ctx.barrier();
        let ran = job("a_status_is_that_of_the_job", (3, 1), when, body)?;
        if is_mpi_process() && deed() == when {
            let fails = number("OMPI_COMM_WORLD_RANK") == Some(1);
            match when {
                "after" if fails => std::thread::sleep(Duration::from_millis(300)),
                "after" => std::process::exit(0),
                "before" if !fails => {
                    let start = Instant::now();
                    let failed = spmd::run(body).expect_err("one has gone");
                    say(&format!("told after {} s: {failed}", start.elapsed().as_secs()));
                    std::process::exit(1);
                }
                _ => (),
            }
            std::process::exit(3);
        }
        assert!(ran.is_none_or(|ran| ran.code == Some(3)), "{when}");
    }
    Ok(())
}

/// Without fault tolerance it is said what is missing.
#[test]
fn elsewhere_it_says_what_is_missing() -> Result<()> {
    support::cluster(
        "elsewhere_it_says_what_is_missing",
        &Mpi::all().remove(0),
        (2, 1, "threads"),
        &[],
        |ctx| {
            for missing in [ctx.shrink().map(drop).unwrap_err(), ctx.agree(1).unwrap_err()] {
                assert!(matches!(missing, Error::Unavailable(_)), "{missing}");
                assert!(missing.to_string().contains("mpirun --with-ft ulfm"), "{missing}");
            }
            Ok(())
        },
    )
}
