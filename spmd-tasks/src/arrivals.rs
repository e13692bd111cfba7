//! Which tasks are over, in which order, and how many: for who waits for several.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};

use parking_lot::Mutex;
use spmd_core::internal::Sleeper;

/// The numbers of tasks that are over, in the order in which they came to be.
pub(crate) struct Arrivals {
    numbers: Mutex<VecDeque<usize>>,
    sleeper: Sleeper,
}

impl Arrivals {
    /// For whoever runs here.
    pub(crate) fn here() -> Arrivals {
        Arrivals { numbers: Mutex::default(), sleeper: Sleeper::here() }
    }

    pub(crate) fn tell(&self, number: usize) {
        self.numbers.lock().push_back(number);
        self.sleeper.wake();
    }

    pub(crate) fn take(&self) -> Option<usize> {
        self.numbers.lock().pop_front()
    }

    pub(crate) fn sleeper(&self) -> &Sleeper {
        &self.sleeper
    }
}

/// How many tasks are not over, for who waits for all: one that has failed ends that at once.
pub(crate) struct Countdown {
    left: AtomicUsize,
    failed: AtomicBool,
    sleeper: Sleeper,
}

impl Countdown {
    /// For whoever runs here.
    pub(crate) fn here() -> Countdown {
        Countdown {
            left: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            sleeper: Sleeper::here(),
        }
    }

    /// There is one more.
    pub(crate) fn add(&self) {
        self.left.fetch_add(1, SeqCst);
    }

    /// One is over.
    pub(crate) fn tell(&self, failed: bool) {
        if failed {
            self.failed.store(true, SeqCst);
        }
        if self.left.fetch_sub(1, SeqCst) == 1 || failed {
            self.sleeper.wake();
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.left.load(SeqCst) == 0 || self.failed.load(SeqCst)
    }

    pub(crate) fn sleeper(&self) -> &Sleeper {
        &self.sleeper
    }
}
