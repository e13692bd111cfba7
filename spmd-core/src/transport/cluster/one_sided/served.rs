//! The windows of this process whose other ranks live elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::answers::Answers;
use crate::group::Group;
use crate::transport::shared::window::{Key, LockKind, NONE, Node, Parts};

/// A window, as this process serves it.
pub(crate) struct Served {
    /// The number of its communicator.
    pub(crate) window: u64,
    pub(crate) parts: Arc<Parts>,
    pub(crate) members: Group,
    /// The process of each rank.
    pub(crate) homes: Box<[usize]>,
    /// The first rank in each process that has some.
    pub(crate) first_ranks: BTreeMap<usize, usize>,
    /// The other processes of this host whose parts can be mapped, once they have told.
    neighbors: OnceLock<BTreeMap<usize, Neighbor>>,
    /// Places in queues for ranks of other processes.
    pub(super) nodes: Box<[Node]>,
    /// What those have locked here, or have asked for.
    pub(super) locks: Mutex<BTreeMap<usize, Locks>>,
    pub(crate) answers: Answers,
    /// Ranks of this process that have it.
    pub(super) users: AtomicUsize,
    /// Processes that have it.
    open: Mutex<BTreeSet<usize>>,
}

/// A process whose parts can be mapped.
struct Neighbor {
    key: Key,
    /// Whether they are, once it has been tried.
    mapped: OnceLock<bool>,
}

/// The locks of one rank of another process.
#[derive(Default)]
pub(super) struct Locks {
    pub(super) held: Vec<(LockKind, usize)>,
    /// Which it waits for, of whose part, and with which ticket.
    pub(super) asked: Option<(LockKind, usize, u64)>,
}

impl Served {
    /// A window with these parts, of so many ranks of this process.
    pub(crate) fn new(
        (window, members): (u64, Group),
        parts: Arc<Parts>,
        homes: Box<[usize]>,
        users: usize,
    ) -> Served {
        let nodes = homes.iter().map(|_| Node::default()).collect();
        // The last that is put there is the first.
        let ranks = homes.iter().enumerate().rev();
        let first_ranks: BTreeMap<usize, usize> = ranks.map(|(rank, home)| (*home, rank)).collect();
        let open = Mutex::new(first_ranks.keys().copied().collect());
        let (neighbors, locks, answers) = Default::default();
        Served {
            window,
            parts,
            members,
            homes,
            first_ranks,
            neighbors,
            nodes,
            locks,
            answers,
            users: users.into(),
            open,
        }
    }

    /// Takes note of what each rank has said to be the key of its process's memory. All ranks of this
    /// process know the same.
    pub(crate) fn find(&self, is_neighbor: impl Fn(usize) -> bool, keys: &dyn Fn(usize) -> Key) {
        self.neighbors.get_or_init(|| {
            let all = self.first_ranks.iter().filter(|(process, _)| is_neighbor(**process));
            let all = all.map(|(process, rank)| (*process, keys(*rank)));
            let new = |key| Neighbor { key, mapped: OnceLock::new() };
            all.filter(|(_, key)| *key != NONE).map(|(process, key)| (process, new(key))).collect()
        });
    }

    /// Maps the parts of the process in which a rank lives, if that can be.
    pub(crate) fn open(&self, rank: usize) {
        let Some(home) = self.homes.get(rank) else { return };
        let Some(neighbor) = self.neighbors.get().and_then(|all| all.get(home)) else { return };
        neighbor.mapped.get_or_init(|| {
            let there = |rank: &usize| self.homes[*rank] == *home;
            self.parts.open_region(neighbor.key, (0..self.homes.len()).filter(there))
        });
    }

    /// The place in queues here of a rank of another process.
    pub(crate) fn node_elsewhere(&self, rank: usize) -> Option<&Node> {
        self.nodes.get(rank)
    }

    /// A rank of this process drops the window; whether it is the last.
    pub(crate) fn is_left(&self) -> bool {
        self.users.fetch_sub(1, AcqRel) == 1
    }

    /// A rank of another process asks for a lock. Whether it may: one that waits, or has it, may not.
    pub(super) fn asks(&self, by: usize, which: (LockKind, usize), ticket: u64) -> bool {
        let mut all = self.locks.lock();
        let locks = all.entry(by).or_default();
        let may = locks.asked.is_none() && !locks.held.contains(&which);
        if may {
            locks.asked = Some((which.0, which.1, ticket));
        }
        may
    }

    /// It gets what it has asked for: which, and the ticket.
    pub(super) fn gets(&self, by: usize) -> Option<((LockKind, usize), u64)> {
        let mut all = self.locks.lock();
        let locks = all.get_mut(&by)?;
        let (kind, target, ticket) = locks.asked.take()?;
        locks.held.push((kind, target));
        Some(((kind, target), ticket))
    }

    /// It leaves a lock; whether it had it.
    pub(super) fn leaves(&self, by: usize, which: (LockKind, usize)) -> bool {
        let mut all = self.locks.lock();
        let held = all.get_mut(&by).map(|locks| &mut locks.held);
        let place = held.and_then(|held| Some((held.iter().position(|it| *it == which)?, held)));
        place.is_some_and(|(at, held)| {
            held.swap_remove(at);
            true
        })
    }
}

/// All of them.
#[derive(Default)]
pub(crate) struct Windows(Mutex<BTreeMap<u64, Arc<Served>>>);

impl Windows {
    /// From now on it is served.
    pub(crate) fn open(&self, served: &Arc<Served>) {
        self.0.lock().insert(served.window, served.clone());
    }

    /// The one of this number, if there is one.
    pub(crate) fn get(&self, window: u64) -> Option<Arc<Served>> {
        self.0.lock().get(&window).cloned()
    }

    /// A process has dropped the window. Whether none has it any more: then its parts go.
    pub(crate) fn close(
        &self,
        served: &Served,
        process: usize,
        is_lost: impl Fn(usize) -> bool,
    ) -> bool {
        let mut open = served.open.lock();
        open.remove(&process);
        while open.first().is_some_and(|first| is_lost(*first)) {
            open.pop_first();
        }
        open.is_empty() && self.0.lock().remove(&served.window).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::shared::window::Announced;

    fn served() -> Arc<Served> {
        let part = |exists| Announced { len: 4, offset: 0, exists };
        let parts = Parts::here([true, false].map(part).into_iter(), 8, false);
        let homes = Box::from([0, 1]);
        Arc::new(Served::new((9, Group::World(2)), Arc::new(parts), homes, 1))
    }

    #[test]
    fn a_rank_leaves_no_lock_that_it_has_not() {
        let (served, part, all) = (served(), (LockKind::Part, 0), (LockKind::Window, 0));
        assert!(!served.leaves(1, part) && served.gets(1).is_none());
        assert!(served.asks(1, all, 7) && !served.asks(1, part, 8) && !served.leaves(1, all));
        assert_eq!(served.gets(1), Some((all, 7)));
        assert!(served.gets(1).is_none() && !served.asks(1, all, 9) && served.asks(1, part, 9));
        assert_eq!(served.gets(1), Some((part, 9)));
        assert!(served.leaves(1, all) && !served.leaves(1, all) && served.leaves(1, part));
    }

    #[test]
    fn a_window_is_served_until_all_processes_have_dropped_it() {
        let (windows, one, other) = (Windows::default(), served(), served());
        windows.open(&one);
        assert!(one.is_left());
        assert!(!windows.close(&one, 0, |_| false) && !windows.close(&one, 0, |_| false));
        assert!(windows.get(9).is_some() && windows.get(8).is_none());
        assert!(windows.close(&one, 1, |_| false) && !windows.close(&one, 1, |_| false));
        assert!(windows.get(9).is_none());
        windows.open(&other);
        assert!(windows.close(&other, 0, |process| process == 1));
        assert!(windows.get(9).is_none());
    }
}
