//! Of whom a communicator consists.

use std::sync::{Arc, OnceLock};

use crate::group::{Group, Together};
use crate::transport::cluster::{Cluster, Hierarchy};
use crate::transport::fabric::ProcessGroup;

/// Ranks of a communicator, in their order in a new one, and what these share of it in this
/// process.
#[expect(missing_debug_implementations, reason = "hidden: no user holds one")]
pub struct Part {
    pub(super) group: Group,
    pub(super) together: Arc<Together>,
    here: OnceLock<Group>,
    hierarchy: OnceLock<Arc<Hierarchy>>,
}

impl Part {
    pub(super) fn of(group: Group) -> Part {
        let (here, hierarchy) = Default::default();
        Part { group, together: Arc::default(), here, hierarchy }
    }

    /// Those that live in this process.
    pub(super) fn here(&self, cluster: Option<&Cluster>) -> Group {
        let here = self.here.get_or_init(|| match cluster {
            None => self.group.clone(),
            Some(cluster) => {
                let local = cluster.local();
                Group::of(self.group.iter().filter(|rank| local.contains(rank)))
            }
        });
        here.clone()
    }

    /// How they lie in `processes`, as `rank` sees it, one of them: [`Hierarchy::new`].
    pub(super) fn hierarchy(
        &self,
        cluster: &Arc<Cluster>,
        processes: Arc<dyn ProcessGroup>,
        at: (u64, usize),
        rank: usize,
        primary: bool,
    ) -> Arc<Hierarchy> {
        let make = || Hierarchy::new(cluster.clone(), &self.group, processes, at, primary);
        let hierarchy = self.hierarchy.get_or_init(make);
        if rank == hierarchy.now().leader() {
            hierarchy.be_known();
        }
        hierarchy.clone()
    }
}
