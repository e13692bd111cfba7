//! Tasks one after the other.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use parking_lot::Mutex;
use spmd_core::Result;

use crate::graph::Need;
use crate::group::Group;
use crate::header::{Header, Runnable, follows, is_made};
use crate::node::Node;
use crate::placing::placed;
use crate::task::Task;
use crate::work::Once;

/// A queue of tasks of which one runs at a time, in the order in which they are spawned: see
/// [`Tasks::spawn_sequential`](crate::Tasks::spawn_sequential).
#[derive(Default)]
pub struct Sequence(Mutex<Option<Arc<dyn Runnable>>>);

impl fmt::Debug for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sequence").finish_non_exhaustive()
    }
}

impl Sequence {
    /// One without tasks.
    #[must_use]
    pub const fn new() -> Sequence {
        Sequence(Mutex::new(None))
    }

    /// Spawns a task of this group behind the others.
    pub(crate) fn put<T, F>(
        &self,
        group: &Arc<Group>,
        site: &'static Location<'static>,
        work: F,
    ) -> Task<T>
    where
        F: FnOnce() -> Result<T> + Send + 'static,
        T: Send + 'static,
    {
        let about = placed(group, None);
        let task = Arc::new(Node::new(Header::new(group, site, about), Once(work)));
        if group.refusal().is_some() {
            task.is_made(group);
            return Task::new(task);
        }
        let erased: Arc<dyn Runnable> = task.clone();
        // Who comes next waits for this one, which waits for the one before.
        let mut last = self.0.lock();
        if let Some(before) = last.replace(erased.clone()) {
            follows(&erased, before.header(), Need::Order);
        }
        drop(last);
        task.asks(group, || task.clone());
        group.waits(|| task.clone());
        // Whoever follows is told, also if the scope has given up meanwhile.
        is_made(erased, &group.pool);
        Task::new(task)
    }
}
