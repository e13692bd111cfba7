//! Tasks that borrow.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::*};

use spmd::prelude::*;
use spmd::tasks::scope;

use crate::support::World;

#[test]
fn they_borrow_and_are_over() -> Result<()> {
    World::default().everywhere("scopes::they_borrow_and_are_over", &[1, 2], |ctx| {
        let (mut parts, total) = (vec![1usize; 100], AtomicUsize::new(0));
        let (total, first) = (
            &total,
            ctx.scope(|s| {
                for part in &mut parts {
                    // Its handle is forgotten: it is over all the same.
                    std::mem::forget(s.spawn(|| {
                        *part += 1;
                        total.fetch_add(*part, Relaxed);
                        Ok(())
                    }));
                }
                s.spawn(|| Ok(5)).take()
            })?,
        );
        assert_eq!((first, total.load(Relaxed)), (5, 200));
        assert_eq!(parts, [2; 100]);
        Ok(())
    })
}

#[test]
fn they_are_over_whatever_happens() -> Result<()> {
    World::default().everywhere("scopes::they_are_over_whatever_happens", &[1, 2], |ctx| {
        for round in 0..50 {
            let mut data = vec![0u8; 64];
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                ctx.scope(|s| -> Result<()> {
                    for part in data.chunks_mut(8) {
                        s.spawn(move || {
                            part.fill(1);
                            Ok(())
                        });
                    }
                    if round % 2 == 0 { panic!("in the scope") } else { Err("gives up".into()) }
                })
            }));
            assert_eq!(panicked.is_err(), round % 2 == 0);
            assert_eq!(data, [1; 64]);
        }
        Ok(())
    })
}

#[test]
fn a_failure_comes_out_of_the_scope() -> Result<()> {
    World::default().everywhere("scopes::a_failure_comes_out_of_the_scope", &[1, 2], |ctx| {
        let failed = ctx.scope(|s| {
            s.spawn(|| Err::<(), _>("inside".into()));
            Ok(())
        });
        let error = failed.expect_err("a task has failed").to_string();
        assert!(error.ends_with("failed: inside"), "{error}");
        ctx.scope(|s| {
            assert!(s.spawn(|| Err::<(), _>("told".into())).fetch().is_err());
            Ok(())
        })
    })
}

#[test]
fn scopes_within_tasks() -> Result<()> {
    fn sum(data: &[u64]) -> Result<u64> {
        if data.len() <= 16 {
            return Ok(data.iter().sum());
        }
        let (left, right) = data.split_at(data.len() / 2);
        scope(|s| {
            let left = s.spawn(|| sum(left));
            let right = sum(right)?;
            Ok(left.take()? + right)
        })
    }
    World::default().everywhere("scopes::scopes_within_tasks", &[1, 2], |ctx| {
        let data: Vec<u64> = (0..10_000).collect();
        assert_eq!(sum(&data)?, 49_995_000);
        assert_eq!(ctx.spawn(move || sum(&data)).take()?, 49_995_000);
        Ok(())
    })
}
