//! What runs on this thread: the rank, as a pointer that means something to the layer above alone,
//! and the calls that it has started. Both are kept here because ranks that share a thread take
//! turns where they wait.

use std::cell::Cell;
use std::ptr::{dangling, null};

/// Who runs on a thread.
#[derive(Clone, Copy)]
struct Agent {
    /// What the layer above knows of it; null if it has said nothing.
    rank: *const (),
    /// What it has started and not ended, as `started.rs` keeps it; null if that is nothing,
    /// [`WITHIN`] in a started call.
    started: *const (),
}

const NOBODY: Agent = Agent { rank: null(), started: null() };

thread_local! {
    static CURRENT: Cell<Agent> = const { Cell::new(NOBODY) };
}

/// What was said last of the rank that runs on this thread; null if nothing was.
pub(crate) fn current() -> *const () {
    CURRENT.get().rank
}

/// Says which rank runs on this thread from now on, and gives what was said before.
pub(crate) fn set_current(rank: *const ()) -> *const () {
    let before = CURRENT.get();
    CURRENT.set(Agent { rank, ..before });
    before.rank
}

/// What a started call has started: none starts another one, or goes on with it.
pub(super) const WITHIN: *const () = dangling();

/// Whether whoever runs here has started calls that are not over, or is one.
#[inline]
pub(super) fn progresses() -> bool {
    !CURRENT.get().started.is_null()
}

/// The calls that whoever runs here has started; null if there are none, or a started call runs
/// here.
pub(super) fn started() -> *const () {
    let started = CURRENT.get().started;
    if started == WITHIN { null() } else { started }
}

/// Says which calls whoever runs here has started, and gives what was said before.
#[inline]
pub(super) fn set_started(started: *const ()) -> *const () {
    let before = CURRENT.get();
    CURRENT.set(Agent { started, ..before });
    before.started
}

/// Whether a started call runs here.
pub(crate) fn is_started() -> bool {
    CURRENT.get().started == WITHIN
}

/// A coroutine begins on this thread, of which nothing has been said.
pub(super) fn begin() {
    CURRENT.set(NOBODY);
}

/// Runs a suspension, in which others may run on this thread, and puts back what was said of this
/// one.
#[inline]
pub(super) fn cluster<R>(suspension: impl FnOnce() -> R) -> R {
    let current = CURRENT.get();
    let result = suspension();
    CURRENT.set(current);
    result
}
