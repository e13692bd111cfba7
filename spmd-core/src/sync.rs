//! The atomics and locks of the protocols that loom checks: std's and parking_lot's, or loom's where loom checks the protocols
//! (`RUSTFLAGS="--cfg loom" cargo test -p spmd-core --lib --release loom`), so that what is
//! checked is what ships.

#[cfg(all(loom, test))]
pub(crate) use loom::sync::atomic;
#[cfg(not(all(loom, test)))]
pub(crate) use std::sync::atomic;

#[cfg(not(all(loom, test)))]
pub(crate) use parking_lot::Mutex;

/// Loom's, with the methods of parking_lot's.
#[cfg(all(loom, test))]
#[derive(Default)]
pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

#[cfg(all(loom, test))]
impl<T> Mutex<T> {
    pub(crate) fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
        self.0.lock().expect("no thread panics with a lock")
    }
}

/// In a loop that polls.
#[inline]
pub(crate) fn spin() {
    #[cfg(all(loom, test))]
    loom::thread::yield_now();
    #[cfg(not(all(loom, test)))]
    std::hint::spin_loop();
}
