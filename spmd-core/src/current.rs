//! The rank that runs on this thread, for those who know nothing of communicators.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr::null;

use crate::locals::{self, Locals};
use crate::wait::{current, scheduler, set_current, task};

/// A rank as it runs its closure: what `wait/current.rs` points to meanwhile.
pub(crate) struct Current {
    /// Its number in the world.
    pub(crate) rank: usize,
    /// Whether it is a thread, whose name tells its number, if the block has not given it another.
    is_thread: bool,
    /// Its end of the arena, which tells it from ranks of other blocks.
    end: *const (),
    /// Its row in the trace, if there is one.
    pub(crate) row: Option<u32>,
    pub(crate) locals: Locals,
    /// What the layer of communicators knows of it, while it runs.
    above: Cell<*const ()>,
}

impl Current {
    pub(crate) fn new(rank: usize, is_thread: bool, end: *const (), row: Option<u32>) -> Current {
        let (locals, above) = (Locals::new(), Cell::new(null()));
        Current { rank, is_thread, end, row, locals, above }
    }

    /// This is the rank that runs here from now on, as long as what this gives lives.
    pub(crate) fn enter(&self, above: *const ()) -> CurrentGuard<'_> {
        self.above.set(above);
        let before = set_current((&raw const *self).cast());
        // On a coroutine, what was there belongs to another one, which may end before this.
        let before = if scheduler::in_coroutine() { null() } else { before };
        CurrentGuard { before, _rank: PhantomData }
    }

    /// What [`Current::enter`] was given.
    pub(crate) fn above(&self) -> *const () {
        self.above.get()
    }

    /// Whether it is the rank of this end.
    pub(crate) fn is_of<T>(&self, end: &T) -> bool {
        std::ptr::eq(self.end, (&raw const *end).cast())
    }
}

/// Gives the rank that runs here to `f`, if one does, and no task.
pub(crate) fn with_rank<R>(f: impl FnOnce(Option<&Current>) -> R) -> R {
    with(|current| f(current.filter(|_| task().is_null())))
}

/// Leaves the rank again when dropped.
pub(crate) struct CurrentGuard<'a> {
    before: *const (),
    _rank: PhantomData<&'a Current>,
}

impl Drop for CurrentGuard<'_> {
    fn drop(&mut self) {
        set_current(self.before);
    }
}

/// Gives the rank that runs here to `f`, if one does.
pub(crate) fn with<R>(f: impl FnOnce(Option<&Current>) -> R) -> R {
    let current = current().cast::<Current>();
    if current.is_null() {
        return f(None);
    }
    // SAFETY: only `Current::enter` says that a rank runs here (`wait/current.rs`), by a pointer to
    // itself, which is borrowed until that is taken back (`CurrentGuard`), on a stack frame that
    // `f` runs above. What other coroutines say in between is overwritten when this one goes on, at
    // every suspension, and a coroutine leaves nothing there when it ends.
    f(Some(unsafe { &*current }))
}

/// The number in the world of the rank that runs here.
pub(crate) fn rank() -> Option<usize> {
    with(|current| current.map(|it| it.rank))
}

/// The rank that runs here, where the name of its thread does not tell: a virtual rank or a
/// process.
pub(crate) fn unnamed() -> Option<usize> {
    with(|current| {
        let Current { rank, is_thread, .. } = current?;
        let thread = std::thread::current();
        let told = thread.name().is_some_and(|name| name.ends_with(&format!(" {rank}")));
        (!is_thread || !told).then_some(*rank)
    })
}

/// Whether the values of the rank that runs here, or those of this thread, are being dropped.
pub(crate) fn locals_are_closed() -> bool {
    with_rank(|current| match current {
        Some(current) => current.locals.is_closed(),
        None => locals::thread_is_closed(),
    })
}

/// Gives the values of the rank that runs here to `f`, or those of this thread.
pub(crate) fn with_locals<R>(f: impl FnOnce(&Locals) -> R) -> R {
    with_rank(|current| match current {
        Some(current) => f(&current.locals),
        None => locals::with_thread(f),
    })
}
