//! Storage of a rank's own.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering::*};

use crate::current::with_locals;

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
    /// # use spmd_core::{Result, Spmd, rank_local};
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
    /// # Ok::<(), spmd_core::Error>(())
    /// ```
    pub fn with<R>(&'static self, f: impl FnOnce(&T) -> R) -> R {
        with_locals(|locals| {
            let value = locals.get(self.place(), self.init);
            // SAFETY: the value lies in a box that its owner, a rank or a thread, drops only when
            // all that it runs has ended, this call among it; it hands out shared references alone.
            f(unsafe { &*value })
        })
    }
}

/// Declares storage of a rank's own, in the manner of `thread_local!`: see [`RankLocal`].
///
/// ```
/// use std::cell::RefCell;
///
/// spmd_core::rank_local! {
///     /// What this rank has to say.
///     pub static LINES: RefCell<Vec<String>> = RefCell::new(Vec::new());
///     static DEPTH: std::cell::Cell<u32> = std::cell::Cell::new(1);
/// }
///
/// let lengths = spmd_core::spmd(2, |ctx| {
///     LINES.with(|lines| lines.borrow_mut().push(format!("rank {}", ctx.rank())));
///     Ok(LINES.with(|lines| lines.borrow().len()))
/// })?;
/// assert_eq!(lengths, [1, 1]);
/// assert_eq!(DEPTH.with(|depth| depth.get()), 1); // outside of ranks: this thread's own
/// # Ok::<(), spmd_core::Error>(())
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
mod tests {
    use std::cell::RefCell;

    use crate::{Mode, Result, Spmd, spmd};

    rank_local! {
        static OWN: RefCell<Vec<usize>> = RefCell::new(vec![100]);
        static FIRST: Noisy = Noisy("first");
        static SECOND: Noisy = Noisy("second");
    }

    static DROPPED: parking_lot::Mutex<Vec<&str>> = parking_lot::Mutex::new(Vec::new());

    struct Noisy(&'static str);

    impl Drop for Noisy {
        fn drop(&mut self) {
            DROPPED.lock().push(self.0);
        }
    }

    fn own() -> Vec<usize> {
        OWN.with(|own| own.borrow().clone())
    }

    #[test]
    fn every_rank_and_thread_has_its_own() {
        OWN.with(|own| own.borrow_mut().push(7));
        for mode in [Mode::Threads, Mode::Virtual] {
            let block = match mode {
                Mode::Threads => Spmd::new(5).threads(),
                _ => Spmd::new(5).virtual_ranks().workers(2),
            };
            let seen = block.run(|ctx| {
                let (me, n) = (ctx.rank(), ctx.size());
                OWN.with(|own| own.borrow_mut().push(me));
                // Others run on this thread meanwhile, also while the value is in use.
                OWN.with(|_| ctx.send(&[me], (me + 1) % n, 0))?;
                OWN.with(|_| ctx.recv(&mut [0usize], (me + n - 1) % n, 0).map(drop))?;
                assert_eq!(own(), [100, me]);
                let nested = spmd(2, |_| Ok(own()))?;
                assert_eq!(nested, [[100], [100]]);
                let thread = std::thread::scope(|scope| scope.spawn(own).join());
                assert_eq!(thread.expect("it does not panic"), [100]);
                Ok(own())
            });
            let expected: Vec<_> = (0..5).map(|rank| vec![100, rank]).collect();
            assert_eq!(seen.expect("all fits"), expected);
        }
        assert_eq!(own(), [100, 7]);
    }

    #[test]
    fn values_are_dropped_when_their_rank_ends() -> Result<()> {
        Spmd::new(1).virtual_ranks().run(|_| {
            SECOND.with(|_| ());
            FIRST.with(|_| ());
            Ok(())
        })?;
        assert_eq!(*DROPPED.lock(), ["first", "second"]);
        Ok(())
    }

    #[test]
    fn a_panic_while_they_are_dropped_is_the_ranks() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                OWN.with(|_| ());
            }
        }
        rank_local! {
            static BOMB: Bomb = Bomb;
        }
        let ended = Spmd::new(2).virtual_ranks().run(|ctx| {
            if ctx.rank() == 1 {
                BOMB.with(|_| ());
            }
            Ok(())
        });
        let text = ended.expect_err("rank 1 panics").to_string();
        assert!(text.contains("being dropped"), "{text}");
    }

    /// What is dropped because of a panic panics, too: the others still learn that the rank has
    /// ended.
    #[test]
    fn panics_without_end_while_they_are_dropped() {
        /// Panics with another one.
        struct Bomb(&'static str);
        impl Drop for Bomb {
            fn drop(&mut self) {
                if !std::thread::panicking() {
                    std::panic::panic_any(Bomb(self.0));
                }
            }
        }
        rank_local! {
            static FIRST_BOMB: Bomb = Bomb("first");
            static SECOND_BOMB: Bomb = Bomb("second");
        }
        for block in [Spmd::new(2).threads(), Spmd::new(2).virtual_ranks().workers(1)] {
            let ended = block.run(|ctx| {
                if ctx.rank() == 0 {
                    return ctx.recv(&mut [0], 1, 0).map(|_| None);
                }
                FIRST_BOMB.with(|_| ());
                SECOND_BOMB.with(|_| ());
                Ok(Some(Bomb("value")))
            });
            let ended = ended.map(|values| values.len());
            assert!(
                matches!(&ended, Err(crate::Error::Panicked(panic)) if panic.rank == 1),
                "{ended:?}"
            );
        }
    }
}
