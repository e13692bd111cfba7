//! In which order tasks are over, for who waits for several.

use std::collections::VecDeque;

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
