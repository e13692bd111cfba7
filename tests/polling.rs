//! Loops that poll with `iprobe` when those who could send have left: which are told so, and which
//! go on.
//!
//! None is told in a process that has threads besides its ranks. The usual harness has such
//! threads, so this file has a harness that runs each test on the main thread, as a program would.

use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Trial};
use spmd::prelude::*;

fn main() {
    let tests: [(&str, fn()); 6] = [
        ("for_a_rank_that_has_left", for_a_rank_that_has_left),
        ("when_everybody_else_has_left", when_everybody_else_has_left),
        ("between_steps_of_work", between_steps_of_work),
        ("workers_of_which_one_has_left", workers_of_which_one_has_left),
        ("until_a_thread_has_finished", until_a_thread_has_finished),
        ("many_that_poll_on_one_worker", many_that_poll_on_one_worker),
    ];
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let trials = tests.map(|(name, test)| {
        Trial::test(name, move || {
            test();
            Ok(())
        })
    });
    libtest_mimic::run(&arguments, trials.into()).exit();
}

/// The longest that it may take on a busy machine until a loop is told.
const BOUND: Duration = Duration::from_secs(60);

#[track_caller]
fn told(block: Spmd, texts: &[&str], program: impl Fn(&Ctx) -> Result<()> + Sync) {
    let start = Instant::now();
    let text = block.run(program).expect_err("it polls for ever").to_string();
    for part in texts.iter().chain(&["ended its block", "polling.rs"]) {
        assert!(text.contains(part), "{text}");
    }
    let took = start.elapsed();
    assert!(took > Duration::from_secs(3) && took < BOUND, "{took:?}");
}

fn compute(time: Duration) {
    let start = Instant::now();
    let mut value = 1.0f64;
    while start.elapsed() < time {
        (0..1000).for_each(|_| value = (value * 1.000_1).sin() + 1.0);
    }
    assert!(value > 0.0);
}

/// A loop that polls is no wait, but who polls for ranks that are gone polls for ever. Rank 2 waits
/// for it meanwhile.
fn for_a_rank_that_has_left() {
    for block in [Spmd::new(3).threads(), Spmd::new(3).virtual_ranks().workers(1)] {
        told(block, &["rank 1 ended its block", "iprobe from rank 1"], |ctx| match ctx.rank() {
            0 => {
                while ctx.iprobe(1, 0)?.is_none() {}
                ctx.send(&[1], 2, 0)
            }
            1 => Ok(()),
            _ => ctx.recv(&mut [0], 0, 0).map(drop),
        });
    }
}

fn when_everybody_else_has_left() {
    told(Spmd::new(3).threads(), &["iprobe"], |ctx| {
        let copy = ctx.dup()?;
        while ctx.rank() == 2 && copy.iprobe(ANY, ANY)?.is_none() {}
        Ok(())
    });
}

/// A rank may ask a peer that has left for an optional message, as often as it likes.
fn between_steps_of_work() {
    let start = Instant::now();
    let ended = Spmd::new(2).threads().run(|ctx| {
        while ctx.rank() == 0 && start.elapsed() < Duration::from_secs(4) {
            assert!(ctx.iprobe(1, 0)?.is_none());
            compute(Duration::from_micros(50));
        }
        Ok(())
    });
    ended.unwrap();
}

/// The time in which others of the worker run is not the rank's own.
fn many_that_poll_on_one_worker() {
    let start = Instant::now();
    let ended = Spmd::new(8).virtual_ranks().workers(1).run(|ctx| {
        while ctx.rank() != 1 && start.elapsed() < Duration::from_secs(5) {
            assert!(ctx.iprobe(1, 0)?.is_none());
            compute(Duration::from_micros(50));
        }
        Ok(())
    });
    ended.unwrap();
}

/// A master looks for the results of its workers in turn, long after the first one has left.
fn workers_of_which_one_has_left() {
    let ended = Spmd::new(4).threads().run(|ctx| {
        let (me, n) = (ctx.rank(), ctx.size());
        if me > 0 {
            compute(Duration::from_secs(if me > 1 { 10 } else { 0 }));
            return ctx.send(&[me], 0, 0);
        }
        let mut done = 0;
        while done < n - 1 {
            for worker in 1..n {
                if ctx.iprobe(worker, 0)?.is_some() {
                    ctx.recv(&mut [0usize], worker, 0)?;
                    done += 1;
                }
            }
        }
        Ok(())
    });
    ended.unwrap();
}

/// The way in which a virtual rank waits for a thread of its own, which goes on when all others
/// have left.
fn until_a_thread_has_finished() {
    let ended = Spmd::new(2).virtual_ranks().workers(1).run(|ctx| {
        let (copy, me) = (ctx.dup()?, ctx.rank());
        let thread = std::thread::spawn(move || {
            let sum = copy.allreduce_value(1, Sum)?;
            std::thread::sleep(Duration::from_secs(if me == 0 { 10 } else { 0 }));
            Ok(sum)
        });
        while !thread.is_finished() {
            ctx.iprobe(ANY, ANY)?;
        }
        thread.join().expect("it does not panic")
    });
    assert_eq!(ended.unwrap(), [2, 2]);
}
