//! Storage of a rank's own.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering::*};

use crate::current::{locals_are_closed, with_locals};

/// A static of which every rank has a value of its own, declared by
/// [`rank_local!`](crate::rank_local!).
///
/// What a `thread_local!` is to threads, this is to ranks: alike whether they are threads,
/// processes or virtual ranks, many of which share a thread. A thread that is no rank, as one that
/// a rank has started, has a value of its own, too.
pub struct RankLocal<T: 'static> {
    init: fn() -> T,
    /// Its place among the values of a rank plus one; 0 until it is first used.
    place: AtomicUsize,
    _values: PhantomData<fn() -> T>,
}

/// Without its value: that would be made by looking.
impl<T: 'static> fmt::Debug for RankLocal<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RankLocal").finish_non_exhaustive()
    }
}

/// How many places have been given away.
static PLACES: AtomicUsize = AtomicUsize::new(0);

impl<T: 'static> RankLocal<T> {
    #[doc(hidden)]
    pub const fn new(init: fn() -> T) -> RankLocal<T> {
        RankLocal { init, place: AtomicUsize::new(0), _values: PhantomData }
    }

    fn place(&self) -> usize {
        match self.place.load(Relaxed) {
            0 => {
                let new = PLACES.fetch_add(1, Relaxed) + 1;
                let first = self.place.compare_exchange(0, new, Relaxed, Relaxed);
                first.map_or_else(|taken| taken, |_| new) - 1
            }
            place => place - 1,
        }
    }

    /// Gives this rank's value to `f`, after the initialiser has made it at the first use. The
    /// value is dropped when the rank's closure has ended, before peers learn that the rank has
    /// left: the values of a rank in the reverse order of their first use.
    ///
    /// Panics when the rank's values are being dropped. Those of a thread that is no rank are
    /// dropped as it ends, where a panic ends the process.
    ///
    /// ```
    /// use spmd::prelude::*;
    /// use spmd::rank_local;
    /// use std::cell::Cell;
    ///
    /// rank_local! {
    ///     static CALLS: Cell<usize> = Cell::new(0);
    /// }
    ///
    /// fn count() -> usize {
    ///     CALLS.with(|calls| {
    ///         calls.set(calls.get() + 1);
    ///         calls.get()
    ///     })
    /// }
    ///
    /// // All of them on one thread.
    /// let calls = Spmd::new(3).virtual_ranks().workers(1).run(|ctx| {
    ///     (0..ctx.rank()).for_each(|_| drop(count()));
    ///     Ok(count())
    /// })?;
    /// assert_eq!(calls, [1, 2, 3]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn with<R>(&'static self, f: impl FnOnce(&T) -> R) -> R {
        with_locals(|locals| {
            let value = locals.get(self.place(), self.init);
            // SAFETY: the value lies in a box that its owner, a rank or a thread, drops only when
            // all that it runs has ended, this call among it; it hands out shared references alone.
            f(unsafe { &*value })
        })
    }

    /// The same; `None` when the values of the rank, or of the thread, are being dropped.
    ///
    /// ```
    /// use std::cell::Cell;
    ///
    /// spmd::rank_local! {
    ///     static COUNT: Cell<u32> = Cell::new(3);
    /// }
    /// assert_eq!(COUNT.try_with(Cell::get), Some(3));
    /// ```
    pub fn try_with<R>(&'static self, f: impl FnOnce(&T) -> R) -> Option<R> {
        (!locals_are_closed()).then(|| self.with(f))
    }
}

/// Declares storage of a rank's own, in the manner of `thread_local!`: see [`RankLocal`].
///
/// ```
/// use std::cell::RefCell;
///
/// spmd::rank_local! {
///     /// What this rank has to say.
///     pub static LINES: RefCell<Vec<String>> = RefCell::new(Vec::new());
///     static DEPTH: std::cell::Cell<u32> = std::cell::Cell::new(1);
/// }
///
/// let lengths = spmd::spmd(2, |ctx| {
///     LINES.with(|lines| lines.borrow_mut().push(format!("rank {}", ctx.rank())));
///     Ok(LINES.with(|lines| lines.borrow().len()))
/// })?;
/// assert_eq!(lengths, [1, 1]);
/// assert_eq!(DEPTH.with(|depth| depth.get()), 1); // outside of ranks: this thread's own
/// # Ok::<(), spmd::Error>(())
/// ```
#[macro_export]
macro_rules! rank_local {
    ($($(#[$attribute:meta])* $vis:vis static $name:ident: $type:ty = $init:expr);* $(;)?) => {$(
        $(#[$attribute])*
        $vis static $name: $crate::RankLocal<$type> = $crate::RankLocal::new({
            fn init() -> $type {
                $init
            }
            init
        });
    )*};
}

#[cfg(test)]
mod tests;
