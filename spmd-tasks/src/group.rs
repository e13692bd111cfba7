//! The tasks of a rank, all together.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};

use parking_lot::Mutex;
use spmd_core::internal::{Call, Sleeper, wait_for_borrowers, wait_for_task};
use spmd_core::{Error, Result};

use crate::failure::Failure;
use crate::pool::{Here, Queues};
use crate::remote::service::Service;
use crate::watch::Watch;

/// A task that may wait for others.
pub trait Pending: Send + Sync {
    /// Carries it out here, if nobody does.
    fn run(&self);
    fn is_over(&self) -> bool;
}

/// Whose tasks they are, and who else is there.
#[derive(Default)]
pub(crate) struct Ranks {
    pub(crate) rank: usize,
    pub(crate) size: usize,
    /// Whether all are of this process.
    pub(crate) one_process: bool,
    /// Who asks what becomes of its tasks.
    pub(crate) watch: Arc<Watch>,
    /// What they do for each other where they are not.
    pub(crate) service: Mutex<Option<Arc<Service>>>,
    /// How many numbers of objects are taken.
    pub(crate) objects: AtomicU64,
}

impl Ranks {
    /// As another rank of this process has them.
    fn of_neighbour(&self, rank: usize) -> Ranks {
        let Ranks { size, one_process, .. } = *self;
        let (service, objects) = Default::default();
        Ranks { rank, size, one_process, watch: self.watch.clone(), service, objects }
    }
}

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
    /// The rank whose tasks they are, and its others.
    ranks: Arc<Ranks>,
    /// That of which this is a scope.
    around: Option<Arc<Group>>,
    /// Who asks what becomes of its tasks.
    pub(crate) watch: Arc<Watch>,
    /// Those of a scope that may wait for others, and how many make it look which still do.
    waiting: Mutex<(Vec<Arc<dyn Pending>>, usize)>,
}

impl Group {
    pub(crate) fn new(pool: Arc<Queues>, ranks: Arc<Ranks>, around: Option<Arc<Group>>) -> Group {
        let watch = ranks.watch.clone();
        Group {
            pool,
            ranks,
            live: AtomicUsize::new(0),
            sleeper: Sleeper::here(),
            gives_up: AtomicBool::new(false),
            unknown: Mutex::new(None),
            refusal: around.as_ref().and_then(|around| around.refusal.clone()),
            around,
            watch,
            waiting: Mutex::default(),
        }
    }

    /// One whose tasks all fail, as there is nobody to carry them out.
    pub(crate) fn refusing(why: Error) -> Group {
        let (pool, ranks) = (Queues::none(), Arc::default());
        Group { refusal: Some(Arc::new(why)), ..Group::new(pool, ranks, None) }
    }

    /// This group, which lies in an `Arc` as all do.
    pub(crate) fn itself(&self) -> Arc<Group> {
        // SAFETY: whoever makes one puts it into an `Arc`, and this one is there now.
        unsafe {
            Arc::increment_strong_count(self);
            Arc::from_raw(self)
        }
    }

    /// That of a scope, for which the group around it counts one task until [`Group::leave`].
    pub(crate) fn within(around: Arc<Group>) -> Arc<Group> {
        let ranks = around.ranks.clone();
        Group::within_of(around, ranks)
    }

    /// [`Group::within`] for what runs on this rank of the process.
    pub(crate) fn within_on(around: Arc<Group>, rank: usize) -> Arc<Group> {
        let ranks = match around.ranks.rank == rank {
            true => around.ranks.clone(),
            false => Arc::new(around.ranks.of_neighbour(rank)),
        };
        Group::within_of(around, ranks)
    }

    fn within_of(around: Arc<Group>, ranks: Arc<Ranks>) -> Arc<Group> {
        around.begins_one();
        Arc::new(Group::new(around.pool.clone(), ranks, Some(around)))
    }

    /// The scope is left, whose tasks are over.
    pub(crate) fn leave(&self) {
        if let Some(around) = &self.around {
            // SAFETY: it counts one for this scope, which is left once.
            unsafe { Group::ends_one(NonNull::from(&**around)) };
        }
    }

    pub(crate) fn ranks(&self) -> &Arc<Ranks> {
        &self.ranks
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
        let _bar = self.watch.begins_wait(call);
        let refused = || self.gives_up().then(given_up);
        let what = || "its tasks".into();
        let waited = wait_for_task(&self.sleeper, (call, &what), &refused, &mut || self.all_over());
        if waited.is_err() {
            self.give_up();
            wait_for_borrowers(&self.sleeper, || self.all_over());
        }
        waited
    }

    pub(crate) fn all_over(&self) -> bool {
        self.live.load(Acquire) == 0
    }

    /// No task begins any more, and those that wait for another one give up. Those of a scope that need
    /// others are over at once: what they need may wait for the end of the scope.
    pub(crate) fn give_up(&self) {
        self.gives_up.store(true, SeqCst);
        self.pool.call_all();
        let waiting = std::mem::take(&mut self.waiting.lock().0);
        waiting.iter().for_each(|task| task.run());
    }

    /// This task, which is being made, may wait for others.
    pub(crate) fn waits(&self, task: impl FnOnce() -> Arc<dyn Pending>) {
        if self.around.is_none() {
            return;
        }
        let mut waiting = self.waiting.lock();
        let (tasks, many) = &mut *waiting;
        if tasks.len() >= (*many).max(64) {
            tasks.retain(|task| !task.is_over());
            *many = 2 * tasks.len();
        }
        let task = task();
        tasks.push(task.clone());
        drop(waiting);
        if self.gives_up() {
            task.run();
        }
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

    /// Who waits for the end of all.
    pub(crate) fn sleeper(&self) -> &Sleeper {
        &self.sleeper
    }

    /// All are over: there may be others.
    pub(crate) fn begins_anew(&self) {
        self.gives_up.store(false, SeqCst);
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
