//! Waits that nothing ends, ranks that fail, blocks that end.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use spmd::prelude::*;

use crate::support::World;

/// Runs it on threads and on virtual ranks; what it fails with, soon.
fn fails(ranks: usize, body: fn(&Ctx) -> Result<()>) -> Vec<String> {
    let modes = [Spmd::new(ranks).threads(), Spmd::new(ranks).virtual_ranks()];
    let run = |mode: Spmd| {
        let start = Instant::now();
        let error = mode.run(body).expect_err("nothing ends that").to_string();
        assert!(start.elapsed() < Duration::from_secs(20), "{error}");
        error
    };
    modes.into_iter().map(run).collect()
}

#[test]
fn a_task_that_waits_for_itself() {
    for error in fails(1, |ctx| {
        let own: Arc<Mutex<Option<Task<()>>>> = Arc::default();
        let place = own.clone();
        let gate = ctx.spawn(|| Ok(()));
        let task = ctx.spawn_after((&gate,), move |()| {
            let own = loop {
                if let Some(own) = place.lock().unwrap().take() {
                    break own;
                }
                std::thread::yield_now();
            };
            own.fetch().copied()
        });
        let after = ctx.spawn_after((&task,), |()| Ok(()));
        *own.lock().unwrap() = Some(task);
        after.take()
    }) {
        assert!(error.contains("waits for itself"), "{error}");
    }
}

#[test]
fn a_rank_fails_while_tasks_wait() {
    for error in fails(2, |ctx| {
        let comm = ctx.dup()?;
        let other = 1 - ctx.rank();
        let waits = ctx.spawn(move || comm.recv(&mut [0u8], other, 0).map(drop));
        if ctx.rank() == 0 {
            return Err("rank 0 gives up".into());
        }
        waits.take()
    }) {
        assert!(error.contains("rank 0 gives up"), "{error}");
    }
}

#[test]
fn blocks_wait_for_their_tasks() -> Result<()> {
    World::default().everywhere("endings::blocks_wait_for_their_tasks", &[1], |_| {
        for mode in [Spmd::new(3).threads(), Spmd::new(3).virtual_ranks()] {
            let done = Arc::new(Mutex::new(Vec::new()));
            mode.run(|ctx| {
                let (me, done) = (ctx.rank(), done.clone());
                drop(ctx.spawn(move || {
                    std::thread::sleep(Duration::from_millis(30));
                    done.lock().unwrap().push(me);
                    Ok(())
                }));
                Ok(())
            })?;
            let mut done = done.lock().unwrap().clone();
            done.sort_unstable();
            assert_eq!(done, [0, 1, 2]);
        }
        Ok(())
    })
}

#[test]
fn tasks_know_no_rank() -> Result<()> {
    World::default().everywhere("endings::tasks_know_no_rank", &[2], |ctx| {
        for _ in 0..100 {
            let known = ctx.spawn(|| Ok(spmd::with_current(|comm| Ok(comm.rank())).is_ok()));
            assert!(!known.take()?);
        }
        let me = ctx.rank();
        assert_eq!(spmd::with_current(|comm| Ok(comm.rank()))?, me);
        Ok(())
    })
}
