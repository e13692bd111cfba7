//! How a process ends that is joined to others: in the middle of a block, it is a failure that the
//! others must hear of; after one that failed, it must not wait for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::*};
use std::time::Duration;

use parking_lot::Mutex;

use super::known::NOTICE;
use super::said::{SAID, die, say};
use super::watch::Watch;
use crate::fault::{Cause, Fault};
use crate::transport::fabric::Fabric;

const OUTSIDE: u8 = 0;
const INSIDE: u8 = 1;
const FAILED: u8 = 2;

/// How long a launcher has to pass on what was said, before it is asked to end all processes: then it
/// passes on nothing more.
const HEARD: Duration = Duration::from_millis(100);

/// Where the ranks of this process are.
static PLACE: AtomicU8 = AtomicU8::new(OUTSIDE);

struct Ties {
    fabric: Arc<dyn Fabric>,
    watch: Option<Arc<Watch>>,
    rank: usize,
}

static TIES: Mutex<Option<Ties>> = Mutex::new(None);

/// The ranks of this process, of which `rank` is the first, enter a block.
pub(super) fn enter(fabric: Arc<dyn Fabric>, watch: Option<Arc<Watch>>, rank: usize) {
    let before = TIES.lock().replace(Ties { fabric, watch, rank });
    if before.is_none() {
        hook::install();
    }
    PLACE.store(INSIDE, Release);
}

/// They have left it, as those of all other processes have.
pub(super) fn leave() {
    PLACE.store(OUTSIDE, Release);
}

/// They have failed.
pub(super) fn fail() {
    PLACE.store(FAILED, Release);
}

/// Called when the process exits, before what joins it to others is taken down.
#[cfg_attr(not(unix), expect(dead_code, reason = "there are no such worlds"))]
fn exiting(status: i32) {
    let place = PLACE.swap(OUTSIDE, AcqRel);
    if place == OUTSIDE {
        return;
    }
    let Some(ties) = TIES.lock().take() else { return };
    // A library that gives up because ranks' calls differ ends the process: it is said what differs.
    let before = SAID.load(Relaxed);
    ties.watch.iter().filter(|_| place == INSIDE && !before).for_each(|watch| watch.suspect());
    if place == INSIDE && (before || !SAID.load(Relaxed)) {
        let rank = crate::current::rank();
        let cause = Cause::Exited(status);
        let fault = Fault::Rank { rank: rank.unwrap_or(ties.rank), cause };
        if ties.fabric.survives() && ties.watch.is_some() {
            end_alone(ties.watch.as_deref(), &fault);
        }
        say(&fault);
        ties.watch.iter().for_each(|watch| watch.fail(&fault));
    }
    std::thread::sleep(HEARD);
    ties.fabric.abort(if status == 0 { 1 } else { status })
}

/// Tells the others that this process fails, and ends it, so that they can go on without it.
pub(super) fn end_alone(watch: Option<&Watch>, fault: &Fault) -> ! {
    say(fault);
    let _ = std::io::Write::flush(&mut std::io::stdout());
    watch.iter().for_each(|watch| watch.end(fault));
    // The watch ends it when it has told the others.
    std::thread::sleep(NOTICE);
    die()
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
