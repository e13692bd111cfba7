//! What runs on this thread: the rank and the task, as pointers that mean something to layers above
//! alone, and the calls that were started here. They are kept here because ranks, or tasks, that share
//! a thread take turns where they wait.

use std::cell::Cell;
use std::ptr::{dangling, null};

thread_local! {
    /// What the layer above knows of who runs on this thread; null if it has said nothing.
    static RANK: Cell<*const ()> = const { Cell::new(null()) };
    /// What the layer above knows of the task that runs on this thread; null if none does.
    static TASK: Cell<*const ()> = const { Cell::new(null()) };
    /// What it has started and not ended, as `started/` keeps it; null if that is nothing,
    /// [`WITHIN`] in a started call.
    static STARTED: Cell<*const ()> = const { Cell::new(null()) };
}

/// What was said last of the rank that runs on this thread; null if nothing was.
pub(crate) fn current() -> *const () {
    RANK.get()
}

/// Says which rank runs on this thread from now on, and gives what was said before.
pub(crate) fn set_current(rank: *const ()) -> *const () {
    RANK.replace(rank)
}

/// The task that runs on this thread; null if none does.
pub fn task() -> *const () {
    TASK.get()
}

/// Runs a task, of which this is known. In it nothing is a rank's own, whoever runs it.
pub fn as_task<R>(task: *const (), run: impl FnOnce() -> R) -> R {
    struct Before(*const ());
    impl Drop for Before {
        fn drop(&mut self) {
            TASK.set(self.0);
        }
    }
    let _before = Before(TASK.replace(task));
    run()
}

/// What a started call has started: none starts another one, or goes on with it.
pub(super) const WITHIN: *const () = dangling();

/// Whether whoever runs here has started calls that are not over, or is one.
#[inline]
pub(crate) fn progresses() -> bool {
    !STARTED.get().is_null()
}

/// The calls that whoever runs here has started; null if there are none, or a started call runs
/// here.
pub(super) fn started() -> *const () {
    let started = STARTED.get();
    if started == WITHIN { null() } else { started }
}

/// Says which calls whoever runs here has started, and gives what was said before.
#[inline]
pub(super) fn set_started(started: *const ()) -> *const () {
    STARTED.replace(started)
}

/// Whether a started call runs here.
pub(crate) fn is_started() -> bool {
    STARTED.get() == WITHIN
}

/// A coroutine begins on this thread, of which nothing has been said.
pub(super) fn begin() {
    RANK.set(null());
    TASK.set(null());
    STARTED.set(null());
}

/// Runs a suspension, in which others may run on this thread, and puts back what was said of this
/// one.
#[inline]
pub(super) fn kept_over<R>(suspension: impl FnOnce() -> R) -> R {
    let (rank, task, started) = (RANK.get(), TASK.get(), STARTED.get());
    let result = suspension();
    RANK.set(rank);
    TASK.set(task);
    STARTED.set(started);
    result
}
