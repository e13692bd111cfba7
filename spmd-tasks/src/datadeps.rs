//! Tasks that follow each other by the data that they use.

use std::fmt;
use std::marker::PhantomData;
use std::mem::transmute;
use std::panic::Location;
use std::sync::Arc;

use spmd_core::{Error, Result};

use crate::accesses::{Accesses, Entry, Read, Write};
use crate::data::{Data, Mode};
use crate::group::Group;
use crate::node::{Header, Node, unbound};
use crate::scope::{ScopedTask, until_over};

/// Where tasks are spawned that say which data they use: see
/// [`Tasks::datadeps`](crate::Tasks::datadeps).
pub struct DataDeps<'scope, 'env: 'scope> {
    group: Arc<Group>,
    /// As in [`Scope`](crate::Scope).
    _scope: PhantomData<&'scope mut &'scope ()>,
    _env: PhantomData<&'env mut &'env ()>,
}

impl fmt::Debug for DataDeps<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataDeps").finish_non_exhaustive()
    }
}

impl<'scope> DataDeps<'scope, '_> {
    /// The task reads these data (Dagger's `In`).
    pub fn read<T>(&self, data: &'scope Data<T>) -> Read<'scope, T> {
        Read(data)
    }

    /// The task reads and writes these data (Dagger's `InOut`).
    pub fn write<T>(&self, data: &'scope Data<T>) -> Write<'scope, T> {
        Write(data, Mode::Write)
    }

    /// The task writes these data without a look at what was there (Dagger's `Out`): it runs although
    /// the task before has failed that was to write them.
    pub fn overwrite<T>(&self, data: &'scope Data<T>) -> Write<'scope, T> {
        Write(data, Mode::Overwrite)
    }

    /// Spawns a task that uses data, of which it gets references in this order.
    ///
    /// It begins when all tasks are over that were spawned before and whose use of the data does not go
    /// with its own: several may read, one alone writes. If a task has failed that was to write what this
    /// one reads, it fails with that one's cause, without being carried out.
    ///
    /// Errors, of [`ScopedTask::fetch`]: as of other tasks; some data are named twice, and written.
    #[track_caller]
    pub fn spawn<A, F, T>(&'scope self, accesses: A, work: F) -> ScopedTask<'scope, T>
    where
        A: Accesses<F, T> + 'scope,
        F: Send + 'scope,
        T: Send + 'scope,
        A::Work: 'scope,
    {
        let site = Location::caller();
        // Whoever spawns a task on some of the same data at this time comes before it, or after it, on
        // all of them: places are locked in one order.
        let places = accesses.entries();
        // SAFETY: the type stays the same but for a lifetime: the places lie in data that live for
        // `'scope`, not in `accesses`, which is moved while they are in use.
        let mut places = unsafe { transmute::<Vec<Entry<'_>>, Vec<Entry<'scope>>>(places) };
        places.sort_by_key(|(order, _)| (&raw const **order).addr());
        let refused = twice(&places).then(|| {
            Error::argument(format!("datadeps at {site}: a task names data twice, and writes them"))
        });
        places.dedup_by_key(|(order, _)| (&raw const **order).addr());
        if refused.is_some() || self.group.refusal().is_some() {
            // It is not carried out, and so has no turn.
            places.clear();
        }
        let mut orders: Vec<_> = places.iter().map(|(order, mode)| (order.lock(), *mode)).collect();
        let needed = orders.iter().filter_map(|(order, mode)| order.needed(*mode)).collect();
        let work = accesses.work(needed, refused, work);
        let task = Arc::new(Node::new(Header::new(&self.group, site, None), work));
        // SAFETY: places keep the task when it is over, and the scope has been left. Then its work is gone,
        // and its value, which its handle's end, or its own, has freed; where the handle is forgotten, the
        // task is never freed.
        let erased = unsafe { unbound(task.clone()) };
        for (order, mode) in &mut orders {
            order.follows(&erased, *mode);
        }
        drop(orders);
        self.group.waits(|| erased);
        task.is_made(&self.group);
        ScopedTask::new(task)
    }
}

/// Whether one of these, which are sorted, is there twice, and written.
fn twice(places: &[Entry<'_>]) -> bool {
    let same = |pair: &[Entry<'_>]| std::ptr::eq(pair[0].0, pair[1].0);
    let written = |pair: &[Entry<'_>]| pair.iter().any(|(_, mode)| *mode != Mode::Read);
    // Three of one place lie beside each other, too, of which any may be the one that writes.
    let runs = places.chunk_by(|a, b| std::ptr::eq(a.0, b.0));
    debug_assert!(places.is_sorted_by_key(|(order, _)| (&raw const **order).addr()));
    runs.filter(|run| run.len() > 1).any(|run| same(&run[..2]) && written(run))
}

/// Runs `f` with a place for such tasks, and waits for their end.
pub(crate) fn enter<'env, R>(
    around: Arc<Group>,
    site: &'static Location<'static>,
    f: impl for<'scope> FnOnce(&'scope DataDeps<'scope, 'env>) -> Result<R>,
) -> Result<R> {
    let group = Group::within(around);
    let deps = DataDeps { group: group.clone(), _scope: PhantomData, _env: PhantomData };
    until_over(&group, site, || f(&deps))
}
