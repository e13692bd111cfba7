//! The transports there are, and which of them a rank takes: the one file that names them.

use std::sync::Arc;

use super::Transport;
use super::cluster::{Cluster, Remote};
use super::shared::Endpoint;
use super::wrap::{Chaos, Traced};

/// A rank's way to the others.
#[derive(Clone)]
pub(crate) struct Route {
    pub(crate) transport: Arc<dyn Transport>,
    /// Nothing is wrapped around it, so that a collective may do without [`Transport::around`].
    pub(crate) plain: bool,
    /// It is the arena's, by rings, with nothing around it.
    pub(crate) is_ring: bool,
}

impl Route {
    /// The transport that the rank of this end takes, in a world that this joins to others, and
    /// what is wrapped around it.
    pub(crate) fn of(endpoint: &Arc<Endpoint>, cluster: Option<&Arc<Cluster>>) -> Route {
        let tuning = &endpoint.world.tuning;
        let mut transport: Arc<dyn Transport> = match cluster {
            None => endpoint.clone(),
            Some(cluster) => {
                Arc::new(Remote { endpoint: endpoint.clone(), cluster: cluster.clone() })
            }
        };
        if let Some(seed) = tuning.chaos {
            let (rank, size) = (endpoint.rank, endpoint.world.size());
            transport = Arc::new(Chaos::new(transport, seed, rank, size));
        }
        if let Some(trace) = &tuning.trace {
            transport = Arc::new(Traced::new(transport, endpoint.rank, trace.clone()));
        }
        let plain = tuning.chaos.is_none() && tuning.trace.is_none();
        let has_rings = endpoint.world.queue(endpoint.rank).is_none();
        Route { transport, plain, is_ring: plain && cluster.is_none() && has_rings }
    }
}
