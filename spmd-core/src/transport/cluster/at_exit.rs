//! How a process ends that is joined to others: in the middle of a block, it is a failure that the
//! others must hear of; after one that failed, it must not wait for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::*};
use std::time::Duration;

use parking_lot::Mutex;

use super::detector::FailureDetector;
use super::first_report::FirstReport;
use super::peer_status::NOTICE;
use crate::fault::{Cause, Fault};
use crate::transport::fabric::{End, Fabric};
use crate::wait;

const OUTSIDE: u8 = 0;
const INSIDE: u8 = 1;
const FAILED: u8 = 2;

/// How long a launcher has to pass on what was said, before it is asked to end all processes: then
/// it passes on nothing more.
const HEARD: Duration = Duration::from_millis(100);

/// What ends with a process that is joined to others, and where its ranks are.
pub(crate) struct AtExit {
    fabric: Arc<dyn Fabric>,
    detector: Option<Arc<FailureDetector>>,
    first_report: Arc<FirstReport>,
    /// The first rank of this process.
    rank: usize,
    place: AtomicU8,
}

/// That of the system's process, which is one of the world's as well, once its ranks have entered a
/// block.
static EXITING: Mutex<Option<Arc<AtExit>>> = Mutex::new(None);

impl AtExit {
    pub(super) fn new(
        fabric: Arc<dyn Fabric>,
        detector: Option<Arc<FailureDetector>>,
        first_report: Arc<FirstReport>,
        rank: usize,
    ) -> AtExit {
        AtExit { fabric, detector, first_report, rank, place: AtomicU8::new(OUTSIDE) }
    }

    /// The ranks of this process enter a block.
    pub(super) fn enter(self: &Arc<AtExit>) {
        // The system's process has more than one of these where it only simulates them.
        if self.fabric.simulated().is_none() && EXITING.lock().replace(self.clone()).is_none() {
            hook::install();
        }
        self.place.store(INSIDE, Release);
    }

    /// They have left it, as those of all other processes have.
    pub(super) fn leave(&self) {
        self.place.store(OUTSIDE, Release);
    }

    /// They have failed.
    pub(super) fn fail(&self) {
        self.place.store(FAILED, Release);
    }

    /// The process exits, and what joins it to others has not been taken down yet.
    pub(crate) fn exiting(&self, status: i32) {
        let place = self.place.swap(OUTSIDE, AcqRel);
        if place == OUTSIDE {
            return;
        }
        let (first_report, detector) = (&self.first_report, self.detector.as_deref());
        // A library that gives up because ranks' calls differ ends the process: it is said what
        // differs.
        let before = first_report.is_said();
        detector
            .iter()
            .filter(|_| place == INSIDE && !before)
            .for_each(|detector| detector.suspect());
        if place == INSIDE && (before || !first_report.is_said()) {
            let rank = crate::current::rank().unwrap_or(self.rank);
            let fault = Fault::Rank { rank, cause: Cause::Exited(status) };
            if self.fabric.survives() && detector.is_some() {
                self.end_alone(&fault);
            }
            first_report.report(&fault);
            detector.iter().for_each(|detector| detector.fail(&fault));
        }
        first_report.last_events();
        wait::pause(HEARD);
        self.fabric.abort(if status == 0 { 1 } else { status })
    }

    /// Tells the others that this process fails, and ends it, so that they can go on without it.
    pub(super) fn end_alone(&self, fault: &Fault) -> ! {
        self.first_report.report(fault);
        let _ = std::io::Write::flush(&mut std::io::stdout());
        self.detector.iter().for_each(|detector| detector.end(fault));
        // The failure detector ends it when it has told the others.
        self.first_report.last_events();
        wait::pause(NOTICE);
        self.fabric.end(End::Kill)
    }
}

/// The system's process exits.
#[cfg_attr(not(unix), expect(dead_code, reason = "there are no such worlds"))]
fn exiting(status: i32) {
    let at_exit = EXITING.lock().take();
    at_exit.iter().for_each(|at_exit| at_exit.exiting(status));
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod hook {
    use std::ffi::{c_int, c_void};

    unsafe extern "C" {
        fn on_exit(f: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
    }

    pub(super) fn install() {
        // SAFETY: the function has the prototype that is asked for, and may run at any time. Should
        // there be no memory for it, the process ends as it would without.
        unsafe { on_exit(at_exit, std::ptr::null_mut()) };
    }

    extern "C" fn at_exit(status: c_int, _: *mut c_void) {
        super::exiting(status);
    }
}

#[cfg(all(unix, not(all(target_os = "linux", target_env = "gnu"))))]
mod hook {
    pub(super) fn install() {
        // SAFETY: as above.
        unsafe { libc::atexit(at_exit) };
    }

    /// The status cannot be learnt here.
    extern "C" fn at_exit() {
        super::exiting(0);
    }
}

#[cfg(not(unix))]
mod hook {
    pub(super) fn install() {}
}
