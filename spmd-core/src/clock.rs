//! The clock that all processes of a host share, and that of a thread.

#[cfg(not(target_os = "linux"))]
use std::sync::OnceLock;
use std::time::Duration;

/// Nanoseconds of a clock that all processes of the host share.
#[cfg(target_os = "linux")]
pub(crate) fn clock_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// How long this thread has had a core. Where the system does not tell, how long it has been there.
pub(crate) fn thread_time() -> Duration {
    #[cfg(target_os = "linux")]
    return Duration::from_nanos(read(libc::CLOCK_THREAD_CPUTIME_ID));
    #[cfg(not(target_os = "linux"))]
    return Duration::from_nanos(clock_ns());
}

/// Nanoseconds of a clock of the system's.
#[cfg(target_os = "linux")]
fn read(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // By the C library, which finds the clock under valgrind, too, where rustix crashes.
    // SAFETY: it writes to `now`, which is borrowed by nobody else, and to nothing besides. For a
    // clock that every kernel has it does not fail; if it did, `now` would be the zeros above.
    unsafe { libc::clock_gettime(clock, &mut now) };
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
