//! Mistakes with windows.

use spmd::prelude::*;

use crate::expect::mistake;

fn is_epoch(error: &Error) -> bool {
    matches!(error, Error::Epoch(_))
}

fn is_length(error: &Error) -> bool {
    matches!(error, Error::Length(_))
}

#[test]
fn beyond_the_end() {
    mistake(2, |ctx| {
        let window = ctx.window::<f64>(10)?;
        window.fence()?;
        if ctx.rank() == 0 { window.put(&[1.0; 3], 1, 8) } else { window.fence() } // <1>
    })
    .error(
        &[0],
        is_length,
        &["put of 3 f64 to rank 1 at <1>: the part of the target holds 10 elements where 11 are"],
    )
    .peer_failed(&[1], 0, &["put of 3 f64 to rank 1 at <1>"]);
    mistake(1, |ctx| {
        let window = ctx.window::<f64>(10)?;
        window.lock_all()?;
        window.get(&mut [0.0; 4], 0, At::strided(1, 2, 2, 8)) // <1>
    })
    .error(
        &[0],
        is_length,
        &["get of 4 f64 from rank 0 at <1>: the part of the target holds 10 elements where 11 are"],
    );
    mistake(1, |ctx| ctx.window::<u8>(3)?.read(2..4).map(drop)) // <1>
        .error(&[0], is_length, &["read of 2 u8 on rank 0 at <1>", "holds 3 elements where 4"]);
    mistake(1, |ctx| {
        let window = ctx.window::<u8>(3)?;
        window.lock(0)?;
        window.fetch_and_op(1, 0, usize::MAX, Sum).map(drop) // <1>
    })
    .error(&[0], is_length, &["fetch_and_op of 1 u8 on rank 0 at <1>"]);
}

#[test]
fn patterns_that_do_not_fit() {
    mistake(1, |ctx| {
        let window = ctx.window::<u8>(100)?;
        window.fence()?;
        window.put(&[1; 5], 0, At::strided(0, 2, 2, 8)) // <1>
    })
    .error(
        &[0],
        is_length,
        &["put of 5 u8 to rank 0 at <1>: the strided pattern holds 4 elements"],
    );
    mistake(1, |ctx| {
        let window = ctx.window::<u8>(100)?;
        window.fence()?;
        window.put(&[1; 4], 0, At::strided(0, 2, 2, 1)) // <1>
    })
    .error(
        &[0],
        |e| matches!(e, Error::Argument(_)),
        &["at <1>: blocks of 2 elements overlap"],
    );
    mistake(1, |ctx| {
        let window = ctx.window::<u8>(100)?;
        window.fence()?;
        window.get_accumulate(&[1; 4], &mut [0; 5], 0, 0, Sum) // <1>
    })
    .error(&[0], is_length, &["get_accumulate of 4 u8 on rank 0 at <1>: the result holds 5"]);
}

#[test]
fn a_target_that_there_is_not() {
    for access in [
        |window: &Window<u32>| window.put(&[1], 2, 0),
        |window: &Window<u32>| window.lock(2),
        |window: &Window<u32>| window.fetch_and_op(1, 2, 0, Sum).map(drop),
        |window: &Window<u32>| window.len_of(2).map(drop),
    ] {
        mistake(1, |ctx| {
            let window = ctx.window::<u32>(10)?;
            access(&window)
        })
        .error(
            &[0],
            |error| matches!(error, Error::RankOutOfRange(_)),
            &["target 2 is outside the communicator, whose ranks are 0 to 0"],
        );
    }
}

#[test]
fn an_access_outside_of_an_epoch() {
    mistake(1, |ctx| {
        let window = ctx.window::<u32>(10)?;
        window.put(&[1], 0, 0) // <1>
    })
    .error(
        &[0],
        is_epoch,
        &["put of 1 u32 to rank 0 at <1>", "there was none yet", "call fence"],
    );
    mistake(1, |ctx| {
        let window = ctx.window::<u32>(10)?;
        window.lock(0)?;
        window.put(&[1], 0, 0)?;
        window.unlock(0)?; // <1>
        window.accumulate(&[1], 0, 0, Sum) // <2>
    })
    .error(
        &[0],
        is_epoch,
        &["accumulate of 1 u32 on rank 0 at <2>", "the last one was ended by unlock at <1>"],
    );
    mistake(2, |ctx| {
        let window = ctx.window::<u32>(10)?;
        window.lock_shared(1)?; // <1>
        if ctx.rank() == 1 {
            return ctx.barrier();
        }
        window.get(&mut [1], 0, 0) // <2>
    })
    .error(&[0], is_epoch, &["at <2>", "rank 1 is locked, at <1>", "and rank 0 is not"]);
    mistake(1, |ctx| {
        let window = ctx.window::<u32>(10)?;
        window.lock_all()?;
        window.unlock_all()?; // <1>
        window.put_notify(&[1], 0, 0, 0) // <2>
    })
    .error(&[0], is_epoch, &["put_notify of 1 u32 to rank 0 at <2>", "by unlock_all at <1>"]);
}

#[test]
fn calls_that_do_not_fit_their_epoch() {
    type Case = (fn(&Window<u32>) -> Result<()>, &'static str);
    let cases: [Case; 9] = [
        (|window| window.lock(0).and_then(|()| window.lock(0)), "rank 0 is locked by this rank"),
        (|window| window.unlock(0), "rank 0 is not locked"),
        (|window| window.unlock_all(), "lock_all has not been called"),
        (|window| window.lock_all().and_then(|()| window.lock(0)), "all ranks are locked since"),
        (|window| window.lock_all().and_then(|()| window.unlock(0)), "unlock_all ends that"),
        (|window| window.lock(0).and_then(|()| window.fence()), "call unlock first"),
        (|window| window.flush(0), "it is not locked"),
        (
            |window| {
                window.fence()?;
                window.put(&[1], 0, 0)?;
                window.lock(0)
            },
            "end that epoch by a fence first",
        ),
        (
            |window| {
                window.lock(0)?;
                window.aggregate(|_| window.unlock(0))
            },
            "within aggregate at tests/mistakes/windows.rs",
        ),
    ];
    for (case, text) in cases {
        mistake(1, |ctx| case(&ctx.window::<u32>(1)?)).error(&[0], is_epoch, &[text]);
    }
}

#[test]
fn windows_of_different_types() {
    mistake(3, |ctx| match ctx.rank() {
        0 => ctx.window::<u32>(1).map(drop), // <1>
        _ => ctx.window::<f32>(1).map(drop), // <2>
    })
    .mismatch(&[0, 1, 2], &["window of u32 at <1>", "window of f32 at <2>"]);
}

#[test]
fn a_fence_against_a_barrier() {
    mistake(2, |ctx| {
        let window = ctx.window::<u32>(1)?;
        match ctx.rank() {
            0 => window.fence(), // <1>
            _ => ctx.barrier(),  // <2>
        }
    })
    .deadlock(&[0, 1], &["rank 0: fence at <1>", "rank 1: barrier at <2>"]);
}

#[test]
fn a_lock_over_a_barrier() {
    for shared in [false, true] {
        mistake(2, |ctx| {
            let window = ctx.window::<u32>(1)?;
            if ctx.rank() == 0 {
                if shared {
                    window.lock_shared(1)?
                } else {
                    window.lock(1)?
                }
                ctx.send(&[0], 1, 0)?;
                ctx.barrier()?; // <1>
                window.unlock(1)
            } else {
                ctx.recv(&mut [0], 0, 0)?;
                window.lock(1)?; // <2>
                window.unlock(1)?;
                ctx.barrier()
            }
        })
        .deadlock(&[0, 1], &["rank 0: barrier at <1>", "rank 1: lock on rank 1 at <2>"]);
    }
}

#[test]
fn a_lock_of_all_over_a_barrier() {
    mistake(3, |ctx| {
        let window = ctx.window::<u32>(1)?;
        if ctx.rank() == 0 {
            window.lock_all()?;
            ctx.send(&[0], 1, 0)?;
            ctx.send(&[0], 2, 0)?;
            ctx.barrier() // <1>
        } else {
            ctx.recv(&mut [0], 0, 0)?;
            window.lock(1) // <2>
        }
    })
    .deadlock(&[0], &["rank 0: barrier at <1>", "lock on rank 1 at <2>"])
    .error(&[1, 2], |error| error.fault().is_some(), &[]);
}

#[test]
fn locks_in_different_orders() {
    mistake(2, |ctx| {
        let window = ctx.window::<u32>(1)?;
        window.lock(ctx.rank())?;
        ctx.sendrecv(&[0], 1 - ctx.rank(), 0, &mut [0], 1 - ctx.rank(), 0)?;
        window.lock(1 - ctx.rank()) // <1>
    })
    .deadlock(&[0, 1], &["rank 0: lock on rank 1 at <1>", "rank 1: lock on rank 0 at <1>"]);
}

#[test]
fn a_lock_that_is_forgotten() {
    mistake(2, |ctx| {
        let window = ctx.window::<u32>(1)?;
        if ctx.rank() == 0 {
            window.lock(1)?;
            ctx.send(&[0], 1, 0)?;
            std::mem::forget(window);
            return Ok(());
        }
        ctx.recv(&mut [0], 0, 0)?;
        window.lock(1) // <1>
    })
    .left(&[1], 0, &["rank 1: lock on rank 1 at <1>"]);
}

#[test]
fn a_panic_under_a_lock() {
    mistake(3, |ctx| {
        let window = ctx.window::<u32>(1)?;
        if ctx.rank() == 0 {
            window.lock(1)?;
            ctx.send(&[0], 1, 0)?;
            ctx.send(&[0], 2, 0)?;
            return Err("deliberate".into());
        }
        ctx.recv(&mut [0], 0, 0)?;
        window.lock_shared(1)?; // <1>
        window.put(&[1], 1, 0)?;
        window.unlock(1)?;
        ctx.barrier()
    })
    .peer_failed(&[1, 2], 0, &["it returned an error: deliberate"]);
}

#[test]
fn accesses_after_a_failure() {
    mistake(2, |ctx| {
        let window = ctx.window::<u32>(1)?;
        window.lock_all()?;
        if ctx.rank() == 0 {
            return Err("deliberate".into());
        }
        loop {
            window.put(&[1], 1, 0)?;
            std::thread::yield_now();
            ctx.iprobe(0, 0)?;
        }
    })
    .peer_failed(&[1], 0, &["deliberate"]);
}

#[test]
fn a_notification_that_never_comes() {
    mistake(2, |ctx| {
        let window = ctx.window::<u32>(1)?;
        if ctx.rank() == 1 {
            window.wait_notify(0, 5)?; // <1>
        }
        Ok(())
    })
    .left(&[1], 0, &["rank 1: wait_notify from rank 0 with tag 5 at <1>"]);
    mistake(2, |ctx| ctx.window::<u32>(1)?.wait_notify(1 - ctx.rank(), 5).map(drop)) // <1>
        .deadlock(&[0, 1], &["rank 0: wait_notify from rank 1 with tag 5 at <1>"]);
}

#[test]
fn a_notification_that_nobody_waits_for() {
    mistake(2, |ctx| {
        let window = ctx.window::<u32>(1)?;
        window.fence()?;
        window.put_notify(&[5], 1, 0, 3)?; // <1>
        window.fence()
    })
    .whole(|error| matches!(error, Error::Unreceived(_)), &["to rank 1", "with tag 3", "at <1>"]);
}

#[test]
fn an_operation_that_panics_or_communicates() {
    let panicking = mistake(2, |ctx| {
        let window = ctx.window::<[u64; 3]>(1)?;
        window.lock_all()?;
        let op = Op::new(|_: [u64; 3], _: [u64; 3]| panic!("deliberate"));
        if ctx.rank() == 0 {
            window.accumulate(&[[0; 3]], 1, 0, op)?;
        }
        ctx.recv(&mut [0u8], 0, 0).map(drop)
    });
    panicking.peer_failed(&[1], 0, &["panicked: deliberate"]);
    mistake(1, |ctx| {
        let window = ctx.window::<u64>(1)?;
        window.fence()?;
        let failed = std::sync::Mutex::new(None);
        let op = Op::new(|a: u64, _: u64| {
            *failed.lock().unwrap() = spmd_barrier().err();
            a
        });
        window.accumulate(&[1], 0, 0, op)?;
        let error = failed.lock().unwrap().take();
        error.map_or(Ok(()), Err)
    })
    .error(
        &[0],
        |error| matches!(error, Error::Reentrant(_)),
        &["inside a reduction operation"],
    );
}

#[test]
fn parts_without_memory() {
    for n in [usize::MAX, usize::MAX / 16, 1 << 50] {
        mistake(2, |ctx| ctx.window::<u64>(n * ctx.rank()).map(drop)) // <1>
            .error(
                &[0, 1],
                |error| matches!(error, Error::Unavailable(_)),
                &["window of u64 at <1>", "no memory for the part of rank 1"],
            );
    }
}

/// A virtual rank finds a window of another one, on the same thread.
#[test]
fn a_window_of_another_rank() {
    thread_local! {
        static SHARED: std::cell::RefCell<Option<Window<u32>>> = const {
            std::cell::RefCell::new(None)
        };
    }
    let ended = Spmd::new(2).virtual_ranks().workers(1).run(|ctx| {
        let window = ctx.window::<u32>(1)?;
        if ctx.rank() == 0 {
            SHARED.set(Some(window));
        }
        ctx.barrier()?;
        let fenced = match ctx.rank() {
            0 => Ok(()),
            _ => SHARED.with_borrow(|window| window.as_ref().expect("rank 0's").lock(0)),
        };
        ctx.barrier()?;
        if ctx.rank() == 0 {
            SHARED.take();
        }
        fenced
    });
    let text = ended.unwrap_err().to_string();
    assert!(text.contains("used by the rank that has made it"), "{text}");
}
