//! Two things at a time.

use std::any::Any;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::ptr::null;

use spmd_core::internal::{as_task, cannot_wait, task};

use crate::about::Priority;
use crate::job::{Ask, Job, NO_STACK};
use crate::latch::Latch;
use crate::pool::Here;
use crate::rank::{group_here, part_begins, part_here};

/// Runs both, at the same time if a worker is free, and gives what they return. In a task or on a
/// rank; elsewhere one after the other. As a task, neither is a rank itself. It costs as much as a few function calls: no task is made, and
/// what they do may be small. `rayon::join` has the same form.
///
/// A panic of either goes on here once both are over; of two that of the first.
///
/// ```
/// use spmd::prelude::*;
/// use spmd::tasks::join;
///
/// fn fibonacci(n: u64) -> u64 {
///     if n < 2 {
///         return n;
///     }
///     let (a, b) = join(|| fibonacci(n - 1), || fibonacci(n - 2));
///     a + b
/// }
/// assert_eq!(spmd(1, |_ctx| Ok(fibonacci(20)))?, [6765]);
/// # Ok::<(), Error>(())
/// ```
#[track_caller]
pub fn join<A, B>(a: impl FnOnce() -> A + Send, b: impl FnOnce() -> B + Send) -> (A, B)
where
    A: Send,
    B: Send,
{
    if cannot_wait() {
        return (a(), b());
    }
    match Here::any() {
        Some(here) => on_worker(here, Location::caller(), a, b),
        None => elsewhere(Location::caller(), a, b),
    }
}

fn on_worker<A, B: Send>(
    here: &Here,
    site: &'static Location<'static>,
    a: impl FnOnce() -> A,
    b: impl FnOnce() -> B + Send,
) -> (A, B) {
    let part = here.part();
    let other = OnStack::new(part, b);
    let what = (&raw const other).cast::<()>();
    // SAFETY: it is there until it has been called, or taken back, once: this function waits for that
    // whatever `a` does. What it does is `Send`.
    here.push(unsafe { other.job() });
    let first = run(part, a);
    let second = match here.pop() {
        Some(job) if job.is(what) => {
            // SAFETY: the job was taken back, and is called no more, before anybody has called it.
            run(part, unsafe { other.take_work() })
        }
        another => {
            // It lies beneath others by now, or somebody has it.
            another.into_iter().for_each(|job| here.push(job));
            other.latch.wait(site, &group_here());
            other.result()
        }
    };
    both(first, second)
}

/// Runs a part of a task, or of a rank: in it nothing is the rank's own, wherever it is.
fn run<R>(part: *const (), work: impl FnOnce() -> R) -> Outcome<R> {
    let run = || catch_unwind(AssertUnwindSafe(work));
    if task() == part { run() } else { as_task(part, run) }
}

/// On a virtual rank, which has no queue of its own: a worker does both.
#[cold]
fn elsewhere<A: Send, B: Send>(
    site: &'static Location<'static>,
    a: impl FnOnce() -> A + Send,
    b: impl FnOnce() -> B + Send,
) -> (A, B) {
    let group = group_here();
    let Some(part) = part_here().filter(|_| group.refusal().is_none()) else {
        return (a(), b());
    };
    if let Some(here) = Here::any() {
        return on_worker(here, site, a, b);
    }
    let both = OnStack::new(part.cast(), || join(a, b));
    // SAFETY: it is there until it has been called, once: this function waits for that. What it does
    // is `Send`.
    group.pool.put(unsafe { both.job() }, Priority::Usual);
    both.latch.wait(site, &group);
    both.result().unwrap_or_else(|panic| resume_unwind(panic))
}

fn both<A, B>(a: Outcome<A>, b: Outcome<B>) -> (A, B) {
    let panic = match (a, b) {
        (Ok(a), Ok(b)) => return (a, b),
        (Err(panic), Ok(_)) | (Ok(_), Err(panic)) => panic,
        (Err(panic), Err(other)) => {
            spmd_core::internal::discard(other);
            panic
        }
    };
    resume_unwind(panic)
}

type Outcome<R> = Result<R, Box<dyn Any + Send>>;

/// Work that lies on the stack of who waits for it.
struct OnStack<F, R> {
    work: UnsafeCell<Option<F>>,
    result: UnsafeCell<Option<Outcome<R>>>,
    latch: Latch,
    /// The task, or what the rank has in its place, of which it is a part.
    part: *const (),
}

impl<F: FnOnce() -> R, R> OnStack<F, R> {
    fn new(part: *const (), work: F) -> OnStack<F, R> {
        let (work, result) = (UnsafeCell::new(Some(work)), UnsafeCell::new(None));
        OnStack { work, result, latch: Latch::new(), part }
    }

    /// # Safety
    /// `self` stays where it is until the job has been called, which opens the latch, or is taken back.
    /// What it does, and gives, may be done and given by any thread.
    unsafe fn job(&self) -> Job {
        // SAFETY: `self` is there then (this function's contract), and it is called once.
        unsafe { Job::new((&raw const *self).cast(), Self::act) }
    }

    /// # Safety
    /// `this` is the address of one, whose work nobody has taken.
    unsafe fn act(this: *const (), ask: Ask) -> *const () {
        if ask == Ask::Group {
            return null();
        }
        let this = this.cast::<Self>();
        {
            // SAFETY: it is there until the latch is open.
            let this = unsafe { &*this };
            // SAFETY: this function's contract.
            let work = unsafe { this.take_work() };
            let result = match ask {
                Ask::Fail => {
                    drop(catch_unwind(AssertUnwindSafe(|| drop(work))));
                    Err(Box::new(NO_STACK) as Box<dyn Any + Send>)
                }
                _ => run(this.part, || {
                    let _bar = part_begins();
                    work()
                }),
            };
            // SAFETY: who waits reads it once the latch is open.
            unsafe { *this.result.get() = Some(result) };
        }
        // SAFETY: it is there, and opened here alone.
        unsafe { Latch::open(&raw const (*this).latch) };
        null()
    }

    /// # Safety
    /// Nobody else takes the work.
    unsafe fn take_work(&self) -> F {
        // SAFETY: this function's contract.
        unsafe { (*self.work.get()).take() }.expect("work is taken once")
    }

    /// What came of it, once the latch is open.
    fn result(self) -> Outcome<R> {
        self.result.into_inner().expect("the latch is open")
    }
}
