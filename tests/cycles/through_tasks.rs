//! Cycles through tasks, and programs that look like them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use spmd::prelude::*;
use spmd::tasks::{channel, scope, task};

use crate::expect::mistake;

pub(crate) fn a_task_that_waits_for_a_message() {
    mistake(2, |ctx| {
        let comm = ctx.dup()?;
        let other = 1 - ctx.rank();
        let waits = ctx.spawn(move || comm.recv(&mut [0u8], other, 0).map(drop)); // <1>
        waits.take()
    })
    .deadlock(&[0, 1], &["rank 0: recv of 1 u8 from rank 1 with tag 0 at <1>"]);
}

pub(crate) fn tasks_that_wait_for_each_other() {
    mistake(1, |ctx| {
        let places: Arc<[Mutex<Option<Task<()>>>; 2]> = Arc::default();
        let tasks = [0, 1].map(|me| {
            let places = places.clone();
            ctx.spawn(move || {
                let other = loop {
                    if let Some(other) = places[1 - me].lock().expect("no panic").take() {
                        break other;
                    }
                    std::thread::yield_now();
                };
                other.fetch().copied()
            })
        });
        let after = ctx.spawn_after(&tasks[..], |_| Ok(())); // <1>
        let [left, right] = tasks;
        *places[0].lock().expect("no panic") = Some(left);
        *places[1].lock().expect("no panic") = Some(right);
        after.take() // <2>
    })
    .deadlock(&[0], &["rank 0: fetch at <2> of the task spawned at <1>"]);
}

pub(crate) fn tasks_at_the_end_of_a_block() {
    let ended = spmd(2, |ctx| {
        let comm = ctx.dup()?;
        if ctx.rank() == 0 {
            drop(ctx.spawn(move || comm.recv(&mut [0u8], 1, 0).map(drop)));
        }
        ctx.barrier()?;
        if ctx.rank() == 1 { ctx.recv(&mut [0u8], 0, 1).map(drop) } else { Ok(()) }
    });
    let error = ended.expect_err("nothing ends that").to_string();
    for part in ["deadlock", "rank 0: end of the block", "rank 0: recv of 1 u8 from rank 1"] {
        assert!(error.contains(part), "{error}");
    }
}

pub(crate) fn tasks_that_borrow() {
    mistake(2, |ctx| {
        let comm = ctx.dup()?;
        let mut buffer = [0u8];
        ctx.scope(|s| {
            let comm = comm;
            let buffer = &mut buffer;
            let other = 1 - comm.rank();
            s.spawn(move || comm.recv(buffer, other, 0).map(drop)); // <1>
            Ok(())
        })
    })
    .deadlock(&[0, 1], &["rank 0: recv of 1 u8 from rank 1 with tag 0 at <1>"]);
}

fn nap(milliseconds: u64) -> Result<()> {
    std::thread::sleep(Duration::from_millis(milliseconds));
    Ok(())
}

pub(crate) fn tasks_that_take_their_time() {
    let run = Spmd::new(2).run(|ctx| {
        let comm = ctx.dup()?;
        let me = ctx.rank();
        let slow = ctx.spawn(move || {
            std::thread::sleep(Duration::from_millis(700));
            if me == 0 { comm.send(&[1u8], 1, 0) } else { comm.recv(&mut [0u8], 0, 0).map(drop) }
        });
        let after = ctx.spawn_after((&slow,), |()| {
            std::thread::sleep(Duration::from_millis(300));
            Ok(())
        });
        after.take()?;
        slow.take()?;
        ctx.scope(|s| {
            s.spawn(|| nap(700));
            Ok(())
        })?;
        let data = Data::new(0);
        ctx.datadeps(|d| {
            for _ in 0..4 {
                d.spawn((d.write(&data),), |_| nap(200));
            }
            Ok(())
        })
    });
    run.expect("all of them come to their end");
}

/// A part of a rank that takes long is no cycle; one that waits for what never comes is.
pub(crate) fn parts_of_a_rank() {
    spmd(1, |_ctx| Ok(spmd::tasks::join(|| nap(10), || nap(700)))).expect("both are done");
    mistake(2, |ctx| {
        let (comm, other) = (ctx.dup()?, 1 - ctx.rank());
        let waits = move || {
            nap(50)?;
            comm.recv(&mut [0u8], other, 0).map(drop) // <1>
        };
        let (_, second) = spmd::tasks::join(|| nap(1), waits);
        second
    })
    .deadlock(&[0, 1], &["recv of 1 u8 from rank 1 with tag 0 at <1>"]);
}

/// Who waits for what it has itself: a rank, and a task of a worker.
pub(crate) fn an_object_that_a_task_has() {
    mistake(2, |ctx| {
        let object = ctx.mutable(0, || 1)?; // <1>
        if ctx.rank() == 1 {
            return ctx.recv(&mut [0u8], 0, 0).map(drop); // <2>
        }
        object.with(|_| object.with(|n| *n))?.map(drop)
    })
    .deadlock(
        &[0, 1],
        &["rank 1: recv of 1 u8 from rank 0 with tag 0 at <2>", "object made at <1>"],
    );
    mistake(2, |ctx| {
        let object = ctx.mutable(0, || 1)?;
        if ctx.rank() == 1 {
            return ctx.recv(&mut [0u8], 0, 0).map(drop);
        }
        let (begins, has_begun) = channel(1);
        let own = move |_: &mut i32| {
            begins.send(())?;
            object.with(|n| *n)
        };
        let waits = ctx.spawn(move || object.with(own)?); // <1>
        // Carried out by somebody else, who has no wait on record.
        has_begun.recv()?;
        waits.take().map(drop) // <2>
    })
    .deadlock(&[0, 1], &["rank 0: fetch at <2> of the task spawned at <1>"]);
}

/// Of ranks that have no task.
pub(crate) fn a_channel_that_nobody_feeds() {
    mistake(2, |ctx| {
        let (_feeds, values) = channel::<u8>(1); // <1>
        if ctx.rank() == 0 {
            return values.recv().map(drop);
        }
        ctx.recv(&mut [0u8], 0, 0).map(drop) // <2>
    })
    .deadlock(
        &[0, 1],
        &["rank 1: recv of 1 u8 from rank 0 with tag 0 at <2>", "of a value in", "made at <1>"],
    );
}

/// One rank waits for the end of a stream, that only the other one could end.
pub(crate) fn a_stream_that_nobody_ends() {
    mistake(2, |ctx| {
        let (sender, receiver) = ctx.stream::<u64>(0, 1, 2)?; // <1>
        if let Some(receiver) = receiver {
            receiver.iter().try_for_each(|value| value.map(drop))?; // <2>
        }
        if let Some(sender) = sender {
            sender.send(1)?;
            ctx.recv(&mut [0u8], 1, 0)?; // <3>
        }
        Ok(())
    })
    .deadlock(&[0, 1], &["rank 0: recv of 1 u8 from rank 1 with tag 0 at <3>", "made at <1>"]);
}

pub(crate) fn resources_that_a_task_has() {
    let block = || Spmd::new(1).resources("cpu=2;gpu=1");
    for block in [block().threads(), block().virtual_ranks()] {
        let ended = block.clone().run(|ctx| {
            let inner = || task().gpu(1).spawn(|| Ok(())).take();
            ctx.task().name("outer").gpu(1).spawn(inner).take()
        });
        let error = ended.expect_err("nothing ends that").to_string();
        for part in
            ["deadlock", "rank 0: fetch at", "\"outer\" spawned at tests/cycles/through_tasks.rs"]
        {
            assert!(error.contains(part), "{error}");
        }
        let ended = block.clone().run(|ctx| {
            let has_it = ctx.task().gpu(1).cpu(0).spawn(|| {
                scope(|s| {
                    s.task().gpu(1).spawn(|| Ok(()));
                    Ok(())
                })
            });
            has_it.take()
        });
        assert!(ended.expect_err("nothing ends that").to_string().contains("deadlock"));
        // The report says what a task waits for.
        let ended = block.run(|ctx| {
            let never = ctx.dup()?;
            let holds = ctx.task().gpu(1).spawn(move || never.recv(&mut [0u8], 0, 0).map(drop));
            let waits = ctx.task().gpu(1).spawn(|| Ok(()));
            waits.take()?;
            holds.take()
        });
        let error = ended.expect_err("nothing ends that").to_string();
        for part in ["rank 0: recv of 1 u8 from rank 0", ", which waits for 1 gpu"] {
            assert!(error.contains(part), "{error}");
        }
    }
}
