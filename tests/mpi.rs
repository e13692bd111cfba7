//! Worlds whose processes are joined by MPI: the conformance matrix on each library with MPI's
//! standard interface that `cargo xtask test mpi` has installed, flat and with several ranks a
//! process.

#![cfg(target_os = "linux")]

#[path = "mpi/failures.rs"]
mod failures;
#[path = "support/mistakes.rs"]
mod mistakes;
#[path = "mpi/polling.rs"]
mod polling;
#[path = "mpi/progress.rs"]
mod progress;
mod support;
#[path = "mpi/windows.rs"]
mod windows;

use std::time::{Duration, Instant};

use mistakes::is_last;
use spmd::prelude::*;
use spmd_conformance::{communicators, full, messages, persistent, random, requests, started};
use spmd_matrix::{Choice, cases};
use support::{Mpi, across_to_its_end, cluster};

const ALL: Choice = Choice { all_layouts: true, all_types: true };
const ALL_TYPES: Choice = Choice { all_layouts: false, all_types: true };
const ONE_TYPE: Choice = Choice { all_layouts: false, all_types: false };

/// Processes, ranks of each, and what they are.
type Place = (usize, usize, &'static str);

const FLAT: Place = (2, 1, "threads");

/// In the first place with all libraries, in each of the others with one of them by turns, or, under
/// `--full`, with all.
fn everywhere(
    test: &str,
    places: &[Place],
    settings: &[(&str, &str)],
    body: impl Fn(&Ctx) -> Result<()> + Sync,
) -> Result<()> {
    let libraries = Mpi::all();
    for (number, mpi) in libraries.iter().enumerate() {
        for (at, place) in places.iter().enumerate() {
            if full() || at == 0 || at % libraries.len() == number {
                cluster(test, mpi, *place, settings, &body)?;
            }
        }
    }
    Ok(())
}

/// All places but the last, or all under `--full`.
fn most(places: &[Place]) -> &[Place] {
    if full() { places } else { &places[..places.len() - 1] }
}

#[test]
fn flat() -> Result<()> {
    let places = [3, 4, 1, 2].map(|processes| (processes, 1, "threads"));
    everywhere("flat", most(&places), &[], |ctx| {
        cases(ctx, if ctx.size() == 3 && full() { ALL } else { ONE_TYPE })
    })
}

/// Of the standard interface, which makes them the same with each library.
#[test]
fn every_type() -> Result<()> {
    for mpi in Mpi::all().iter().take(1) {
        cluster("every_type", mpi, FLAT, &[], |ctx| cases(ctx, ALL_TYPES))?;
    }
    Ok(())
}

#[test]
fn flat_in_the_canonical_order() -> Result<()> {
    let places = [3, 4, 2].map(|processes| (processes, 1, "threads"));
    let settings = [("SPMD_REPRODUCIBLE", "1")];
    everywhere("flat_in_the_canonical_order", most(&places), &settings, |ctx| cases(ctx, ONE_TYPE))
}

#[test]
fn hybrid_of_threads() -> Result<()> {
    let places = [(3, 2, "threads"), (1, 3, "threads"), (2, 2, "threads")];
    // What becomes of each type between processes, `flat` sees.
    everywhere("hybrid_of_threads", most(&places), &[], |ctx| cases(ctx, ONE_TYPE))
}

#[test]
fn hybrid_of_virtual_ranks() -> Result<()> {
    let places = [(2, 3, "virtual"), (1, 4, "virtual"), (3, 4, "virtual")];
    everywhere("hybrid_of_virtual_ranks", most(&places), &[], |ctx| cases(ctx, ONE_TYPE))
}

/// The library folds where every process knows the operation for its own.
#[test]
#[expect(clippy::needless_borrows_for_generic_args, reason = "a reference is an operation, too")]
fn an_operation_by_reference_in_one_process() -> Result<()> {
    let places = [(2, 1, "threads"), (2, 2, "threads")];
    everywhere("an_operation_by_reference_in_one_process", &places, &[], |ctx| {
        let sum = match ctx.rank() {
            0 => ctx.allreduce_value(1.5, Sum)?,
            _ => ctx.allreduce_value(1.5, &Sum)?,
        };
        assert_eq!(sum, 1.5 * ctx.size() as f64);
        Ok(())
    })
}

#[test]
fn messages() -> Result<()> {
    let places = [(2, 1, "threads"), (3, 1, "threads"), (2, 2, "threads"), (2, 2, "virtual")];
    everywhere("messages", &places, &[], messages::all)
}

#[test]
fn messages_as_requests() -> Result<()> {
    let places = [(2, 1, "threads"), (3, 1, "threads"), (2, 2, "virtual")];
    everywhere("messages_as_requests", &places, &[], requests::all)
}

#[test]
fn collectives_as_requests() -> Result<()> {
    let places = [(2, 1, "threads"), (2, 2, "virtual"), (3, 2, "threads")];
    everywhere("collectives_as_requests", most(&places), &[], started::all)
}

/// Nobody rings where what comes from other processes brings a started call further: its rank looks.
#[test]
fn started_calls_wait_no_longer_than_others() -> Result<()> {
    everywhere("started_calls_wait_no_longer_than_others", &[(3, 1, "threads")], &[], |ctx| {
        let start = Instant::now();
        for _ in 0..1000 {
            ctx.barrier_start()?.wait()?;
        }
        // It took half a minute where each slept until it was overdue.
        assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
        Ok(())
    })
}

#[test]
fn persistent_calls() -> Result<()> {
    let places = [(2, 1, "threads"), (2, 2, "virtual")];
    everywhere("persistent_calls", &places, &[], persistent::all)
}

/// The same random sequence of calls on every rank.
#[test]
fn random_programs() -> Result<()> {
    let programs = random::fixed(if full() { 300 } else { 20 });
    let places = [(2, 1, "threads"), (3, 1, "threads"), (2, 2, "threads"), (2, 3, "virtual")];
    everywhere("random_programs", &places, &[], |ctx| {
        programs.iter().enumerate().try_for_each(|(number, steps)| {
            let run = random::execute(ctx, steps);
            run.map_err(|error| format!("program {number}: {error}").into())
        })
    })
}

/// Threads of a rank make communicators at a time, in any order, and use them.
fn communicators_at_a_time(ctx: &Ctx) -> Result<()> {
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let comm = ctx.dup()?;
            let make = move || {
                for round in 0..20 {
                    let rank = comm.rank();
                    let part = comm.split(Some(((rank + round) % 2) as u32), 0)?.expect("a color");
                    let dup = part.dup()?;
                    assert_eq!(dup.allreduce_value(1, Sum)?, part.size());
                }
                Ok(())
            };
            Ok(std::thread::spawn(make))
        })
        .collect::<Result<_>>()?;
    // A virtual rank must not block its worker, on which others run.
    while threads.iter().any(|thread: &std::thread::JoinHandle<Result<()>>| !thread.is_finished()) {
        ctx.iprobe(ANY, ANY)?;
    }
    threads.into_iter().try_for_each(|thread| thread.join().expect("a failure is an error"))
}

#[test]
fn communicators_made_at_a_time() -> Result<()> {
    let places = [(2, 1, "threads"), (3, 1, "threads"), (2, 2, "threads"), (2, 3, "virtual")];
    everywhere("communicators_made_at_a_time", &places, &[], communicators_at_a_time)
}

/// Libraries don't match calls that wait with calls that don't, so all processes must make the
/// same, whatever other communicators each of them has.
#[test]
fn communicators_held_for_different_times() -> Result<()> {
    let places = [(2, 1, "threads"), (3, 1, "threads")];
    everywhere("communicators_held_for_different_times", &places, &[], |ctx| {
        for turn in 0..6 {
            let held = ctx.dup()?;
            let held = Some(held).filter(|_| (ctx.rank() + turn) % 2 == 0);
            for round in 0..4 {
                assert_eq!(ctx.allreduce_value(1, Sum)?, ctx.size());
                if round == 2 {
                    ctx.barrier()?;
                }
            }
            drop(held);
            assert_eq!(ctx.allgather_value(turn)?, vec![turn; ctx.size()]);
        }
        Ok(())
    })
}

#[test]
fn agents() -> Result<()> {
    let places = [(2, 1, "threads"), (2, 2, "virtual"), (2, 2, "threads")];
    everywhere("agents", most(&places), &[], communicators::agents)
}

/// A setting for one process would make each of several a world of its own.
#[test]
fn the_number_of_ranks_of_a_lone_process_is_refused() -> Result<()> {
    let test = "the_number_of_ranks_of_a_lone_process_is_refused";
    for mpi in Mpi::all() {
        let (place, ranks) = ((2, 1, "threads"), [("SPMD_RANKS", "2")]);
        let ran = across_to_its_end(test, &mpi, place, &ranks, |_| Ok(()))?;
        let said = |ran: support::Ran| ran.out + &ran.err;
        let words = "SPMD_RANKS=2 gives a process that runs alone its ranks";
        assert!(ran.map(said).is_none_or(|said| said.contains(words)), "{}", mpi.name);
    }
    Ok(())
}

/// A rank that computes for ever holds the others up no longer than the limit.
#[test]
fn the_time_limit_ends_a_call_of_the_library() -> Result<()> {
    let test = "the_time_limit_ends_a_call_of_the_library";
    for mpi in Mpi::all() {
        for place in [(2, 1, "threads"), (2, 2, "threads")] {
            let start = Instant::now();
            let body = |ctx: &Ctx| {
                if is_last(ctx) {
                    std::thread::sleep(Duration::from_secs(60));
                }
                ctx.barrier()
            };
            let limit = [("SPMD_TIMEOUT", "1.5")];
            let Some(ran) = across_to_its_end(test, &mpi, place, &limit, body)? else { continue };
            let words = "longer than the limit of 1.5s";
            let told = ran.err.contains(words) && ran.err.contains("barrier at tests/mpi.rs");
            assert!(ran.code != Some(0) && told, "{}, {place:?}: {ran:?}", mpi.name);
            assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
        }
    }
    Ok(())
}

/// What this process has had in memory at most, in MiB.
fn most_memory() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("there is one");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("it has one");
    let kib = line.trim().trim_end_matches("kB").trim();
    kib.parse::<usize>().expect("a number") / 1024
}

/// Ranks of one process share what they know of a communicator.
#[test]
fn communicators_of_thousands() -> Result<()> {
    const EACH: usize = 2000;
    everywhere("communicators_of_thousands", &[(2, EACH, "virtual")], &[], |ctx| {
        for _ in 0..5 {
            let copy = ctx.dup()?;
            assert_eq!(copy.allreduce_value(1usize, Sum)?, 2 * EACH);
        }
        let ten = ctx.split(Some((ctx.rank() % EACH / 5) as u32), 0)?.expect("a color is given");
        assert_eq!((ten.size(), ten.allreduce_value(1usize, Sum)?), (10, 10));
        // A word of each rank for each would be 64 MiB for a communicator.
        assert!(most_memory() < 512, "{} MiB", most_memory());
        Ok(())
    })
}

/// More messages than the library is given at a time, sent as the last thing that a rank does.
#[test]
fn what_is_sent_last_comes() -> Result<()> {
    const MESSAGES: u64 = 2000;
    let places = [(2, 1, "threads"), (2, 2, "virtual")];
    everywhere("what_is_sent_last_comes", &places, &[], |ctx| {
        let mut number = 0;
        for sent in 0..MESSAGES {
            if is_last(ctx) {
                ctx.send(&[sent], 0, 3)?;
            } else if ctx.rank() == 0 {
                ctx.recv(std::slice::from_mut(&mut number), ctx.size() - 1, 3)?;
                assert_eq!(number, sent);
            }
        }
        Ok(())
    })
}

/// A sender of more small messages than the window has room for waits until they are received, and
/// what waits is kept by its own process: a library takes several times the length of a short one.
#[test]
fn a_flood_of_small_messages_is_bounded() -> Result<()> {
    let places = [(2, 1, "threads"), (2, 2, "threads")];
    everywhere("a_flood_of_small_messages_is_bounded", &places, &[], |ctx| {
        let before = most_memory();
        for (words, messages) in [(1, 600_000), (1000, 20_000)] {
            small_messages(ctx, words, messages)?;
        }
        // The window is 64 MiB, of which these are 82 and 160.
        let more = most_memory() - before;
        assert!(more < 128, "{more} MiB");
        Ok(())
    })
}

/// Sends messages of so many words to the last rank, which does something else at first.
fn small_messages(ctx: &Ctx, words: usize, messages: u64) -> Result<()> {
    let mut data = vec![0; words];
    match ctx.rank() {
        0 => {
            for number in 0..messages {
                data[words - 1] = number;
                ctx.send(&data, ctx.size() - 1, 3)?;
            }
        }
        _ if is_last(ctx) => {
            // It has to hold nothing while it does something else.
            std::thread::sleep(Duration::from_secs(1));
            for number in 0..messages {
                ctx.recv(&mut data, 0, 3)?;
                assert_eq!(data[words - 1], number);
            }
        }
        _ => {}
    }
    ctx.barrier()
}

/// Sender and receiver wait for nothing but the data, for longer than the failure detector takes to
/// find a cycle.
#[test]
fn a_message_that_takes_seconds_is_no_deadlock() -> Result<()> {
    everywhere("a_message_that_takes_seconds_is_no_deadlock", &[(2, 1, "threads")], &[], |ctx| {
        let mut data = vec![ctx.rank() as u8; 384 << 20];
        match ctx.rank() {
            0 => ctx.send(&data, 1, 0),
            _ => ctx.recv(&mut data, 0, 0).map(|_| assert!(data.iter().all(|byte| *byte == 0))),
        }
    })
}
