//! Which rank runs on this thread, as a pointer that means something to the layer above alone. It
//! is kept here because ranks that share a thread take turns where they wait.

use std::cell::Cell;
use std::ptr::null;

thread_local! {
    static CURRENT: Cell<*const ()> = const { Cell::new(null()) };
}

/// What was said last of the rank that runs on this thread; null if nothing was.
pub(crate) fn current() -> *const () {
    CURRENT.get()
}

/// Says which rank runs on this thread from now on, and gives what was said before.
pub(crate) fn set_current(current: *const ()) -> *const () {
    CURRENT.replace(current)
}

/// Runs a suspension, in which other ranks may run on this thread, and puts back what was said of
/// this one.
#[inline]
pub(super) fn across<R>(suspension: impl FnOnce() -> R) -> R {
    let current = CURRENT.get();
    let result = suspension();
    CURRENT.set(current);
    result
}
