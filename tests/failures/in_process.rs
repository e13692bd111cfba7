//! Thread and virtual ranks that fail while the others reduce much data.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use spmd::prelude::*;
use spmd::{Cause, Fault};

/// The longest that survivors may take on a busy machine.
const BOUND: Duration = Duration::from_secs(3);

type Deed = fn(&Ctx) -> Result<()>;

/// Where ranks run.
const PLACES: [fn(Spmd) -> Spmd; 3] =
    [Spmd::threads, Spmd::virtual_ranks, |spmd| spmd.virtual_ranks().workers(1)];

/// What the ranks that did not fail got, and the block as a whole.
struct Outcome {
    survivors: Vec<(usize, Error)>,
    whole: Error,
}

/// Rank 1 does `deed` between two reductions of which the others are in the second.
fn fail(n: usize, place: fn(Spmd) -> Spmd, deed: Deed) -> Outcome {
    let failed = Mutex::new(None);
    let survivors = Mutex::new(Vec::new());
    let whole = place(Spmd::new(n)).run(|ctx| {
        let mut data = vec![1.0; 200_000];
        ctx.allreduce_in_place(&mut data, Sum)?;
        if ctx.rank() == 1 {
            *failed.lock().unwrap() = Some(Instant::now());
            return deed(ctx);
        }
        let error = ctx.allreduce_in_place(&mut data, Sum).expect_err("a rank is missing");
        let since = failed.lock().unwrap().map(|failed| failed.elapsed());
        assert!(since.is_some_and(|since| since < BOUND), "{since:?}");
        survivors.lock().unwrap().push((ctx.rank(), error));
        Err("stopped".into())
    });
    let mut survivors = survivors.into_inner().unwrap();
    survivors.sort_by_key(|(rank, _)| *rank);
    assert_eq!(survivors.len(), n - 1);
    Outcome { survivors, whole: whole.unwrap_err() }
}

fn everywhere(deed: Deed, check: impl Fn(&Outcome)) {
    for n in [2, 3, 16, 20] {
        PLACES.into_iter().for_each(|place| check(&fail(n, place, deed)));
    }
}

#[test]
fn a_panic() {
    everywhere(
        |_| panic!("deliberate"),
        |outcome| {
            for (_, error) in &outcome.survivors {
                let Error::PeerFailed(peer) = error else { panic!("{error}") };
                let Fault::Rank { rank: 1, cause: Cause::Panicked(text) } = &peer.fault else {
                    panic!("{peer}")
                };
                assert_eq!(peer.rank, 1);
                assert!(text.starts_with("deliberate at tests/failures/in_process.rs:"), "{text}");
            }
            assert!(
                matches!(&outcome.whole, Error::Panicked(panic) if panic.rank == 1),
                "{}",
                outcome.whole
            );
        },
    );
}

#[test]
fn an_error() {
    everywhere(
        |_| Err("deliberate".into()),
        |outcome| {
            for (_, error) in &outcome.survivors {
                let text = error.to_string();
                assert!(matches!(&error, Error::PeerFailed(peer) if peer.rank == 1), "{text}");
                assert!(
                    text.ends_with("rank 1 failed first: it returned an error: deliberate"),
                    "{text}"
                );
                assert!(
                    text.starts_with(
                        "allreduce_in_place of 200000 f64 with Sum at tests/failures/"
                    ),
                    "{text}"
                );
            }
            assert_eq!(outcome.whole.to_string(), "deliberate");
        },
    );
}

#[test]
fn an_early_end() {
    everywhere(
        |_| Ok(()),
        |outcome| {
            for (_, error) in &outcome.survivors {
                assert!(matches!(error.fault(), Some(Fault::Left { rank: 1, .. })), "{error}");
            }
        },
    );
}

/// The reduction is under way on all ranks when the operation of rank 1 panics.
#[test]
fn a_panic_in_an_operation() {
    let picky = |ctx: &Ctx| {
        let rank = ctx.rank();
        Op::new(move |a: f64, b: f64| {
            assert!(rank != 1 || a + b < 1e9, "deliberate");
            a + b
        })
    };
    for place in PLACES {
        for n in [2, 3, 20] {
            let errors = Mutex::new(Vec::new());
            let start = Instant::now();
            let whole = place(Spmd::new(n)).run(|ctx| {
                let mut data = vec![1.0; 400_000];
                ctx.allreduce_in_place(&mut data, picky(ctx))?;
                data.fill(1.0);
                let middle = data.len() / n * 3 / 2;
                data[middle] = 1e9;
                let outcome = ctx.allreduce_in_place(&mut data, picky(ctx));
                if let Err(error) = &outcome {
                    errors.lock().unwrap().push((ctx.rank(), error.to_string()));
                }
                outcome
            });
            assert!(start.elapsed() < BOUND, "{:?}", start.elapsed());
            let whole = whole.unwrap_err();
            assert!(matches!(&whole, Error::Panicked(panic) if panic.rank == 1), "{whole}");
            let errors = errors.into_inner().unwrap();
            assert_eq!(errors.len(), n - 1);
            for (rank, error) in errors {
                assert!(
                    error.contains("rank 1 failed first: it panicked: deliberate"),
                    "{rank}: {error}"
                );
            }
        }
    }
}

/// A world goes on without its failed blocks: the next one is as good as new.
#[test]
fn blocks_after_a_failure() {
    for place in PLACES {
        for turn in 0..20 {
            let result = place(Spmd::new(4)).run(|ctx| {
                ctx.barrier()?;
                if turn % 2 == 0 && ctx.rank() == turn % 4 {
                    return Err("deliberate".into());
                }
                ctx.allreduce_value(1, Sum)
            });
            assert_eq!(result.is_err(), turn % 2 == 0, "{result:?}");
        }
    }
}

/// The root of a reduction catches the panic of its operation; nobody returns an error.
#[test]
fn a_caught_panic_in_an_operation() {
    for place in PLACES {
        let whole = place(Spmd::new(3)).run(|ctx| {
            let op = Op::new(|_: u64, _: u64| -> u64 { panic!("deliberate") });
            let call = || ctx.reduce_value(ctx.rank() as u64, op, 0);
            let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(call));
            assert_eq!(caught.is_err(), ctx.rank() == 0);
            let error = ctx.barrier().expect_err("the communicator is stopped");
            assert!(error.to_string().contains("it panicked: deliberate"), "{error}");
            Ok(())
        });
        let text = whole.expect_err("the block was stopped").to_string();
        assert!(text.contains("rank 0 failed first: it panicked: deliberate"), "{text}");
    }
}

/// What a panic carries may panic when it is dropped.
#[test]
fn a_panic_that_panics_when_dropped() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                std::panic::panic_any(Bomb);
            }
        }
    }
    for place in PLACES {
        let whole = place(Spmd::new(3)).run(|ctx| {
            if ctx.rank() == 1 {
                std::panic::panic_any(Bomb);
            }
            ctx.barrier()
        });
        assert!(matches!(&whole, Err(Error::Panicked(panic)) if panic.rank == 1), "{whole:?}");
    }
}

/// An error whose text cannot be had: it panics, or comes to nothing.
#[derive(Debug)]
struct Unspeakable(bool);

impl std::fmt::Display for Unspeakable {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        assert!(!self.0, "no words");
        Err(std::fmt::Error)
    }
}

impl std::error::Error for Unspeakable {}

#[test]
fn an_error_without_words() {
    let deeds: [Deed; 2] =
        [|_| Err(Error::user(Unspeakable(true))), |_| Err(Error::user(Unspeakable(false)))];
    for deed in deeds {
        everywhere(deed, |outcome| {
            for (_, error) in &outcome.survivors {
                let Error::PeerFailed(peer) = error else { panic!("{error}") };
                let Fault::Rank { rank: 1, cause: Cause::Returned(text) } = &peer.fault else {
                    panic!("{peer}")
                };
                assert_eq!(text, "(an error whose text cannot be written)");
            }
            assert!(matches!(&outcome.whole, Error::User(_)));
        });
    }
}
