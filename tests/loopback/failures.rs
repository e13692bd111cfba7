//! What is wrong: mistakes of ranks, processes that end, connections that break.

use std::thread;
use std::time::{Duration, Instant};

use spmd::prelude::*;
use spmd_conformance::full;
use spmd_loopback::{Job, Outcome};

use crate::mistakes::{MISTAKES, Mistake, is_last};
use crate::{Shape, quiet};

/// Five seconds are promised, to which comes what a machine takes on which much else runs, and what a
/// sanitizer does, with which all takes several times as long.
const BOUND: Duration = Duration::from_secs(if cfg!(sanitizer) { 40 } else { 8 });

/// It failed, and said why in these words, each of which may be one of several.
#[track_caller]
fn check<R: std::fmt::Debug>(on: &str, ran: &Outcome<R>, words: &[&str]) {
    let told = ran.printed();
    let said = |word: &&str| word.split('|').any(|word| told.contains(word));
    assert!(ran.has_failed() && words.iter().all(said), "{on}: {ran:?}, {words:?} expected");
}

fn make((name, mistake, words): &'static Mistake, shape: Shape) {
    let (start, on) = (Instant::now(), format!("{name} on {shape:?}"));
    let ran = quiet(shape).run(|ctx| {
        // What goes before is right.
        ctx.barrier()?;
        mistake(ctx)?;
        ctx.barrier()
    });
    let took = start.elapsed();
    println!("{on}: {:.1} s", took.as_secs_f64());
    check(&on, &ran, words);
    assert!(took < BOUND, "{on} took {took:?}");
}

/// Each is found, whoever makes it. Most of their time is waiting, which several do together.
fn all_mistakes(shapes: &[Shape]) {
    const AT_A_TIME: usize = 8;
    // The library is told of an exit by the system's process.
    let chosen = MISTAKES.iter().filter(|(name, ..)| *name != "an early exit");
    let mut all: Vec<_> =
        chosen.flat_map(|it| shapes.iter().map(move |shape| (it, *shape))).collect();
    while !all.is_empty() {
        let some = all.split_off(all.len().saturating_sub(AT_A_TIME));
        let each = some.into_iter().map(|(it, shape)| thread::spawn(move || make(it, shape)));
        let each: Vec<_> = each.collect();
        let ended: Vec<_> = each.into_iter().map(|thread| thread.join()).collect();
        assert!(ended.iter().all(Result::is_ok), "see above");
    }
}

#[test]
fn mistakes_of_single_ranks() {
    all_mistakes(&[(2, 1, false)]);
}

#[test]
fn mistakes_of_threads() {
    all_mistakes(&[(2, 2, false)]);
}

#[test]
fn mistakes_of_virtual_ranks() {
    all_mistakes(&[(2, 2, true)]);
}

/// A job in which something fails while the ranks meet again and again.
fn meeting(job: Job) -> Outcome<()> {
    job.run(|ctx| {
        let mut data = vec![1.0; 1000];
        loop {
            ctx.allreduce_in_place(&mut data, Max)?;
        }
    })
}

const LOST: &[&str] = &["failed: its process has ended, or its host cannot be reached"];

#[test]
fn a_process_that_is_killed() {
    for shape in [(3, 1, false), (2, 2, false), (3, 2, true)] {
        for before in [20, 101] {
            let start = Instant::now();
            let ran = meeting(quiet(shape).kill(shape.0 - 1, before));
            check(&format!("{shape:?}, killed before {before}"), &ran, LOST);
            assert!(start.elapsed() < BOUND, "{:?}", start.elapsed());
        }
    }
}

#[test]
fn a_process_that_exits() {
    for shape in [(3, 1, false), (2, 2, false), (2, 2, true)] {
        let job = quiet(shape);
        let (handle, each) = (job.handle(), shape.1);
        let ran = job.run(move |ctx| {
            ctx.barrier()?;
            if is_last(ctx) {
                handle.exit(ctx.rank() / each, 7);
            }
            ctx.barrier()
        });
        check(&format!("{shape:?}"), &ran, &["failed: its process exited with status 7"]);
    }
}

#[test]
fn a_connection_that_is_cut() {
    let shapes = [(2, 1, false), (3, 2, false), (2, 2, true)];
    // At once, too: one of them may not have said yet that it has entered the block.
    for (shape, at) in shapes.into_iter().flat_map(|shape| [(shape, 50), (shape, 0)]) {
        let job = quiet(shape);
        let (handle, start) = (job.handle(), Instant::now());
        let ran = job.run(move |ctx| {
            for turn in 0.. {
                if turn == at && ctx.rank() == 0 {
                    handle.cut(0, 1);
                }
                ctx.barrier()?;
            }
            Ok(())
        });
        check(&format!("{shape:?}"), &ran, LOST);
        assert!(start.elapsed() < BOUND, "{:?}", start.elapsed());
    }
}

/// Who waits for a process that is gone, in whatever call of a window, is told.
#[test]
fn a_process_that_is_killed_among_accesses() {
    type Access = fn(&Window<u64>, usize, usize) -> Result<()>;
    let accesses: [(&str, Access); 4] = [
        ("flush", |window, next, me| {
            window.lock_shared(next)?;
            window.put(&[me as u64; 3000], next, 0)?;
            window.flush(next)?;
            window.unlock(next)
        }),
        ("get", |window, next, _| {
            window.lock_shared(next)?;
            window.get(&mut [0; 3000], next, 0)?;
            window.unlock(next)
        }),
        ("lock", |window, next, _| {
            window.lock(next)?;
            window.unlock(next)
        }),
        ("fetch", |window, next, _| {
            window.lock_all()?;
            window.fetch_and_op(1, next, 0, Sum)?;
            window.unlock_all()
        }),
    ];
    let run = |(name, access): (&str, Access), shape: Shape, before: u64| {
        let start = Instant::now();
        let job = quiet(shape).kill(shape.0 - 1, before);
        let ran = job.run(move |ctx| {
            let window = ctx.window::<u64>(3000)?;
            let next = (ctx.rank() + 1) % ctx.size();
            loop {
                access(&window, next, ctx.rank())?;
            }
            #[expect(unreachable_code, reason = "it says what the loop would give")]
            Ok(())
        });
        check(&format!("{name} on {shape:?}, killed before {before}"), &ran, LOST);
        assert!(start.elapsed() < BOUND, "{name}: {:?}", start.elapsed());
    };
    for shape in [(3, 1, false), (2, 2, false), (2, 2, true)] {
        let each = accesses.map(|it| thread::spawn(move || run(it, shape, 150)));
        assert!(each.into_iter().all(|thread| thread.join().is_ok()), "see above");
    }
}

/// A process that is gone leaves no lock: who waits for it is told.
#[test]
fn a_process_that_exits_under_a_lock() {
    for (shape, target) in [((2, 1, false), 0), ((2, 1, false), 1), ((2, 2, true), 3)] {
        let job = quiet(shape);
        let handle = job.handle();
        let ran = job.run(move |ctx| {
            let window = ctx.window::<u64>(1)?;
            if ctx.rank() == 0 {
                window.lock(target)?;
                ctx.send(&[0], ctx.size() - 1, 0)?;
                thread::sleep(Duration::from_millis(100));
                handle.exit(0, 7);
            }
            if is_last(ctx) {
                ctx.recv(&mut [0], 0, 0)?;
                window.lock(target)?;
            }
            ctx.barrier()
        });
        check(&format!("{shape:?}"), &ran, &["failed: its process exited with status 7"]);
    }
}

/// A rank that computes for ever holds the others up no longer than the limit.
#[test]
fn the_time_limit_ends_a_step() {
    for shape in [(2, 1, false), (2, 2, false), (2, 2, true)] {
        let start = Instant::now();
        let limit = |block: spmd::Spmd| block.timeout(Duration::from_millis(1500));
        let job = quiet(shape).block(move |block| {
            let block = limit(block);
            if shape.2 { block.virtual_ranks().workers(2) } else { block }
        });
        let ran = job.run(|ctx| {
            if is_last(ctx) {
                thread::sleep(Duration::from_secs(30));
            }
            ctx.barrier()
        });
        let words = ["longer than the limit of 1.5s", "barrier at tests/loopback/failures.rs"];
        check(&format!("{shape:?}"), &ran, &words);
        assert!(start.elapsed() < BOUND, "{:?}", start.elapsed());
    }
}

/// Processes are killed at points that chance chooses, the start among them.
#[test]
fn killed_anywhere() {
    let jobs = if full() { 100 } else { 8 };
    let run = |seed: u64| {
        let shape = [(3, 1, false), (2, 2, false), (3, 2, true)][seed as usize % 3];
        let before = 10 + seed * 7919 % 60;
        let ran = meeting(quiet(shape).seed(seed).kill(seed as usize % shape.0, before));
        assert!(ran.has_failed(), "seed {seed}, {shape:?}, before {before}: {ran:?}");
    };
    let each: Vec<_> = (0..jobs).map(|seed| thread::spawn(move || run(seed))).collect();
    assert!(each.into_iter().all(|thread| thread.join().is_ok()), "see above");
}
