//! How a process ends that is joined to others: in the middle of a block, it is a failure that the
//! others must hear of; after one that failed, it must not wait for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::*};

use parking_lot::Mutex;

use super::watch::Watch;
use crate::fault::{Cause, Fault};
use crate::transport::fabric::Fabric;

const OUTSIDE: u8 = 0;
const INSIDE: u8 = 1;
const FAILED: u8 = 2;

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
    #[cfg(unix)]
    if before.is_none() {
        // SAFETY: the function has the prototype that is asked for, and may run at any time. Should
        // there be no memory for it, the process ends as it would without.
        unsafe { libc::atexit(at_exit) };
    }
    #[cfg(not(unix))]
    drop(before);
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
extern "C" fn at_exit() {
    let place = PLACE.swap(OUTSIDE, AcqRel);
    if place == OUTSIDE {
        return;
    }
    let Some(ties) = TIES.lock().take() else { return };
    if place == INSIDE {
        let fault = Fault::Rank { rank: ties.rank, cause: Cause::Exited(0) };
        super::say(&fault);
        ties.watch.iter().for_each(|watch| watch.fail(&fault));
    }
    ties.fabric.abort(1)
}
