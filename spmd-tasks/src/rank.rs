//! What a rank has of its tasks, and whose tasks those are that are spawned here.

use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;

use spmd_core::internal::{Bar, Common, Internals, RankTasks, Sleeper};
use spmd_core::{Error, Result, with_current};

use crate::failure::Failure;
use crate::group::{Group, Ranks};
use crate::header::Header;
use crate::pool::Here;
use crate::remote::service::Service;
use crate::watch::Watch;
use crate::workers::Pool;

/// All tasks of this rank, whose own agent runs here.
#[inline]
pub(crate) fn group_of(rank: Internals<'_>) -> &Arc<Group> {
    &OfRank::of(rank).group
}

/// The group of the task, or of all tasks of the rank, that runs here.
pub(crate) fn group_here() -> Arc<Group> {
    match Header::here() {
        // SAFETY: it runs here, so it is not over.
        Some(task) => unsafe { task.group() }.itself(),
        None => with_current(|comm| Ok(group_of(comm.internals()).clone()))
            .unwrap_or_else(|error| Arc::new(Group::refusing(error))),
    }
}

/// The task that runs here, or what the rank that runs here has in its place; `None` if neither does.
/// It is there as long as whoever asks waits for those to whom it is given.
pub(crate) fn part_here() -> Option<*const Header> {
    match Header::here() {
        Some(task) => Some(task),
        None => with_current(|comm| Ok(&raw const OfRank::of(comm.internals()).main)).ok(),
    }
}

/// Who asks what becomes of the tasks of whoever runs here.
pub(crate) fn watch_here() -> Option<Arc<Watch>> {
    match Header::here() {
        // SAFETY: it runs here, so it is not over.
        Some(task) => Some(unsafe { task.group() }.watch.clone()),
        None => with_current(|comm| Ok(group_of(comm.internals()).watch.clone())).ok(),
    }
}

/// A part of what runs here begins on another thread than the rest.
pub(crate) fn part_begins() -> Option<Bar> {
    let task = Header::here()?;
    // SAFETY: it runs here, so it is not over.
    unsafe { task.group() }.watch.begins_part(task.site())
}

/// A value whose end panicked belongs to whoever runs here.
pub(crate) fn note_here(failure: Option<(Failure, String)>) {
    if let Some((failure, task)) = failure {
        group_here().note(&failure, task);
    }
}

/// What a rank keeps of its tasks.
struct OfRank {
    group: Arc<Group>,
    /// What its own agent puts jobs into, if that has a thread for itself.
    own: Option<Here>,
    /// The workers, as long as a rank of the process has them.
    _pool: Option<Common<Pool>>,
    /// What parts of the rank itself are of that others carry out.
    main: Header,
}

// SAFETY: `own` alone could not be used by several threads at once: only the rank's own agent does, in
// `OfRank::of` and what its waits and the end of its block call.
unsafe impl Sync for OfRank {}

impl OfRank {
    /// That of this rank, whose own agent runs here.
    fn of(rank: Internals<'_>) -> &OfRank {
        let of_rank = rank.tasks_of_rank(|| Arc::new(OfRank::new(rank)));
        let main = (&raw const of_rank.main).cast();
        of_rank.own.iter().for_each(|own| own.is_of_thread(main));
        of_rank
    }

    fn new(rank: Internals<'_>) -> OfRank {
        let (pool, queues) = match rank.tasks_of_process(Pool::new) {
            Ok(pool) => {
                let queues = pool.queues();
                (Some(pool), queues)
            }
            Err(error) => (None, Err(error)),
        };
        let own = pool.as_ref().and_then(|pool| pool.own(rank.number_in_process()));
        let (me, size) = rank.in_world();
        let ranks = Arc::new(Ranks {
            rank: me,
            size,
            one_process: !rank.is_process() && !rank.spans_processes(),
            watch: Arc::new(Watch::new(rank.trace(), me)),
            service: Mutex::default(),
            objects: AtomicU64::new(0),
        });
        let group = match queues {
            Ok(queues) => Group::new(queues, ranks, None),
            Err(error) => Group::refusing(error),
        };
        let group = Arc::new(group);
        let main = Header::of_rank(&group, Location::caller(), None);
        OfRank { group, own, _pool: pool, main }
    }
}

/// This rank does something for others, and they for it, by what `start` gives; not twice.
///
/// Errors: those of `start`.
pub(crate) fn serves(
    rank: Internals<'_>,
    start: impl FnOnce(&Arc<Group>) -> Result<Arc<Service>>,
) -> Result<()> {
    let group = group_of(rank);
    if group.ranks().service.lock().is_none() {
        // Not locked meanwhile: the rank's own waits look there.
        let started = start(group)?;
        *group.ranks().service.lock() = Some(started);
    }
    Ok(())
}

impl OfRank {
    /// What this rank and others do for each other in this block.
    fn service(&self) -> Option<Arc<Service>> {
        self.group.ranks().service.lock().clone()
    }
}

impl RankTasks for OfRank {
    fn listens_on(&self) -> Option<u64> {
        self.service().filter(|service| !service.is_parted()).map(|service| service.context())
    }

    fn parts(&self) {
        self.service().iter().for_each(|service| service.parts());
    }

    fn is_parted(&self) -> bool {
        self.service().is_none_or(|service| service.is_parted())
    }

    fn ends(&self) {
        let service = self.group.ranks().service.lock().take();
        service.iter().for_each(|service| service.end());
        // Where ranks are threads, others may have tasks here still; these objects end with the workers.
        let Ranks { rank, size, one_process, .. } = **self.group.ranks();
        if !one_process || size == 1 {
            self.group.pool.objects.forget(rank);
        }
        self.own.iter().for_each(|own| own.leaves_thread());
    }

    fn all_over(&self) -> bool {
        self.group.all_over()
    }

    fn sleeper(&self) -> &Sleeper {
        self.group.sleeper()
    }

    fn may_act(&self) -> bool {
        self.group.pool.may_act() || self.service().is_some_and(|service| service.may_act())
    }

    fn leaves_core(&self) {
        self.own.iter().for_each(Here::leaves_core);
    }

    fn needs_core(&self) {
        self.own.iter().for_each(Here::needs_core);
    }

    fn give_up(&self) {
        self.group.give_up();
    }

    fn take_failure(&self) -> Option<Error> {
        // All are over: the rank may have others in its next block.
        self.group.begins_anew();
        self.group.take_failure()
    }
}
