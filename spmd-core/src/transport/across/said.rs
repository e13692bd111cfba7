//! What is the same for all of this process, whatever block it is in.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::error::Error;
use crate::fault::{self, Fault};

/// The number of the block in its world: each block that spans processes has a world of its own.
pub(super) const BLOCK: u32 = 1;

/// Whether what has stopped the job has been said: here, or by another process.
pub(super) static SAID: AtomicBool = AtomicBool::new(false);

/// Says in words what has stopped the job, once.
pub(super) fn say(fault: &Fault) {
    if !SAID.swap(true, Relaxed) {
        fault::say(format_args!("{fault}"));
    }
}

/// What another process sends makes no sense.
#[cold]
pub(super) fn nonsense(from: usize, what: &str) -> Error {
    Error::boot(format!(
        "process {from} sent {what}; all processes of a world must run the same version of the \
         program"
    ))
}

/// Ends this process so that MPI's launcher takes it for a failure of this one alone: it takes an
/// exit with another status than 0 for the end of the job.
pub(super) fn die() -> ! {
    #[cfg(unix)]
    // SAFETY: it ends the process and does nothing else.
    unsafe {
        libc::kill(libc::getpid(), libc::SIGKILL);
    }
    std::process::abort()
}
