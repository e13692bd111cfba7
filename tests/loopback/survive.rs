//! Going on when processes fail: `shrink` and `agree`, whatever fails meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use spmd::prelude::*;
use spmd_conformance::full;
use spmd_loopback::{EarlyEnd, Handle, Outcome, ProcessEnd};

use crate::one_failure::{BOUND, split_for_ever, survived};
use crate::survival::{Doom, Kill, STEPS, oracle, survive_by};
use crate::use_all::use_all;
use crate::{Shape, quiet, slow};

const FLAT: Shape = (4, 1, false);

/// How the ranks of a process fail, in what the others do, and the rank that does it.
type Deed = (&'static str, &'static str, usize);

fn fail(ctx: &Ctx, (how, at, victim): Deed, each: usize, handle: &Handle) -> Result<()> {
    let process = victim / each;
    match how {
        "killed" if at == "split" => {
            let handle = handle.clone();
            thread::spawn(move || {
                thread::sleep(Duration::from_millis(7));
                handle.kill(process);
            });
            split_for_ever(ctx).map(drop)
        }
        "killed" => handle.die(process),
        "exits" => handle.exit(process, 7),
        "panics" => panic!("deliberate"),
        _ => Err("deliberate".into()),
    }
}

fn one_fails(ctx: &Ctx, deed: Deed, each: usize, handle: &Handle) -> Result<()> {
    let (_, at, victim) = deed;
    survived(ctx, (at, victim, each), || fail(ctx, deed, each, handle)).map(drop)
}

fn went_on<R>(ran: &Outcome<R>) -> usize {
    ran.ends.iter().filter(|end| matches!(end, ProcessEnd::Returned(Ok(_)))).count()
}

/// Runs each of these at a time with the others: most of their time is waiting.
fn each_fails(shape: Shape, deeds: &'static [Deed]) {
    let run = move |deed: Deed| {
        let job = quiet(shape).survives();
        let handle = job.handle();
        let ran = job.run(move |ctx| one_fails(ctx, deed, shape.1, &handle));
        assert_eq!(went_on(&ran), shape.0 - 1, "{deed:?}, {shape:?}: {ran:?}");
    };
    let threads: Vec<_> = deeds.iter().map(|deed| thread::spawn(move || run(*deed))).collect();
    let ended: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
    assert!(ended.iter().all(|ended| ended.is_ok()), "see above");
}

#[test]
fn one_of_four_fails() {
    each_fails(
        FLAT,
        &[
            ("killed", "collective", 2),
            ("killed", "receive", 2),
            ("killed", "send", 1),
            ("killed", "other", 1),
            ("killed", "computing", 3),
            ("killed", "split", 1),
            ("killed", "collective", 0),
            ("killed", "receive", 0),
            ("exits", "collective", 1),
            ("panics", "receive", 2),
            ("fails", "computing", 0),
        ],
    );
}

const OF_SEVERAL: &[Deed] = &[
    ("killed", "collective", 2),
    ("killed", "receive", 5),
    ("killed", "split", 1),
    ("fails", "computing", 0),
];

#[test]
fn a_process_of_several_threads_fails() {
    each_fails((3, 2, false), OF_SEVERAL);
}

#[test]
fn a_process_of_several_virtual_ranks_fails() {
    each_fails((3, 2, true), OF_SEVERAL);
}

/// Two of five processes die while an iteration goes on, one perhaps while others shrink.
#[test]
fn two_of_five_are_killed() {
    let expected = oracle();
    for turn in 0..if full() { 40 } else { 4 } {
        let shape = [(5, 1, false), (5, 2, false), (5, 2, true)][turn as usize % 3];
        let mut random = fastrand::Rng::with_seed(turn);
        let first = random.usize(0..5);
        let second = (first + random.usize(1..5)) % 5;
        let step = random.u64(0..STEPS);
        let other = if random.bool() { step } else { random.u64(0..STEPS) };
        let dooms = [
            (first, Doom { step, micros: random.u64(0..3000) }),
            (second, Doom { step: other, micros: random.u64(0..30_000) }),
        ];
        let job = slow(shape, turn).survives();
        let handle = job.handle();
        let ran = job.run(move |ctx| {
            let process = ctx.rank() / shape.1;
            let handle = handle.clone();
            let kill = Arc::new(move || handle.kill(process)) as Kill;
            let leads = ctx.rank() % shape.1 == 0;
            let mut dooms = dooms.iter().filter(|(doomed, _)| leads && *doomed == process);
            survive_by(ctx, dooms.next().map(|(_, doom)| *doom), &kill)
        });
        assert_eq!(went_on(&ran), 3, "turn {turn}, {shape:?}: {ran:?}");
        for end in &ran.ends {
            match end {
                ProcessEnd::Returned(Ok(hashes)) => {
                    assert!(hashes.iter().all(|hash| *hash == expected))
                }
                end => assert!(matches!(end, ProcessEnd::EarlyEnd(EarlyEnd::Killed)), "{end:?}"),
            }
        }
    }
}

/// Two processes that live are cut off from each other, and the others see both: the higher one
/// ends, and the rest go on without it.
#[test]
fn two_that_live_are_cut_off() {
    let expected = oracle();
    for turn in 0..if full() { 60 } else { 8 } {
        let shape = [(3, 1, false), (3, 2, false), (3, 2, true), (4, 1, false)][turn as usize % 4];
        let mut random = fastrand::Rng::with_seed(turn);
        let (one, other) = [(0, 2), (0, 1), (1, 2)][random.usize(0..3)];
        let doom = Doom { step: random.u64(0..STEPS), micros: random.u64(0..3000) };
        let job = slow(shape, turn).survives();
        let handle = job.handle();
        let ran = job.run(move |ctx| {
            let handle = handle.clone();
            let cut = Arc::new(move || handle.cut(one, other)) as Kill;
            survive_by(ctx, (ctx.rank() == one * shape.1).then_some(doom), &cut)
        });
        let what = format!("turn {turn}, {shape:?}, {one} and {other}: {ran:?}");
        assert_eq!(went_on(&ran), shape.0 - 1, "{what}");
        for (process, end) in ran.ends.iter().enumerate() {
            match end {
                ProcessEnd::Returned(Ok(hashes)) => {
                    assert!(hashes.iter().all(|hash| *hash == expected), "{what}")
                }
                end => {
                    assert!(matches!(end, ProcessEnd::EarlyEnd(EarlyEnd::Killed)), "{what}");
                    assert_eq!(process, other, "{what}");
                }
            }
        }
        assert!(ran.printed().contains("have lost the connection between them"), "{what}");
    }
}

/// Flags are agreed on, and a failure is the same on all.
#[test]
fn agreements() {
    for shape in [FLAT, (4, 2, false), (4, 2, true)] {
        let job = quiet(shape).survives();
        let handle = job.handle();
        let ran = job.run(move |ctx| {
            let (process, each) = (ctx.rank() / shape.1, shape.1);
            assert_eq!(ctx.agree(u64::MAX << ctx.rank())?, u64::MAX << (ctx.size() - 1));
            if ctx.rank() == each {
                handle.die(process);
            }
            let failed = ctx.agree(1).unwrap_err();
            let of_it = |rank| rank / each == 1;
            assert!(matches!(&failed, Error::PeerFailed(it) if of_it(it.rank)), "{failed}");
            let comm = ctx.shrink()?;
            let all = (1u64 << comm.size()) - 1;
            assert_eq!(comm.agree(all - (1 << comm.rank()))?, 0);
            Ok(())
        });
        assert_eq!(went_on(&ran), 3, "{shape:?}: {ran:?}");
    }
}

/// The ends of a block wait for each other: not for one that is killed there.
#[test]
fn one_is_killed_as_it_leaves() {
    for seed in 0..6 {
        let job = quiet(FLAT).survives();
        let (handle, start) = (job.handle(), Instant::now());
        let ran = job.run(move |ctx| {
            ctx.barrier()?;
            if ctx.rank() == 2 {
                let handle = handle.clone();
                thread::spawn(move || {
                    thread::sleep(Duration::from_micros(seed * 300));
                    handle.kill(2);
                });
            }
            Ok(())
        });
        for end in &ran.ends {
            // Whether the others had come to their end before decides what they get.
            let told = |error: &Error| matches!(error, Error::PeerFailed(it) if it.rank == 2);
            let fits = match end {
                ProcessEnd::Returned(result) => result.as_ref().err().is_none_or(told),
                ProcessEnd::EarlyEnd(_) => true,
            };
            assert!(fits, "{end:?}");
        }
        assert!(start.elapsed() < 2 * BOUND, "{:?}", start.elapsed());
    }
}

/// Blocks that come after a loss are of those that are left alone.
#[test]
fn several_blocks_after_a_loss() {
    let job = quiet(FLAT).survives().blocks(4);
    let handle = job.handle();
    let blocks: Arc<[AtomicUsize]> = (0..4).map(|_| AtomicUsize::new(0)).collect();
    let ran = job.run(move |ctx| {
        if blocks[ctx.rank()].fetch_add(1, Relaxed) == 0 {
            if ctx.rank() == 1 {
                handle.die(1);
            }
            return ctx.shrink()?.barrier();
        }
        let failed = ctx.barrier().unwrap_err();
        assert!(matches!(&failed, Error::PeerFailed(it) if it.rank == 1), "{failed}");
        let comm = ctx.shrink()?;
        assert_eq!(comm.size(), 3);
        use_all(&comm)
    });
    assert_eq!(went_on(&ran), 3, "{ran:?}");
}

/// One that returns while others shrink is told of, where a library would wait for it for ever.
#[test]
fn all_that_live_must_take_part() {
    let ran = quiet((3, 1, false)).survives().run(|ctx| {
        if ctx.rank() > 0 {
            return Ok(());
        }
        let alone = ctx.shrink().expect_err("the others have returned");
        assert!(alone.to_string().contains("has left its block"), "{alone}");
        Ok(())
    });
    assert_eq!(went_on(&ran), 3, "{ran:?}");
}

#[test]
fn a_mistake_ends_the_job() {
    for shape in [(3, 1, false), (2, 2, true)] {
        let cycle = |ctx: &Ctx| ctx.recv(&mut [0], (ctx.rank() + 1) % ctx.size(), 0).map(drop);
        let ran = quiet(shape).survives().run(cycle);
        assert!(went_on(&ran) == 0 && ran.printed().contains("deadlock"), "{ran:?}");
    }
}
