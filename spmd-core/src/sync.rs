//! The atomics of the waiting protocols: std's, or loom's where loom checks the protocols
//! (`RUSTFLAGS="--cfg loom" cargo test -p spmd-core --lib --release loom`), so that what is
//! checked is what ships.

#[cfg(all(loom, test))]
pub(crate) use loom::sync::atomic;
#[cfg(not(all(loom, test)))]
pub(crate) use std::sync::atomic;

/// In a loop that polls.
#[inline]
pub(crate) fn spin() {
    #[cfg(all(loom, test))]
    loom::thread::yield_now();
    #[cfg(not(all(loom, test)))]
    std::hint::spin_loop();
}
