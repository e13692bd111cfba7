//! What a task is made of: its work, then its outcome.

use std::cell::UnsafeCell;
use std::mem::replace;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::time::Instant;

use spmd_core::Error;
use spmd_core::internal::as_task;

use crate::choice::Either;
use crate::failure::Failure;
use crate::granting;
use crate::group::{Group, Pending};
use crate::header::{
    AWAITED, BEGUN, DROPPED, HELD, Header, KNOWN, OVER, Runnable, UNUSED, needs_nothing, put,
};
use crate::job::{Ask, Job, NO_STACK};
use crate::pool::Queues;
use crate::turns::{InTurn, Turn};
use crate::watch::Watched;

/// What a task does.
pub trait Work: Send {
    type Value: Send;
    /// Whether it has begun elsewhere: then it is carried out although it is cancelled.
    const HAS_BEGUN: bool = false;
    fn run(self, task: &Header) -> Result<Self::Value, Failure>;
}

/// A task with a value of this type.
pub(crate) trait Valued<T>: Runnable {
    /// The outcome. The task is over, and the caller uses its value.
    fn outcome(&self) -> &Result<T, Failure>;
    /// Takes the outcome away.
    ///
    /// # Safety
    /// The task is over, and nobody but the caller uses its value, now or later.
    unsafe fn take(&self) -> Result<T, Failure>;
    /// Frees the value. If that panics, the failure that this is, and of what.
    ///
    /// # Safety
    /// [`Header::is_left`] has told the caller to do this, once.
    unsafe fn free(&self) -> Option<(Failure, String)>;
}

/// A task as those keep it who wait for it or for whom it waits.
///
/// # Safety
/// Once the task is over, its work and its value are freed before its lifetime ends, or never.
pub(crate) unsafe fn unbound<'a>(task: Arc<dyn Runnable + 'a>) -> Arc<dyn Runnable> {
    // SAFETY: the type stays the same but for a lifetime. What has that lifetime, the task's work and value,
    // is gone when it ends (this function's contract), and is used by the task alone and by who has its handle.
    unsafe { std::mem::transmute::<Arc<dyn Runnable + 'a>, Arc<dyn Runnable>>(task) }
}

/// A task.
pub(crate) struct Node<W: Work> {
    header: Header,
    content: UnsafeCell<Content<W>>,
}

enum Content<W: Work> {
    Work(W),
    Outcome(Result<W::Value, Failure>),
    Nothing,
}

// SAFETY: what it does and its value are `Send`. The content is used by one at a time: by who has begun
// the task until that is over, then by those who use the value: shared by reference only where the
// value is `Sync` (the bounds of `Task`), and freed by the last one.
unsafe impl<W: Work> Send for Node<W> {}
// SAFETY: as above.
unsafe impl<W: Work> Sync for Node<W> {}

impl<W: Work> Node<W> {
    pub(crate) fn new(header: Header, work: W) -> Node<W> {
        Node { header, content: UnsafeCell::new(Content::Work(work)) }
    }

    /// All is known that it needs: it is carried out once that is there.
    pub(crate) fn is_made(self: &Arc<Self>, group: &Arc<Group>) {
        let header = &self.header;
        // Alone with itself it needs nothing else.
        if header.needs.load(Acquire) == 1 {
            header.needs.store(0, Release);
        } else if header.needs.fetch_sub(1, AcqRel) != 1 {
            return;
        }
        // What is refused is over.
        if header.state.load(Acquire) & BEGUN != 0 {
            return;
        }
        match group.refusal() {
            None => {
                header.is_queued();
                put(&group.pool, (header, self.clone().job()), Queues::put);
            }
            Some(why) => self.is_refused(why.clone()),
        }
    }

    /// It fails before anybody has begun it.
    fn is_refused(&self, why: Arc<Error>) {
        if self.header.begin() {
            self.ends(Err(Failure::returned(self.header.described(), why)));
        }
    }

    /// It is being made. What it asks for may wait for the end of its scope; what nobody has it cannot
    /// get.
    pub(crate) fn asks(&self, group: &Group, itself: impl FnOnce() -> Arc<dyn Runnable>) {
        let why = match self.header.asks() {
            Some(asks) => group.pool.lacks(&asks.request).filter(|_| group.refusal().is_none()),
            None if self.header.either().is_some() => None,
            None => return,
        };
        match why {
            Some(why) => self.is_refused(Arc::new(Error::argument(why))),
            None => group.waits(|| itself()),
        }
    }

    /// Has it fail before it does anything, by the one who has begun it.
    fn fail(&self, why: Error) {
        let header = &self.header;
        // SAFETY: the caller has begun it, and nobody else uses the content before it is over.
        let work = unsafe { replace(&mut *self.content.get(), Content::Nothing) };
        let failure = match catch_unwind(AssertUnwindSafe(|| drop(work))) {
            Ok(()) => Failure::returned(header.described(), why),
            Err(panic) => Failure::panicked(header.described(), panic),
        };
        self.ends(Err(failure));
    }

    /// Carries it out, by the one who has begun it.
    fn carry_out(&self) {
        let outcome = match (self.header.watched(), self.header.either()) {
            (None, None) => self.outcome_of_work(),
            (watched, either) => self.watched_outcome(watched, either),
        };
        self.ends(outcome);
    }

    #[cold]
    fn watched_outcome(
        &self,
        watched: Option<&Watched>,
        either: Option<&Either>,
    ) -> Result<W::Value, Failure> {
        let bar = watched.and_then(|it| it.begins(self.header.site(), self.header.name()));
        let start = Instant::now();
        let outcome = self.outcome_of_work();
        // What has failed says nothing of how long it takes.
        let either = either.filter(|_| outcome.is_ok());
        either.into_iter().for_each(|either| either.has_run(start.elapsed()));
        if let Some(watched) = watched {
            watched.ends(bar, outcome.as_ref().err());
        }
        outcome
    }

    /// Does its work, by the one who has begun it.
    #[inline]
    fn outcome_of_work(&self) -> Result<W::Value, Failure> {
        let header = &self.header;
        // SAFETY: the caller has begun it, and nobody else uses the content before it is over.
        let content = unsafe { replace(&mut *self.content.get(), Content::Nothing) };
        let Content::Work(work) = content else { unreachable!("a task begins once") };
        let is_refused = match W::HAS_BEGUN {
            // SAFETY: it is not over, as it is being carried out.
            true => unsafe { header.group() }.gives_up(),
            false => header.is_cancelled(),
        };
        if is_refused {
            let dropped = catch_unwind(AssertUnwindSafe(|| drop(work)));
            let task = header.described();
            Err(dropped.map_or_else(
                |panic| Failure::panicked(task.clone(), panic),
                |()| Failure::cancelled(task.clone()),
            ))
        } else {
            let run = || catch_unwind(AssertUnwindSafe(|| work.run(header)));
            let outcome = as_task((&raw const *header).cast(), run);
            outcome.unwrap_or_else(|panic| Err(Failure::panicked(header.described(), panic)))
        }
    }

    fn ends(&self, outcome: Result<W::Value, Failure>) {
        let header = &self.header;
        if let Err(failure) = &outcome {
            // It is over once.
            let _ = header.failure.set(failure.clone());
            header.watched().into_iter().for_each(|watched| watched.fails(failure));
        }
        // SAFETY: as above; what was there is `Nothing`.
        unsafe { *self.content.get() = Content::Outcome(outcome) };
        let before = header.state.fetch_or(OVER, AcqRel);
        while header.state.load(Acquire) & HELD != 0 {
            std::thread::yield_now();
        }
        if let Some(asks) = header.asks() {
            // Before those that need the task, which may ask for the same.
            // SAFETY: the group counts the task until `ends_one`.
            granting::give_back(&unsafe { header.group() }.pool, asks);
        }
        if let Some(either) = header.either() {
            // SAFETY: as above.
            unsafe { header.group() }.pool.choices.is_over(either, &header.known_as());
        }
        if let Some(turn) = header.turn() {
            turn.ends(header.failure());
        }
        if before & AWAITED != 0 {
            header.tell_all();
        }
        if let Some(failure) = header.failure()
            && before & (DROPPED | KNOWN) == DROPPED
        {
            // SAFETY: the group counts the task until `ends_one`.
            unsafe { header.group() }.note(failure, header.described());
        }
        if before & UNUSED != 0 {
            // SAFETY: who left last has found that it was not over.
            if let Some((failure, task)) = unsafe { self.free() } {
                // SAFETY: the group counts the task until `ends_one`.
                unsafe { header.group() }.note(&failure, task);
            }
        }
        // SAFETY: it counts the task, once, until this.
        unsafe { Group::ends_one(header.group) };
    }

    /// # Safety
    /// `job` is the address of a task that [`Arc::into_raw`] has given for this, which has not been
    /// asked to run.
    unsafe fn act(job: *const (), ask: Ask) -> *const () {
        if ask == Ask::Group {
            // SAFETY: it is there, as it has not been run.
            return unsafe { &*job.cast::<Node<W>>() }.header.group.as_ptr().cast_const().cast();
        }
        // SAFETY: this function's contract.
        let task = unsafe { Arc::from_raw(job.cast::<Node<W>>()) };
        match ask {
            Ask::Fail if task.header.begin() => task.fail(NO_STACK.into()),
            Ask::Fail => {}
            _ => task.run(),
        }
        null()
    }
}

impl<W: Work> Pending for Node<W> {
    fn run(&self) {
        if self.header.begin() {
            self.carry_out();
        }
    }

    fn is_over(&self) -> bool {
        self.header.is_over()
    }
}

impl<W: Work> InTurn for Node<W> {
    fn turn(&self) -> Option<&Turn> {
        self.header.turn()
    }

    fn has_turn(self: Arc<Self>) {
        needs_nothing(self);
    }
}

impl<W: Work> Runnable for Node<W> {
    fn header(&self) -> &Header {
        &self.header
    }

    fn job(self: Arc<Self>) -> Job {
        // SAFETY: the address is for that function, which is called once.
        unsafe { Job::new(Arc::into_raw(self).cast(), Node::<W>::act) }
    }
}

impl<W: Work> Valued<W::Value> for Node<W> {
    fn outcome(&self) -> &Result<W::Value, Failure> {
        assert!(self.header.is_over(), "a task has an outcome when it is over");
        // SAFETY: it is over, so that nobody writes the content but who takes or frees it: after the
        // last of those who use it, of whom the caller is one.
        match unsafe { &*self.content.get() } {
            Content::Outcome(outcome) => outcome,
            _ => unreachable!("the value is there as long as somebody uses it"),
        }
    }

    unsafe fn take(&self) -> Result<W::Value, Failure> {
        // SAFETY: nobody else uses the content (this function's contract).
        match unsafe { replace(&mut *self.content.get(), Content::Nothing) } {
            Content::Outcome(outcome) => outcome,
            _ => unreachable!("the value is there as long as somebody uses it"),
        }
    }

    unsafe fn free(&self) -> Option<(Failure, String)> {
        // SAFETY: nobody uses the content any more (this function's contract).
        let value = unsafe { replace(&mut *self.content.get(), Content::Nothing) };
        let panic = catch_unwind(AssertUnwindSafe(|| drop(value))).err()?;
        let task = self.header.described();
        Some((Failure::panicked(task.clone(), panic), task))
    }
}
