//! The ranks that lead in a communicator, one in each process that holds some of its ranks.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::now::Now;
use crate::error::{Error, Result};
use crate::transport::fabric::{FabricDuplicate, ProcessGroup};

/// A set that is being made, and the one that is duplicated for that.
type Joining = (Box<dyn FabricDuplicate>, Arc<dyn ProcessGroup>);

/// The leaders of a communicator, or of a track of its started calls, as their processes know each
/// other.
pub(crate) struct Leaders {
    /// The processes that hold ranks of it, in the order of their lowest, once they are joined.
    processes: OnceLock<Arc<dyn ProcessGroup>>,
    /// Them, while they are being joined.
    joining: Mutex<Option<Joining>>,
    /// The numbers of those in the world.
    homes: Arc<[usize]>,
    now: Now,
    /// The block's own communicator.
    primary: bool,
    /// The others have been told what this process's leader has called.
    pub(super) told: AtomicBool,
}

impl Leaders {
    pub(super) fn new(
        processes: Arc<dyn ProcessGroup>,
        homes: Arc<[usize]>,
        now: Now,
        primary: bool,
    ) -> Leaders {
        Leaders { processes: processes.into(), ..Leaders::apart(homes, now, primary) }
    }

    /// Those of processes that are not joined yet.
    fn apart(homes: Arc<[usize]>, now: Now, primary: bool) -> Leaders {
        let (processes, joining, told) = Default::default();
        Leaders { processes, joining, homes, now, primary, told }
    }

    /// The same ranks on a track of started calls, for which their processes are to be joined once
    /// more.
    pub(super) fn on_track(&self, track: usize, area: usize) -> Leaders {
        Leaders::apart(self.homes.clone(), self.now.on_track(track, area), false)
    }

    /// Begins to join the processes, which are these.
    pub(super) fn join(&self, processes: &Arc<dyn ProcessGroup>) -> Result<()> {
        *self.joining.lock() = Some((processes.duplicate()?, processes.clone()));
        Ok(())
    }

    /// Whether the processes are joined, or about to be.
    pub(super) fn have_begun(&self) -> bool {
        let joined = || self.processes.get().is_some();
        joined() || {
            // Another thread, with a call on the track, may find just now that they are.
            let joining = self.joining.lock();
            joining.is_some() || joined()
        }
    }

    /// Goes on to join the processes. Whether they are.
    pub(super) fn are_joined(&self) -> Result<bool> {
        let mut joining = self.joining.lock();
        if let Some((begun, _)) = &mut *joining
            && let Some(processes) = begun.test()?
        {
            *joining = None;
            let _ = self.processes.set(processes);
        }
        Ok(self.processes.get().is_some())
    }

    /// The processes that hold the communicator's ranks.
    ///
    /// Errors: they are not joined yet.
    #[inline]
    pub(crate) fn processes(&self) -> Result<&Arc<dyn ProcessGroup>> {
        let apart = || Error::argument("a track of started calls is not in use yet".into());
        self.processes.get().ok_or_else(apart)
    }

    /// Ends what is under way among the processes.
    pub(super) fn revoke(&self) {
        self.processes.get().iter().for_each(|processes| processes.revoke());
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
