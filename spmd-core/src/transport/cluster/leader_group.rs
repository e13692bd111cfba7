//! The ranks that lead in a communicator, one in each process that holds some of its ranks.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::now::Now;
use crate::transport::fabric::ProcessGroup;

/// The leaders of a communicator, as their processes know each other.
pub(crate) struct Leaders {
    /// The processes that hold ranks of it, in the order of their lowest.
    pub(crate) processes: Arc<dyn ProcessGroup>,
    /// The numbers of those in the world.
    homes: Vec<usize>,
    now: Now,
    /// The block's own communicator.
    primary: bool,
    /// The others have been told what this process's leader has called.
    pub(super) told: AtomicBool,
}

impl Leaders {
    pub(super) fn new(
        processes: Arc<dyn ProcessGroup>,
        homes: Vec<usize>,
        now: Now,
        primary: bool,
    ) -> Leaders {
        Leaders { processes, homes, now, primary, told: AtomicBool::new(false) }
    }

    /// The processes that hold the communicator's ranks, by their numbers in the world.
    pub(crate) fn homes(&self) -> &[usize] {
        &self.homes
    }

    /// What this process's leader is doing.
    #[inline]
    pub(crate) fn now(&self) -> &Now {
        &self.now
    }

    pub(super) fn is_primary(&self) -> bool {
        self.primary
    }
}
