//! Tasks that fail, panic, are cancelled, and what comes of those that need them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::*};

use spmd::prelude::*;
use spmd::tasks::is_cancelled;

use crate::support::World;

#[test]
fn the_first_cause_comes_out() -> Result<()> {
    World::default().everywhere("failing::the_first_cause_comes_out", &[1, 2], |ctx| {
        let runs = Arc::new(AtomicUsize::new(0));
        let fails = ctx.task().name("loader").spawn(|| Err::<i32, _>("no such file".into()));
        let panics = ctx.spawn(|| -> Result<i32> { panic!("boom") });
        let counted = runs.clone();
        let needs =
            ctx.spawn_after((&fails,), move |x| Ok(counted.fetch_add(1, Relaxed) as i32 + x));
        let last = ctx.spawn_after((&needs, &panics), |a, b| Ok(a + b));
        let text = |error: Error| error.to_string();
        let failed = text(fails.fetch().expect_err("it fails"));
        assert!(
            failed.starts_with("the task \"loader\" spawned at tests/tasks/failing.rs:"),
            "{failed}"
        );
        assert!(failed.ends_with(" failed: no such file"), "{failed}");
        let panicked = text(panics.fetch().expect_err("it panics"));
        assert!(panicked.contains(" failed: it panicked: boom"), "{panicked}");
        let error = last.take().expect_err("what it needs has failed");
        let Error::TaskFailed(told) = &error else { panic!("{error}") };
        assert!(told.dependent.is_some() && told.task.contains("loader"), "{error}");
        assert!(text(error).contains(" did not run: the task \"loader\""));
        assert_eq!(runs.load(Relaxed), 0);
        assert!(needs.fetch().is_err());
        // The rank lives on.
        assert_eq!(ctx.spawn(|| Ok(1)).take()?, 1);
        Ok(())
    })
}

#[test]
fn who_asks_too_late_is_told_at_the_end() -> Result<()> {
    World::default().everywhere("failing::who_asks_too_late_is_told_at_the_end", &[1], |_| {
        for mode in [Spmd::new(2).threads(), Spmd::new(2).virtual_ranks()] {
            let ended = mode.run(|ctx| {
                if ctx.rank() == 1 {
                    drop(ctx.spawn(|| Err::<(), _>("lost".into())));
                }
                Ok(())
            });
            let error = ended.expect_err("a task has failed").to_string();
            assert!(error.contains("failed: lost"), "{error}");
        }
        // Those that were told, or cancelled, are no mistake.
        Spmd::new(2).run(|ctx| {
            let told = ctx.spawn(|| Err::<(), _>("told".into()));
            assert!(told.fetch().is_err());
            let gate = ctx.spawn(|| Ok(()));
            let cancelled = ctx.spawn_after((&gate,), |()| Err::<(), _>("never".into()));
            cancelled.cancel();
            Ok(())
        })?;
        Ok(())
    })
}

#[test]
fn what_is_cancelled_never_begins() -> Result<()> {
    World::default().everywhere("failing::what_is_cancelled_never_begins", &[1, 2], |ctx| {
        let (begun, waits) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (begins, polls) = (begun.clone(), waits.clone());
        // A long one, which asks.
        let long = ctx.spawn(move || {
            polls.store(1, Release);
            while !is_cancelled() {
                std::thread::yield_now();
            }
            Ok(7)
        });
        let after = ctx.spawn_after((&long,), move |_| Ok(begins.fetch_add(1, Relaxed)));
        while waits.load(Acquire) == 0 {
            std::thread::yield_now();
        }
        after.cancel();
        let needs = ctx.spawn_after((&after,), |_| Ok(()));
        assert!(!long.is_over());
        long.cancel();
        assert_eq!(long.take()?, 7);
        assert!(matches!(after.fetch(), Err(Error::Cancelled(_))));
        let error = needs.take().expect_err("what it needs was cancelled");
        assert!(error.to_string().contains(" did not run: the task spawned at "), "{error}");
        assert_eq!(begun.load(Relaxed), 0);
        Ok(())
    })
}

/// A value whose end panics.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("in a destructor");
        }
    }
}

#[test]
fn a_destructor_that_panics() {
    let ended = spmd(1, |ctx| {
        // On a worker, or where the handle is dropped: nobody else is hurt.
        for _ in 0..10 {
            drop(ctx.spawn(|| Ok(Bomb)));
            let kept = Bomb;
            drop(ctx.spawn(move || {
                let _kept = kept;
                Ok(())
            }));
        }
        assert_eq!(ctx.spawn(|| Ok(1)).take()?, 1);
        Ok(())
    });
    let error = ended.expect_err("values have panicked").to_string();
    assert!(error.contains("it panicked: in a destructor"), "{error}");
}

#[test]
fn a_task_is_tried_again() -> Result<()> {
    World::default().everywhere("failing::a_task_is_tried_again", &[1], |ctx| {
        let mut tries = 0;
        let task = ctx.task().retry(3).spawn(move || {
            tries += 1;
            match tries {
                1 => Err("once".into()),
                2 => panic!("twice"),
                _ => Ok(tries),
            }
        });
        assert_eq!(task.take()?, 3);
        let never = ctx.task().retry(2).spawn(|| Err::<(), _>("never".into()));
        assert!(never.take().is_err());
        Ok(())
    })
}
