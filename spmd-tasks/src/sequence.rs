//! Tasks one after the other.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use parking_lot::Mutex;
use spmd_core::Result;

use crate::graph::Need;
use crate::group::Group;
use crate::node::{Header, Node, Runnable, depends};
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
        let task = Arc::new(Node::new(Header::new(group, site, None), Once(work)));
        // Who comes next waits for this one, which waits for the one before.
        let mut last = self.0.lock();
        if let Some(before) = last.replace(task.clone()).filter(|_| group.refusal().is_none()) {
            depends(task.clone(), before.header(), Need::Order);
        }
        drop(last);
        group.waits(|| task.clone());
        task.is_made(group);
        Task::new(task)
    }
}
