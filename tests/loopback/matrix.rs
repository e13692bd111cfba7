//! What is right: the conformance matrix, messages, communicators, random programs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::thread;
use std::time::{Duration, Instant};

use spmd::prelude::*;
use spmd::{ANY, Progress};
use spmd_conformance::{
    communicators, full, messages, persistent, random, requests, started, windows,
};
use spmd_loopback::Job;
use spmd_matrix::{Choice, cases};

use crate::{SHAPES, Shape, quiet, slow};

const ALL: Choice = Choice { all_layouts: true, all_types: true };
const ALL_TYPES: Choice = Choice { all_layouts: false, all_types: true };
const ONE_TYPE: Choice = Choice { all_layouts: false, all_types: false };

/// With a sanitizer each takes a minute.
fn takes_long() -> bool {
    cfg!(sanitizer) && !full()
}

/// All shapes, or where that takes long: threads where the sanitizer looks for what these do at a time, and
/// virtual ranks where it looks for where they read and write.
fn chosen() -> &'static [Shape] {
    let threads = SHAPES.iter().take_while(|(.., coroutines)| !coroutines).count();
    match (takes_long(), cfg!(races)) {
        (false, _) => &SHAPES,
        (true, true) => &SHAPES[..threads],
        (true, false) => &SHAPES[threads..],
    }
}

/// Where it takes long, on several ranks a process.
#[track_caller]
fn everywhere(
    job: impl Fn(Shape) -> Job,
    body: impl Fn(&Ctx) -> Result<()> + Send + Sync + Clone + 'static,
) {
    let several = chosen().iter().filter(|(_, each, _)| !takes_long() || *each > 1);
    for &shape in several.take(if takes_long() { 1 } else { SHAPES.len() }) {
        let ran = job(shape).run(body.clone());
        ran.results().map(drop).unwrap_or_else(|error| panic!("{shape:?}: {error}"));
    }
}

/// Two ranks, of which each has the other one, only where it does not take long.
#[track_caller]
fn in_pairs(body: impl Fn(&Ctx) -> Result<()> + Send + Sync + 'static) {
    if !takes_long() {
        let two = quiet((2, 1, false)).with_other_threads().run(body);
        two.results().expect("two ranks send to each other");
    }
}

/// Of networks that are slow; with a sanitizer each takes a quarter of a minute.
fn slow_seeds() -> std::ops::Range<u64> {
    0..match (full(), cfg!(sanitizer)) {
        (true, _) => 20,
        (false, true) => 1,
        (false, false) => 2,
    }
}

#[test]
fn every_collective() {
    everywhere(quiet, |ctx| cases(ctx, if full() { ALL } else { ONE_TYPE }));
}

#[test]
fn every_type() {
    let choice = if full() { ALL } else { ALL_TYPES };
    // Short data in several pieces: long ones of each type take long to make and to compare.
    let job = Job::new(3, 1).block(|block| block.segment(1024));
    let ran = job.run(move |ctx| cases(ctx, choice));
    ran.results().expect("every type goes between processes");
}

/// As over a library that does not fold.
#[test]
fn every_collective_folded_by_ranks() {
    for shape in [(3, 2, false), (2, 3, true)] {
        let ran = quiet(shape).without_folds().run(|ctx| cases(ctx, ONE_TYPE));
        ran.results().unwrap_or_else(|error| panic!("{shape:?}: {error}"));
    }
}

#[test]
fn every_call_of_windows() {
    everywhere(quiet, windows::all);
}

#[test]
fn windows_over_a_slow_network() {
    for seed in slow_seeds() {
        let shape = SHAPES[seed as usize % SHAPES.len()];
        let ran = slow(shape, seed).run(windows::all);
        ran.results().unwrap_or_else(|error| panic!("seed {seed}, {shape:?}: {error}"));
    }
}

#[test]
fn every_kind_of_message() {
    everywhere(|shape| quiet(shape).with_other_threads(), messages::all);
    in_pairs(messages::all);
}

#[test]
fn messages_as_requests() {
    everywhere(|shape| quiet(shape).with_other_threads(), requests::all);
    in_pairs(requests::all);
    for seed in slow_seeds() {
        let shape = SHAPES[seed as usize % SHAPES.len()];
        let ran = slow(shape, seed).with_other_threads().run(requests::all);
        ran.results().unwrap_or_else(|error| panic!("seed {seed}, {shape:?}: {error}"));
    }
}

#[test]
fn collectives_as_requests() {
    everywhere(quiet, started::all);
    for seed in slow_seeds() {
        let shape = SHAPES[seed as usize % SHAPES.len()];
        let ran = slow(shape, seed).run(started::all);
        ran.results().unwrap_or_else(|error| panic!("seed {seed}, {shape:?}: {error}"));
    }
}

/// A thread beside each rank carries them out.
#[test]
fn collectives_beside_their_ranks() {
    let seeds = if full() {
        0..20
    } else if cfg!(sanitizer) {
        1..2
    } else {
        0..4
    };
    for seed in seeds {
        let shape = SHAPES[seed as usize % 3];
        let job = if seed < 2 { quiet(shape) } else { slow(shape, seed) };
        let ran = job.block(|block| block.progress(Progress::Thread)).run(|ctx| {
            started::all(ctx)?;
            requests::all(ctx)?;
            persistent::all(ctx)?;
            let programs = random::fixed(5);
            programs.iter().try_for_each(|steps| random::execute(ctx, steps))
        });
        ran.results().unwrap_or_else(|error| panic!("seed {seed}, {shape:?}: {error}"));
    }
}

/// Large messages to and from a rank that makes no call, by the thread beside it.
#[test]
fn messages_beside_their_ranks() {
    const LEN: usize = 200_000;
    let (come, gone) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let ran =
        quiet((2, 1, false)).block(|block| block.progress(Progress::Thread)).run(move |ctx| {
            if ctx.rank() == 1 {
                ctx.ssend(&vec![1; LEN], 0, 1)?;
                gone.store(true, Release);
                assert_eq!(ctx.recv_vec::<usize>(0, 2)?.0, vec![2; LEN]);
                come.store(true, Release);
                return Ok(());
            }
            let received = ctx.irecv(vec![0; LEN], ANY, 1)?;
            let sent = ctx.isend(vec![2usize; LEN], 1, 2)?;
            let start = Instant::now();
            while !(gone.load(Acquire) && come.load(Acquire)) {
                assert!(start.elapsed() < Duration::from_secs(60), "{gone:?}, {come:?}");
                thread::yield_now();
            }
            assert_eq!(received.wait()?.0, vec![1; LEN]);
            assert_eq!(sent.wait()?, vec![2; LEN]);
            Ok(())
        });
    ran.results().expect("they go on");
}

#[test]
fn persistent_calls() {
    everywhere(quiet, persistent::all);
}

#[test]
fn messages_that_overtake_each_other() {
    for seed in slow_seeds() {
        let shape = SHAPES[seed as usize % SHAPES.len()];
        let ran = slow(shape, seed).with_other_threads().run(messages::all);
        ran.results().unwrap_or_else(|error| panic!("seed {seed}, {shape:?}: {error}"));
    }
}

#[test]
fn threads_of_a_rank() {
    let shapes = [(2, 2, false), (2, 2, true), (2, 1, false)];
    for &shape in &shapes[..if full() { 3 } else { 2 }] {
        let ran = quiet(shape).with_other_threads().run(communicators::agents);
        ran.results().unwrap_or_else(|error| panic!("{shape:?}: {error}"));
    }
}

/// The same random sequence of calls on every rank.
#[test]
fn random_programs() {
    for (seed, &shape) in (0..).zip(chosen()) {
        let programs = random::fixed(if full() { 300 } else { 20 });
        let ran = slow(shape, seed).run(move |ctx| {
            programs.iter().enumerate().try_for_each(|(number, steps)| {
                let run = random::execute(ctx, steps);
                run.map_err(|error| format!("program {number}: {error}").into())
            })
        });
        ran.results().unwrap_or_else(|error| panic!("seed {seed}, {shape:?}: {error}"));
    }
}

/// A process enters a block after another, each with a world of its own.
#[test]
fn blocks_in_a_row() {
    for shape in SHAPES {
        let ran = slow(shape, 7).blocks(5).run(|ctx| {
            ctx.send(&[ctx.rank()], (ctx.rank() + 1) % ctx.size(), 0)?;
            let from = ctx.recv_vec::<usize>(ANY, 0)?.0[0];
            assert_eq!(from, (ctx.rank() + ctx.size() - 1) % ctx.size());
            ctx.allreduce_value(1usize, Sum)
        });
        let sums = ran.results().unwrap_or_else(|error| panic!("{shape:?}: {error}"));
        assert_eq!(sums, vec![shape.0 * shape.1; shape.0 * shape.1]);
    }
}

/// A step does not hold up a process that others may ask for something.
#[test]
fn windows_are_served_during_barriers() {
    let ran = quiet((2, 1, false)).run(windows::used_during_barriers);
    ran.results().expect("a process in a barrier serves its part");
}

/// Where there is no memory for the part of some rank, those of the others go, too.
#[test]
fn a_window_without_memory_keeps_none() {
    let ran = quiet((2, 2, false)).run(|ctx| {
        let before = mapped();
        // The first rank of the last process has none.
        let n = if ctx.rank() == 2 { usize::MAX / 2 } else { 64 << 20 };
        for _ in 0..64 {
            let error = ctx.window::<u8>(n).map(drop).expect_err("it is too long").to_string();
            assert!(error.contains("no memory for the part of rank 2"), "{error}");
        }
        assert!(mapped() < before + (2 << 30), "{before}, then {}", mapped());
        ctx.barrier()
    });
    ran.results().expect("an error leaves the ranks as they were");
}

/// How many bytes the process has mapped.
fn mapped() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
    let pages = pages.split(' ').next().and_then(|all| all.parse::<usize>().ok());
    pages.expect("it starts with a number") * rustix::param::page_size()
}

/// What is put goes ahead of a target that does nothing for it by a bound, beyond which it waits.
#[test]
fn puts_are_bounded() {
    for shape in [(2, 1, false), (2, 1, true)] {
        // The target is outside the library until the first is over.
        let (some, all) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let ran = quiet(shape).with_other_threads().run(move |ctx| {
            let window = ctx.window::<u64>(1 << 20)?;
            window.lock_all()?;
            if ctx.rank() == 0 {
                window.put(&vec![7; 100 << 10], 1, 0)?;
                some.store(true, Release);
                window.put(&vec![8; 1 << 20], 1, 0)?;
                all.store(true, Release);
                window.flush(1)?;
            } else {
                while !some.load(Acquire) {
                    thread::yield_now();
                }
                thread::sleep(Duration::from_millis(300));
                assert!(!all.load(Acquire), "8 MiB were put without an answer");
            }
            window.unlock_all()?;
            window.fence()?;
            if ctx.rank() == 1 {
                assert!(window.read(..)?.iter().all(|it| *it == 8));
            }
            Ok(())
        });
        ran.results().unwrap_or_else(|error| panic!("{shape:?}: {error}"));
    }
}

/// A sender of more small messages than the window has room for waits until they are received.
#[test]
fn a_flood_is_bounded_by_the_window() {
    for shape in [(2, 1, false), (2, 2, true)] {
        let job = slow(shape, 3).block(move |block| {
            let block = block.window(64 << 10);
            if shape.2 { block.virtual_ranks() } else { block }
        });
        let ran = job.run(|ctx| {
            let (last, mut word) = (ctx.size() - 1, [0u64; 16]);
            for number in 0..5000u64 {
                word[15] = number;
                match ctx.rank() {
                    0 => ctx.send(&word, last, 3)?,
                    rank if rank == last => {
                        ctx.recv(&mut word, 0, 3)?;
                        assert_eq!(word[15], number);
                    }
                    _ => {}
                }
            }
            Ok(())
        });
        ran.results().unwrap_or_else(|error| panic!("{shape:?}: {error}"));
    }
}

/// Lists of counts with one hash, which ranks of one process call with: what a leader writes by its
/// own must not go beyond the buffer of another.
#[test]
fn counts_of_one_hash() {
    const MINE: [usize; 4] = [457_522, 1, 498_696, 38_931_267];
    const OTHER: [usize; 4] = [332_307, 1, 691_461, 32_530_663];
    let ran = quiet((2, 2, false)).run(|ctx| {
        let counts = if ctx.rank() == 1 { OTHER } else { MINE };
        let mut all = vec![7u8; MINE.iter().sum()];
        let (recv, behind) = all.split_at_mut(counts.iter().sum());
        let send = vec![1u8; counts[ctx.rank()]];
        let error = ctx.allgatherv(&send, recv, &counts).expect_err("the counts differ");
        assert!(behind.iter().all(|byte| *byte == 7), "written beyond the buffer: {error}");
        Err::<(), _>(error)
    });
    let text = ran.printed();
    assert!(text.contains("calls do not match"), "{text}");
}
