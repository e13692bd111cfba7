//! What there is beyond the arena: other processes, and what carries out calls by other means.

use std::any::Any;
use std::sync::Arc;

use crate::transport::cluster::Cluster;

/// What a block has beyond its arena, for its communicators.
#[derive(Clone, Default)]
pub(crate) struct Beyond {
    /// What joins this process to others without common memory.
    pub(crate) cluster: Option<Arc<Cluster>>,
    /// What carries out calls by other means than the arena.
    pub(crate) offload: Option<Arc<dyn Offload>>,
}

impl Beyond {
    /// [`Offload::part`], if there is something.
    pub(super) fn part(&self, spans_processes: bool) -> Option<Arc<dyn Offload>> {
        self.offload.as_ref()?.part(spans_processes)
    }
}

/// What carries out calls by other means, as a communicator keeps it for those who know what it is
/// (`dispatch.rs`): planes know communicators.
pub(crate) trait Offload: Any + Send + Sync {
    /// What there is of it for a communicator that spans processes, or for another one.
    fn part(&self, spans_processes: bool) -> Option<Arc<dyn Offload>>;

    /// Whether nothing is to be done: the arguments have been looked at, and that is all.
    fn only_checks(&self) -> bool {
        false
    }
}

/// Of a communicator whose collectives look at their arguments and do nothing else.
pub(super) struct OnlyChecks;

impl Offload for OnlyChecks {
    fn part(&self, _: bool) -> Option<Arc<dyn Offload>> {
        None
    }

    fn only_checks(&self) -> bool {
        true
    }
}
