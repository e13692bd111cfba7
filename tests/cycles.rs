//! Cycles of waits on communicators that the program has made, and programs that look like them.
//!
//! A communicator on which nobody waits may be in the hands of any thread that the library does
//! not know. The usual harness has such threads, so this file has a harness that runs each test
//! on the main thread, as a program would.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Trial};
use spmd::prelude::*;

#[path = "mistakes/expect.rs"]
#[allow(dead_code, reason = "this file uses a part of it")]
mod expect;
#[path = "cycles/through_started.rs"]
mod through_started;
#[path = "cycles/through_tasks.rs"]
mod through_tasks;

use expect::mistake;

fn main() {
    let tests: [(&str, fn()); 31] = [
        ("crossed_barriers_of_two_communicators", crossed_barriers_of_two_communicators),
        ("one_rank_on_the_copy_and_one_on_the_original", one_on_the_copy_and_one_on_the_original),
        ("rows_against_columns", rows_against_columns),
        ("a_message_on_another_communicator", a_message_on_another_communicator),
        ("a_helper_beside_blocks_within_ranks", a_helper_beside_blocks_within_ranks),
        ("a_communicator_in_a_block_of_its_rank", a_communicator_in_a_block_of_its_rank),
        ("a_helper_that_opens_a_block", a_helper_that_opens_a_block),
        ("an_idle_helper", an_idle_helper),
        ("a_helper_that_waits_in_the_cycle", a_helper_that_waits_in_the_cycle),
        ("a_rank_that_has_the_communicator_of_another", another_has_the_communicator),
        ("a_rank_of_another_block_that_has_the_communicator", another_block_has_the_communicator),
        ("a_thread_beside_a_worker_that_has_ended", a_thread_beside_a_worker_that_has_ended),
        ("a_cycle_that_one_of_its_ranks_cannot_see", a_cycle_that_one_of_its_ranks_cannot_see),
        ("the_end_of_a_started_call", through_started::the_end_of_a_started_call),
        ("receives_beside_started_calls", through_started::receives_beside_started_calls),
        (
            "a_started_call_whose_turn_has_not_come",
            through_started::a_started_call_whose_turn_has_not_come,
        ),
        ("a_started_call_that_is_dropped", through_started::a_started_call_that_is_dropped),
        (
            "a_started_call_that_lends_its_memory",
            through_started::a_started_call_that_lends_its_memory,
        ),
        ("after_requests_that_were_awaited", after_requests_that_were_awaited),
        ("a_thread_that_is_joined", a_thread_that_is_joined),
        ("a_thread_that_is_joined_and_computes", a_thread_that_is_joined_and_computes),
        ("a_task_that_waits_for_a_message", through_tasks::a_task_that_waits_for_a_message),
        ("tasks_that_wait_for_each_other", through_tasks::tasks_that_wait_for_each_other),
        ("tasks_at_the_end_of_a_block", through_tasks::tasks_at_the_end_of_a_block),
        ("tasks_that_borrow", through_tasks::tasks_that_borrow),
        ("tasks_that_take_their_time", through_tasks::tasks_that_take_their_time),
        ("parts_of_a_rank", through_tasks::parts_of_a_rank),
        ("an_object_that_a_task_has", through_tasks::an_object_that_a_task_has),
        ("a_channel_that_nobody_feeds", through_tasks::a_channel_that_nobody_feeds),
        ("a_stream_that_nobody_ends", through_tasks::a_stream_that_nobody_ends),
        ("resources_that_a_task_has", through_tasks::resources_that_a_task_has),
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

fn pause(milliseconds: u64) {
    std::thread::sleep(Duration::from_millis(milliseconds));
}

fn crossed_barriers_of_two_communicators() {
    mistake(2, |ctx| {
        let copy = ctx.dup()?;
        if ctx.rank() == 0 {
            copy.barrier()?; // <1>
            ctx.barrier()
        } else {
            ctx.barrier()?; // <2>
            copy.barrier()
        }
    })
    .deadlock(&[0, 1], &["rank 0: barrier at <1>", "rank 1: barrier at <2>"]);
}

fn one_on_the_copy_and_one_on_the_original() {
    mistake(2, |ctx| {
        let copy = ctx.dup()?; // <3>
        match ctx.rank() {
            0 => copy.allreduce_value(1, Sum).map(drop), // <1>
            _ => ctx.barrier(),                          // <2>
        }
    })
    .deadlock(
        &[0, 1],
        &[
            "rank 0: allreduce_value of 1 i32 with Sum at <1> on the communicator of dup at <3>",
            "rank 1: barrier at <2>",
        ],
    );
}

/// A grid in which one rank turns to its row before its column.
fn rows_against_columns() {
    mistake(4, |ctx| {
        let row = ctx.split(Some(ctx.rank() as u32 / 2), 0)?.expect("every rank gives a color");
        let column = ctx.split(Some(ctx.rank() as u32 % 2), 0)?.expect("every rank gives a color");
        if ctx.rank() == 0 || ctx.rank() == 3 {
            row.barrier()?; // <1>
            column.barrier()
        } else {
            column.barrier()?; // <2>
            row.barrier()
        }
    })
    .deadlock(&[0, 1, 2, 3], &["ranks 0, 3: barrier at <1>", "ranks 1, 2: barrier at <2>"]);
}

fn a_message_on_another_communicator() {
    mistake(2, |ctx| {
        let copy = ctx.dup()?;
        if ctx.rank() == 0 {
            copy.send(&[1], 1, 3)?;
            ctx.recv(&mut [0], 1, 4).map(drop) // <1>
        } else {
            ctx.recv(&mut [0], 0, 3)?; // <2>
            ctx.send(&[0], 0, 4)
        }
    })
    .deadlock(&[0, 1], &["rank 0: recv of 1 i32 from rank 1 with tag 4 at <1>", "tag 3 at <2>"]);
}

fn a_helper_that_waits_in_the_cycle() {
    mistake(2, |ctx| {
        let (copy, peer) = (ctx.dup()?, 1 - ctx.rank());
        std::thread::scope(|scope| {
            let helper = scope.spawn(move || copy.recv(&mut [0], peer, 1).map(drop)); // <1>
            let own = ctx.recv(&mut [0], peer, 2).map(drop); // <2>
            own.and(helper.join().expect("the helper does not panic"))
        })
    })
    .error(&[0, 1], |error| matches!(error, Error::Stopped(_)), &["deadlock", "<1>", "<2>"]);
}

/// Ranks 0 and 1 wait for each other until a helper of rank 0 speaks in the name of its rank,
/// after `first`. The ranks above do `above`.
fn broken_by_a_helper(ranks: usize, first: fn() -> Result<()>, above: fn() -> Result<()>) {
    let program = |ctx: &Ctx| {
        let copy = ctx.dup()?;
        match ctx.rank() {
            0 => {
                let helper = std::thread::spawn(move || {
                    first()?;
                    copy.send(&[5], 1, 1)
                });
                ctx.recv(&mut [0], 1, 2)?;
                helper.join().expect("the helper does not panic")
            }
            1 => {
                copy.recv(&mut [0], 0, 1)?;
                ctx.send(&[1], 0, 2)
            }
            _ => above(),
        }
    };
    Spmd::new(ranks).threads().run(program).unwrap();
}

fn a_long_block() -> Result<()> {
    spmd(2, |_| {
        pause(800);
        Ok(())
    })
    .map(drop)
}

fn an_idle_helper() {
    let idle = || {
        pause(800);
        Ok(())
    };
    broken_by_a_helper(2, idle, || Ok(()));
    broken_by_a_helper(4, idle, || Ok(()));
}

fn a_helper_that_opens_a_block() {
    broken_by_a_helper(2, a_long_block, || Ok(()));
}

fn a_helper_beside_blocks_within_ranks() {
    let idle = || {
        pause(700);
        Ok(())
    };
    broken_by_a_helper(4, idle, a_long_block);
}

/// A rank lends communicators to the ranks of a block of its own: one waits, one computes.
fn a_communicator_in_a_block_of_its_rank() {
    let program = |ctx: &Ctx| {
        let comms = vec![ctx.dup()?, ctx.dup()?];
        if ctx.rank() == 0 {
            Spmd::new(2).run_with(comms, |inner, comm| {
                if inner.rank() == 0 {
                    return comm.recv(&mut [0], 1, 0).map(drop);
                }
                pause(800);
                comm.send(&[1], 1, 0)
            })?;
            return Ok(());
        }
        comms[1].recv(&mut [0], 0, 0)?;
        comms[0].send(&[1], 0, 0)
    };
    Spmd::new(2).threads().run(program).unwrap();
}

/// A communicator on its way to whoever is to use it.
type Slot = std::sync::Mutex<Option<spmd::Comm>>;

/// Ranks 0 and 1 wait for each other until somebody speaks for rank 0 with its communicator.
fn wait_for_whoever_has_it(ctx: &Ctx, slot: &Slot) -> Result<()> {
    let copy = ctx.dup()?;
    if ctx.rank() == 0 {
        *slot.lock().unwrap() = Some(copy);
        return ctx.recv(&mut [0u8], 1, 0).map(drop);
    }
    copy.recv(&mut [0u8], 0, 0)?;
    ctx.send(&[1u8], 0, 0)
}

/// Takes the communicator and speaks, much later than a cycle is found.
fn speak_for_another(slot: &Slot) -> Result<()> {
    let comm = loop {
        match slot.lock().unwrap().take() {
            Some(comm) => break comm,
            None => pause(1),
        }
    };
    pause(1500);
    comm.send(&[1u8], 1, 0)
}

fn another_has_the_communicator() {
    let slot = Slot::default();
    let program = |ctx: &Ctx| match ctx.rank() {
        0 | 1 => wait_for_whoever_has_it(ctx, &slot),
        _ => ctx.dup().and_then(|_copy| speak_for_another(&slot)),
    };
    for place in [Spmd::threads, |spmd: Spmd| spmd.virtual_ranks().workers(3)] {
        place(Spmd::new(3)).run(program).unwrap();
    }
}

fn another_block_has_the_communicator() {
    let slot = Slot::default();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| spmd(1, |_| speak_for_another(&slot)).map(drop));
        spmd(2, |ctx| wait_for_whoever_has_it(ctx, &slot)).unwrap();
        other.join().expect("it does not panic").unwrap();
    });
}

/// A thread speaks for rank 0 when the ranks of one of two workers have returned.
fn a_thread_beside_a_worker_that_has_ended() {
    let program = |ctx: &Ctx| {
        let copy = ctx.dup()?;
        match ctx.rank() {
            0 => {
                let helper = std::thread::spawn(move || {
                    pause(1500);
                    copy.send(&[1u8], 1, 0)
                });
                ctx.recv(&mut [0u8], 1, 0)?;
                helper.join().expect("it does not panic")
            }
            1 => {
                copy.recv(&mut [0u8], 0, 0)?;
                ctx.send(&[1u8], 0, 0)
            }
            _ => Ok(()),
        }
    };
    Spmd::new(4).virtual_ranks().workers(2).run(program).unwrap();
}

/// Two wait for anyone of three, the third for one of them on the communicator of all: of that
/// one's wait it looks as if the rank that computes could end it. Whichever rank has which part.
fn a_cycle_that_one_of_its_ranks_cannot_see() {
    for third in 0..3 {
        let told = AtomicUsize::new(0);
        let ended = Spmd::new(4).threads().run(|ctx| {
            let three = ctx.split((ctx.rank() < 3).then_some(0), 0)?;
            let start = Instant::now();
            // Whoever kept it could lend it to the rank that computes.
            let outcome = match (ctx.rank(), three) {
                (3, _) => {
                    while told.load(Relaxed) < 3 && start.elapsed() < Duration::from_secs(20) {
                        pause(1);
                    }
                    Ok(())
                }
                (rank, Some(three)) if rank != third => three.recv(&mut [0u8], ANY, 0).map(drop),
                (_, three) => {
                    drop(three);
                    ctx.recv(&mut [0u8], (third + 1) % 3, 0).map(drop)
                }
            };
            told.fetch_add(1, Relaxed);
            assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
            outcome
        });
        let text = ended.expect_err("three wait for each other").to_string();
        assert!(text.starts_with("deadlock"), "{third}: {text}");
    }
}

/// A thread of a rank's own waits for a rank that cannot run, as the rank that joins the thread
/// holds the worker of both.
/// The threads that have woken the executors of the ranks hold no communicator.
fn after_requests_that_were_awaited() {
    mistake(2, |ctx| {
        let (copy, other) = (ctx.dup()?, 1 - ctx.rank());
        let received = ctx.irecv([0], other, 0)?;
        if ctx.rank() == 0 {
            pollster::block_on(received)?;
            ctx.send(&[0], other, 0)?;
            copy.barrier()?; // <1>
            ctx.barrier()
        } else {
            std::thread::sleep(Duration::from_millis(50));
            ctx.send(&[0], other, 0)?;
            pollster::block_on(received)?;
            ctx.barrier()?; // <2>
            copy.barrier()
        }
    })
    .deadlock(&[0, 1], &["rank 0: barrier at <1>", "rank 1: barrier at <2>"]);
}

fn a_thread_that_is_joined() {
    for (ranks, workers) in [(2, 1), (4, 2)] {
        let ended = Spmd::new(ranks).virtual_ranks().workers(workers).run(|ctx| {
            let copy = ctx.dup()?;
            let thread = std::thread::spawn(move || copy.allreduce_value(1, Sum));
            thread.join().expect("it does not panic")
        });
        let text = ended.expect_err("some ranks cannot run").to_string();
        assert!(text.contains("waits for something outside the library"), "{text}");
        assert!(text.contains("cycles.rs"), "{text}");
    }
}

/// The same for a while only: what it joins first is a thread that ends by itself.
fn a_thread_that_is_joined_and_computes() {
    let sums = Spmd::new(2).virtual_ranks().workers(1).run(|ctx| {
        let copy = ctx.dup()?;
        let waits = std::thread::spawn(move || copy.allreduce_value(1, Sum));
        if ctx.rank() == 0 {
            let computes = std::thread::spawn(|| pause(4000));
            computes.join().expect("it does not panic");
        }
        while !waits.is_finished() {
            ctx.iprobe(ANY, ANY)?;
        }
        waits.join().expect("it does not panic")
    });
    assert_eq!(sums.unwrap(), [2, 2]);
}
