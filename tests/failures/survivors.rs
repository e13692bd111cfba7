//! Process ranks that go on when others are killed: at given points, and at random ones of an
//! iteration, `SPMD_TEST_SURVIVALS` times.

use std::time::Duration;

use fastrand::Rng;
use spmd::Fault;
use spmd::prelude::*;

use crate::job::{BOUND, DEED, Ended, Job, exit_with, now, say};
use crate::support::is_process_rank;
use crate::survival::{Doom, STEPS, die, oracle, survive};
use crate::use_all::use_all;

/// That of the rank that runs here; the variable holds `rank step micros`, with `,` between
/// several.
fn doom() -> Option<Doom> {
    let text = std::env::var(DEED).expect("set by the test");
    let rank: u64 = std::env::var("SPMD_RANK").ok()?.parse().ok()?;
    let dooms = text.split(',').map(|doom| -> Vec<u64> {
        doom.split(' ').map(|number| number.parse().expect("a number")).collect()
    });
    let mine = dooms.into_iter().find(|doom| doom[0] == rank)?;
    Some(Doom { step: mine[1], micros: mine[2] })
}

#[test]
#[ignore = "the program of another test"]
fn iteration() {
    if is_process_rank() {
        let doom = doom();
        exit_with(run(|ctx| survive(ctx, doom)).map(|hash| say(&format!("result {}", hash[0]))));
    }
}

#[test]
fn three_of_eight_are_killed() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let turns = number("SPMD_TEST_SURVIVALS").unwrap_or(20);
    let seed = number("SPMD_TEST_SEED").unwrap_or(now() as u64);
    println!("SPMD_TEST_SEED={seed}");
    let mut random = Rng::with_seed(seed);
    let result = format!("result {}", oracle());
    for turn in 0..turns {
        let mut victims: Vec<u64> = (0..8).collect();
        while victims.len() > 3 {
            victims.remove(random.usize(..victims.len()));
        }
        // Now and then in the same step, so that some die while others shrink.
        let together = random.u64(..3) == 0;
        let step = random.u64(..STEPS);
        let doom = |rank: &u64| {
            let step = if together { step } else { random.u64(..STEPS) };
            format!("{rank} {step} {}", random.u64(..3000))
        };
        let deed = victims.iter().map(doom).collect::<Vec<_>>().join(",");
        let case = format!("turn {turn} of seed {seed}: {deed}");
        let ended = Job::start("survivors::iteration", &["-n", "8"], &[(DEED, &deed)]).end();
        assert_eq!(ended.code, Some(0), "{case}: {ended:?}");
        let last = ended.last_line();
        let first = victims.iter().any(|rank| {
            last == format!(
                "spmdrun: rank {rank} failed first: its process was killed by signal 9 (SIGKILL); \
                 5 of 8 ranks finished (without the failed ones)"
            )
        });
        assert!(first, "{case}: {ended:?}");
        let said = ended.said();
        let results: Vec<_> = said.iter().filter(|said| said.text == result).collect();
        assert_eq!(results.len(), 5, "{case}: {ended:?}");
        assert!(ended.took < 5 * BOUND, "{case}: {ended:?}");
    }
}

/// What ranks do in the other tests.
fn deed(name: &str, ctx: &Ctx) -> Result<()> {
    let pause = |millis| std::thread::sleep(Duration::from_millis(millis));
    ctx.barrier()?;
    match (name, ctx.rank()) {
        ("two steps", 1) | ("no end", 1) | ("slow", 1) | ("messages", 1) => die(),
        ("panic", 1) => panic!("deliberate"),
        ("err", 1) => return Err("deliberate".into()),
        ("exit", 1) => std::process::exit(7),
        _ => {}
    }
    if name == "messages" {
        // Its end may be known by now.
        if let Err(error) = ctx.send(&[0u8; 100], 0, 1) {
            assert!(matches!(&error, Error::PeerFailed(peer) if peer.rank == 1), "{error}");
        }
        ctx.sendrecv(&[0u8; 100_000], 0, 2, &mut [0u8; 10], ctx.rank(), 7).expect_err("it died");
    }
    if name == "slow" && ctx.rank() == 2 {
        pause(1200); // longer than the grace, before it learns of the failure
    }
    let error =
        ctx.allreduce_in_place(&mut vec![1.0; 200_000], Sum).expect_err("rank 1 is missing");
    assert!(matches!(&error, Error::PeerFailed(peer) if peer.rank == 1), "{error}");
    if name == "no end" && ctx.rank() == 0 {
        return Err(error);
    }
    let comm = ctx.shrink()?;
    use_all(&comm)?;
    if name == "two steps" && comm.rank() == 1 {
        std::process::exit(5);
    }
    if name == "two steps" {
        // It does not shrink again.
        return comm.barrier();
    }
    Ok(())
}

#[test]
#[ignore = "the program of other tests"]
fn program() {
    if !is_process_rank() {
        return;
    }
    let name = std::env::var(DEED).expect("set by the test");
    let first = run(|ctx| deed(&name, ctx)).map(drop);
    if name != "slow" || first.is_err() {
        exit_with(first);
    }
    // The dead rank is missing in the next block as well.
    exit_with(run(|_| Ok(())).map(drop).and_then(|()| {
        let sizes = run(|ctx| {
            let error = ctx.barrier().expect_err("rank 1 is missing");
            assert!(matches!(error.fault(), Some(Fault::Rank { rank: 1, .. })), "{error}");
            let comm = ctx.shrink()?;
            use_all(&comm)?;
            Ok(comm.size())
        });
        sizes.map(|sizes| assert_eq!(sizes, [3]))
    }));
}

fn job(deed: &str, arguments: &[&str]) -> Ended {
    let arguments: Vec<_> = ["-n", "4"].iter().chain(arguments).copied().collect();
    Job::start("survivors::program", &arguments, &[(DEED, deed)]).end()
}

fn all_but_rank_1_end_well(ended: &Ended, cause: &str) {
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let well = ended.said().iter().filter(|said| said.text == "ended well").count();
    assert_eq!(well, 3, "{ended:?}");
    let last = ended.last_line();
    assert!(last.starts_with(&format!("spmdrun: rank 1 failed first: {cause}")), "{ended:?}");
    assert!(last.ends_with("; 3 of 4 ranks finished (without the failed ones)"), "{ended:?}");
}

#[test]
fn every_way_to_fail_can_be_survived() {
    for (deed, cause) in [
        ("panic", "it panicked: deliberate at tests/failures/survivors.rs:"),
        ("err", "it returned an error: deliberate"),
        ("exit", "its process exited with status 7"),
        ("messages", "its process was killed by signal 9 (SIGKILL)"),
    ] {
        all_but_rank_1_end_well(&job(deed, &[]), cause);
    }
}

/// The launcher lets a rank that computes for longer than the grace come to its next call, as
/// others wait for it in `shrink`.
#[test]
fn a_slow_survivor_and_later_blocks() {
    all_but_rank_1_end_well(
        &job("slow", &["--grace", "300ms"]),
        "its process was killed by signal 9 (SIGKILL)",
    );
}

/// The failure after the one that was survived is the cause.
#[test]
fn a_failure_that_is_not_survived() {
    let ended = job("two steps", &[]);
    assert_eq!(ended.code, Some(5), "{ended:?}");
    let last = "spmdrun: rank 2 failed first: its process exited with status 5";
    assert_eq!(ended.last_line(), last, "{ended:?}");
}

/// A rank that returns the error instead is one more that has failed.
#[test]
fn a_rank_that_does_not_shrink() {
    let ended = job("no end", &[]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let cause = "its process was killed by signal 9 (SIGKILL)";
    let last = format!(
        "spmdrun: rank 1 failed first: {cause}; 2 of 4 ranks finished (without the failed ones)"
    );
    assert_eq!(ended.last_line(), last, "{ended:?}");
}
