//! The tasks of a rank, all together.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};

use parking_lot::Mutex;
use spmd_core::internal::{
    Call, Common, Internals, RankTasks, Sleeper, wait_for_borrowers, wait_for_task,
};
use spmd_core::{Error, Result};

use crate::failure::Failure;
use crate::pool::{Here, Pool, Queues};

/// Tasks of a rank that are waited for together: all, or those of a scope.
pub(crate) struct Group {
    pub(crate) pool: Arc<Queues>,
    /// How many are not over.
    live: AtomicUsize,
    /// Who waits for the end of all.
    sleeper: Sleeper,
    /// None begins any more, and those that wait for another one give up.
    gives_up: AtomicBool,
    /// The first failure of which nobody has been told.
    unknown: Mutex<Option<Error>>,
    /// Why there are no workers.
    refusal: Option<Arc<Error>>,
    /// That of which this is a scope.
    around: Option<Arc<Group>>,
}

impl Group {
    fn new(pool: Arc<Queues>, around: Option<Arc<Group>>) -> Group {
        Group {
            pool,
            live: AtomicUsize::new(0),
            sleeper: Sleeper::here(),
            gives_up: AtomicBool::new(false),
            unknown: Mutex::new(None),
            refusal: around.as_ref().and_then(|around| around.refusal.clone()),
            around,
        }
    }

    /// One whose tasks all fail, as there is nobody to carry them out.
    pub(crate) fn refusing(why: Error) -> Group {
        Group { refusal: Some(Arc::new(why)), ..Group::new(Queues::none(), None) }
    }

    /// All tasks of this rank, whose own agent runs here.
    pub(crate) fn of(rank: Internals<'_>) -> &Arc<Group> {
        let of_rank = rank.tasks_of_rank(|| Arc::new(OfRank::new(rank)));
        of_rank.own.iter().for_each(|own| own.is_of_thread());
        &of_rank.group
    }

    /// This group, which lies in an `Arc` as all do.
    pub(crate) fn itself(&self) -> Arc<Group> {
        // SAFETY: `of`, `refusing` and `within` alone give groups to others, in an `Arc`, and this one is
        // there now.
        unsafe {
            Arc::increment_strong_count(self);
            Arc::from_raw(self)
        }
    }

    /// That of a scope.
    pub(crate) fn within(around: Arc<Group>) -> Arc<Group> {
        Arc::new(Group::new(around.pool.clone(), Some(around)))
    }

    /// Why its tasks cannot be carried out.
    pub(crate) fn refusal(&self) -> Option<&Arc<Error>> {
        self.refusal.as_ref()
    }

    /// Waits until all are over, whatever happens.
    ///
    /// Errors: they would never have been, and have given up.
    pub(crate) fn finish(&self, call: &Call<'_>) -> Result<()> {
        Here::any().into_iter().for_each(|here| here.helps((&raw const *self).cast()));
        if self.all_over() {
            return Ok(());
        }
        let refused = || self.gives_up().then(given_up);
        let what = || "its tasks".into();
        let waited = wait_for_task(&self.sleeper, (call, &what), &refused, &mut || self.all_over());
        if waited.is_err() {
            self.give_up();
            wait_for_borrowers(&self.sleeper, || self.all_over());
        }
        waited
    }

    fn all_over(&self) -> bool {
        self.live.load(Acquire) == 0
    }

    /// No task begins any more, and those that wait for another one give up.
    fn give_up(&self) {
        self.gives_up.store(true, SeqCst);
        self.pool.call_all();
    }

    /// There is one more.
    pub(crate) fn begins_one(&self) {
        self.live.fetch_add(1, Relaxed);
    }

    /// One is over. Who waits for the last may free the group as soon as it is counted.
    ///
    /// # Safety
    /// It counts one task, whose end this is. It lies in an `Arc`.
    pub(crate) unsafe fn ends_one(this: NonNull<Group>) {
        // SAFETY: it is there as long as it counts a task.
        let live = unsafe { &(*this.as_ptr()).live };
        let mut left = live.load(Relaxed);
        loop {
            let kept = (left == 1).then(|| {
                // SAFETY: as above, and it lies in an `Arc`.
                unsafe {
                    Arc::increment_strong_count(this.as_ptr());
                    Arc::from_raw(this.as_ptr())
                }
            });
            match live.compare_exchange_weak(left, left - 1, AcqRel, Relaxed) {
                Ok(_) => return kept.iter().for_each(|group| group.sleeper.wake()),
                Err(now) => left = now,
            }
        }
    }

    pub(crate) fn gives_up(&self) -> bool {
        let around = || self.around.as_ref().is_some_and(|around| around.gives_up());
        self.gives_up.load(Relaxed) || around()
    }

    /// The first failure of which nobody has been told.
    pub(crate) fn take_failure(&self) -> Option<Error> {
        self.unknown.lock().take()
    }

    /// A task has failed, and nobody will ask for it.
    pub(crate) fn note(&self, failure: &Failure, task: String) {
        if !failure.is_cancelled() && failure.is_of(&task) {
            self.unknown.lock().get_or_insert_with(|| failure.error(task));
        }
    }
}

/// What a task is told that waits when its rank has failed.
pub(crate) fn given_up() -> Error {
    "the rank has failed, or its tasks wait for each other, and gives up what it has spawned".into()
}

/// What a rank keeps of its tasks.
struct OfRank {
    group: Arc<Group>,
    /// What its own agent puts jobs into, if that has a thread for itself.
    own: Option<Here>,
    /// The workers, as long as a rank of the process has them.
    _pool: Option<Common<Pool>>,
}

// SAFETY: `own` alone could not be used by several threads at once: only the rank's own agent does, in
// `Group::of` and `ends`.
unsafe impl Sync for OfRank {}

impl OfRank {
    fn new(rank: Internals<'_>) -> OfRank {
        let (pool, queues) = match rank.tasks_of_process(Pool::new) {
            Ok(pool) => {
                let queues = pool.queues();
                (Some(pool), queues)
            }
            Err(error) => (None, Err(error)),
        };
        let own = pool.as_ref().and_then(|pool| pool.own(rank.number_in_process()));
        let group = match queues {
            Ok(queues) => Group::new(queues, None),
            Err(error) => Group::refusing(error),
        };
        OfRank { group: Arc::new(group), own, _pool: pool }
    }
}

impl RankTasks for OfRank {
    fn ends(&self) {
        self.own.iter().for_each(|own| own.leaves_thread());
    }

    fn all_over(&self) -> bool {
        self.group.all_over()
    }

    fn sleeper(&self) -> &Sleeper {
        &self.group.sleeper
    }

    fn may_act(&self) -> bool {
        self.group.pool.may_act()
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
        self.group.gives_up.store(false, SeqCst);
        self.group.take_failure()
    }
}
