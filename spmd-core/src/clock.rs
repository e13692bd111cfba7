//! The clock that all processes of a host share.

#[cfg(not(target_os = "linux"))]
use std::sync::OnceLock;

/// Nanoseconds of a clock that all processes of the host share.
#[cfg(target_os = "linux")]
pub(crate) fn clock_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // By the C library, which finds the clock under valgrind, too, where rustix crashes.
    // SAFETY: it writes to `now`, which is borrowed by nobody else, and to nothing besides. For a
    // clock that every kernel has it does not fail; if it did, `now` would be the zeros above.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn clock_ns() -> u64 {
    static START: OnceLock<std::time::Instant> = OnceLock::new();
    START.get_or_init(std::time::Instant::now).elapsed().as_nanos() as u64
}

/// The same in milliseconds.
pub(crate) fn clock_ms() -> u64 {
    clock_ns() / 1_000_000
}
