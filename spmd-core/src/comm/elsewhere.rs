//! What a rank needs for the parts of a window that lie in other processes.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::atomic::{Ordering::Release, fence};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::communicator::Comm;
use crate::error::Result;
use crate::transport::cluster::Cluster;
use crate::transport::cluster::one_sided::{Pattern, Request, Served, Serving, What};
use crate::transport::cluster::packet::Packet;
use crate::transport::shared::World;
use crate::transport::shared::window::{Key, Node, Parts};

/// What a rank needs for parts elsewhere.
pub(super) struct Elsewhere {
    pub(super) cluster: Arc<Cluster>,
    pub(super) served: Arc<Served>,
    world: Arc<World>,
    /// For each process, a rank there to which it has sent what it does not know to be carried out,
    /// and how much.
    pub(super) under_way: RefCell<BTreeMap<usize, (usize, usize)>>,
    /// When a flush has last looked at what others ask for.
    looked: Cell<Option<Instant>>,
}

/// How long a rank that flushes again and again does not look at what others ask for: a look takes the
/// time of many accesses.
const LOOK_AFTER: Duration = Duration::from_micros(10);

/// Has this process serve its parts of the window that `comm` is of.
pub(super) fn serve(comm: &Comm, parts: Arc<Parts>) -> Arc<Served> {
    let (scope, world) = (&comm.scope, &comm.endpoint.world);
    let cluster = comm.cluster();
    let homes = scope.group.iter().map(|rank| cluster.process_of(rank)).collect();
    let window = (scope.context, scope.group.clone());
    let served = Arc::new(Served::new(window, parts, homes, scope.here.len()));
    cluster.one_sided.open(&served);
    let weak: Weak<Cluster> = Arc::downgrade(cluster);
    world.serve_by(weak);
    served
}

/// Whether other processes of this host have ranks of `comm`, so that they may map this one's parts.
pub(super) fn has_neighbors(comm: &Comm) -> bool {
    let cluster = comm.cluster();
    comm.scope.group.iter().any(|rank| cluster.is_neighbor(cluster.process_of(rank)))
}

impl Comm {
    pub(super) fn cluster(&self) -> &Arc<Cluster> {
        self.beyond.cluster.as_ref().expect("its ranks live in several processes")
    }
}

impl Elsewhere {
    pub(super) fn new(comm: &Comm, served: Arc<Served>) -> Elsewhere {
        let (cluster, world) = (comm.cluster().clone(), comm.endpoint.world.clone());
        let (under_way, looked) = Default::default();
        Elsewhere { cluster, served, world, under_way, looked }
    }

    /// The place in queues here of a rank that lives elsewhere.
    pub(super) fn node(&self, rank: usize) -> Option<&Node> {
        self.served.node_elsewhere(rank)
    }

    /// Takes note of what each rank has said to be the key of its process's memory.
    pub(super) fn find(&self, keys: &dyn Fn(usize) -> Key) {
        self.served.find(|process| self.cluster.is_neighbor(process), keys);
    }

    /// Opens the part of a rank that lives in another process of this host, if that can be.
    pub(super) fn open(&self, rank: usize) {
        self.served.open(rank);
    }

    /// Whether it is time to look at what others ask for; then it counts as done.
    pub(super) fn is_due(&self) -> bool {
        let now = Instant::now();
        let due = self.looked.get().is_none_or(|last| now - last >= LOOK_AFTER);
        if due {
            self.looked.set(Some(now));
        }
        due
    }

    pub(super) fn serving(&self) -> Serving<'_> {
        Serving { cluster: &self.cluster, world: &self.world, served: &self.served }
    }

    pub(super) fn send(
        &self,
        me: usize,
        target: usize,
        ticket: u64,
        asked: Asked<'_>,
    ) -> Result<()> {
        let Asked { what, pattern, data } = asked;
        // Who takes it sees what this rank has written before, directly.
        fence(Release);
        let (window, by, target_rank) = (self.served.window, me as u32, target as u32);
        let request = Request { window, by, target: target_rank, ticket, what, pattern, data };
        self.cluster.send(self.served.homes[target], &Packet::Request(request))
    }
}

impl Drop for Elsewhere {
    /// The last rank of this process tells the others that they may forget the window.
    fn drop(&mut self) {
        if !self.served.is_left() {
            return;
        }
        let own = self.cluster.fabric.process();
        let ranks = &self.served.first_ranks;
        for (_, target) in ranks.iter().filter(|(process, _)| **process != own) {
            // One that cannot be told is gone.
            let _ = self.send(ranks[&own], *target, 0, Asked::only(What::Close));
        }
        self.serving().close(own);
    }
}

/// What a request says besides who asks whom.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) what: What,
    pub(super) pattern: Pattern,
    pub(super) data: &'a [u8],
}

impl Asked<'static> {
    /// What is for no words.
    pub(super) fn only(what: What) -> Asked<'static> {
        Asked { what, pattern: Pattern::one(0, 0), data: &[] }
    }
}
