//! A process that a fabric joins to others.

use std::panic::Location;
use std::sync::Arc;

use crate::block::Arena;
use crate::block::Spmd;
use crate::ctx::Ctx;
use crate::error::Result;
use crate::settings::{self, Settings};
use crate::transport::cluster::{Cluster, Joined};
use crate::transport::fabric::Fabric;

/// This process among those that a fabric joins, for its life: or one of several that a fabric
/// simulates in it.
#[doc(hidden)]
#[expect(missing_debug_implementations, reason = "hidden: no user holds one")]
pub struct Process(Joined);

impl Process {
    /// Joins the others, which all do so together, each with so many ranks.
    pub fn join(fabric: Arc<dyn Fabric>, each: usize) -> Result<Process> {
        let window = Settings::from_environment()?.tuning.window;
        let joined = Joined::new(fabric, each, window, settings::trace_path().as_deref())?;
        joined.trace().into_iter().for_each(settings::has_trace);
        Ok(Process(joined))
    }

    /// A block of its ranks, to be set up further.
    pub fn block(&self) -> Spmd {
        Spmd::new(self.0.each())
    }

    /// Runs `f` on the ranks of this process, in `block`, which [`Process::block`] has made; their
    /// results in order. All processes call it together.
    ///
    /// Errors: as [`run`](crate::run).
    #[track_caller]
    pub fn run<R, F>(&self, block: Spmd, f: F) -> Result<Vec<R>>
    where
        F: Fn(&Ctx) -> Result<R> + Sync,
        R: Send,
    {
        self.run_at(Location::caller(), block, f)
    }

    pub(super) fn run_at<R, F>(
        &self,
        site: &'static Location<'static>,
        block: Spmd,
        f: F,
    ) -> Result<Vec<R>>
    where
        F: Fn(&Ctx) -> Result<R> + Sync,
        R: Send,
    {
        block.run_at(site, Arena::Cluster(Arc::new(Cluster::new(&self.0))), f)
    }

    /// What is to be done when this process, which is simulated, exits with a status. It comes back
    /// if the process may end like that; in the middle of a block it may not.
    pub fn exiting(&self, status: i32) {
        self.0.at_exit().exiting(status);
    }
}
