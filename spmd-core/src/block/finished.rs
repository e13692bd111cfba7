//! The end of a block, for which its opener waits.

use std::sync::atomic::{AtomicUsize, Ordering::*};

use parking_lot::Mutex;

use crate::transport::shared::contexts::extra_comms;
use crate::wait::{self, scheduler};

/// Ranks that have ended, and the agent that waits for them.
pub(super) struct Finished {
    count: AtomicUsize,
    word: crate::sync::atomic::AtomicU32,
    opener: Option<scheduler::Home>,
    /// What the opener is while it waits.
    waiting: fn() -> wait::Opener,
    /// The opener does not wait.
    opening: Mutex<Option<wait::Opening>>,
}

impl Finished {
    pub(super) fn new() -> Finished {
        let opener = scheduler::current();
        let waiting = match (wait::current().is_null(), &opener) {
            // No communicator was alive before the ranks ran.
            (true, None) if extra_comms() == 0 => wait::Opener::alone,
            (false, None) => wait::Opener::rank,
            _ => wait::Opener::unknown,
        };
        Finished {
            count: AtomicUsize::new(0),
            word: crate::sync::atomic::AtomicU32::new(0),
            opener,
            waiting,
            opening: Mutex::new(Some(wait::Opening::new())),
        }
    }

    fn bell(&self) -> wait::Bell<'_> {
        wait::Bell::new(&self.word, self.opener.as_ref())
    }

    pub(super) fn one_more(&self) {
        self.count.fetch_add(1, AcqRel);
        self.bell().ring();
    }

    pub(super) fn wait_for(&self, ranks: usize) {
        let opener = (self.waiting)();
        drop(self.opening.lock().take());
        wait::until_done(self.bell(), || self.count.load(Acquire) >= ranks);
        *self.opening.lock() = Some(wait::Opening::new());
        drop(opener);
    }
}

/// Counts a rank as ended when dropped, even if a panic in the program's own `Drop` got out.
pub(super) struct Ended<'a>(pub(super) &'a Finished);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.one_more();
    }
}
