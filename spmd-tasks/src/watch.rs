//! What is written down of tasks where somebody asks for it. Of all others nothing is kept.

use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use spmd_core::internal::{Bar, Call, Label, Moment, TaskEnd, Trace, TracedTask};

use crate::failure::Failure;
use crate::graph::{Log, Need, State, TaskGraph};

/// Who asks for it, of the tasks of a rank.
#[derive(Default)]
pub(crate) struct Watch {
    /// Somebody does.
    on: AtomicBool,
    trace: Option<Arc<Trace>>,
    /// The record that the rank has asked for.
    log: Mutex<Option<Arc<Log>>>,
    rank: usize,
}

/// What is written down of a task.
pub(crate) struct Watched {
    watch: Arc<Watch>,
    /// When it came into a queue.
    queued_ns: AtomicU64,
    /// Where and when it has ended: in the trace.
    ended: Arc<OnceLock<Moment>>,
    /// The same of those that it needs, until it begins.
    needed: Mutex<Vec<Arc<OnceLock<Moment>>>>,
    /// Its number in the record, if it has one there.
    recorded: Option<(Arc<Log>, Option<u32>)>,
}

impl Watch {
    /// Of the tasks of this rank.
    pub(crate) fn new(trace: Option<&Arc<Trace>>, rank: usize) -> Watch {
        let (on, log) = (AtomicBool::new(trace.is_some()), Mutex::default());
        Watch { on, trace: trace.cloned(), log, rank }
    }

    /// Records the next tasks that are spawned, so many at most, and no earlier ones.
    pub(crate) fn record(&self, limit: usize) {
        *self.log.lock() = Some(Arc::new(Log::new(limit)));
        self.on.store(true, Relaxed);
    }

    /// What is recorded.
    pub(crate) fn graph(&self) -> TaskGraph {
        TaskGraph::of(self.rank, self.log.lock().as_deref())
    }

    /// Whether anything is to be written down of tasks that are spawned now.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Relaxed)
    }

    /// A task is spawned.
    pub(crate) fn watches(
        self: &Arc<Watch>,
        name: Option<&str>,
        site: &'static Location<'static>,
    ) -> Watched {
        let log = self.log.lock().clone();
        let recorded = log.map(|log| (log.clone(), log.add(name, site)));
        Watched {
            recorded,
            watch: self.clone(),
            queued_ns: AtomicU64::new(0),
            ended: Arc::default(),
            needed: Mutex::default(),
        }
    }

    pub(crate) fn trace(&self) -> Option<&Arc<Trace>> {
        self.trace.as_ref()
    }

    /// A wait begins here.
    pub(crate) fn begins_wait(&self, call: &Call<'_>) -> Option<Bar> {
        Some(self.trace()?.begin_call(call, None, self.rank))
    }

    /// Something else than a task begins here, which is a part of what was spawned at `site`.
    pub(crate) fn begins_part(&self, site: &'static Location<'static>) -> Option<Bar> {
        let name = Some(Label::new("part of a task"));
        let part = TracedTask { name, site, rank: self.rank, queued_ns: 0 };
        Some(self.trace()?.begin_task(part, &[]))
    }
}

impl Watched {
    /// The task needs this one.
    #[cold]
    pub(crate) fn needs(&self, other: &Watched, why: Need) {
        if self.watch.trace.is_some() {
            self.needed.lock().push(other.ended.clone());
        }
        if let (Some((log, task)), Some((of_other, other))) = (&self.recorded, &other.recorded)
            && Arc::ptr_eq(log, of_other)
        {
            log.needs(*task, *other, why);
        }
    }

    fn is(&self, state: State) {
        if let Some((log, Some(task))) = &self.recorded {
            log.is(*task, state);
        }
    }

    /// All is there that it needs.
    #[cold]
    pub(crate) fn is_queued(&self) {
        self.queued_ns.store(Trace::now(), Relaxed);
        self.is(State::Ready);
    }

    /// Somebody carries it out from now on.
    #[cold]
    pub(crate) fn begins(
        &self,
        site: &'static Location<'static>,
        name: Option<&str>,
    ) -> Option<Bar> {
        self.is(State::Running);
        let needed = std::mem::take(&mut *self.needed.lock());
        let trace = self.watch.trace()?;
        let queued_ns = match self.queued_ns.load(Relaxed) {
            0 => 0,
            queued => Trace::now().saturating_sub(queued),
        };
        let needed: Vec<Moment> = needed.iter().filter_map(|it| it.get().copied()).collect();
        let (name, rank) = (name.map(Label::new), self.watch.rank);
        Some(trace.begin_task(TracedTask { name, site, rank, queued_ns }, &needed))
    }

    /// It is about to be over.
    #[cold]
    pub(crate) fn ends(&self, bar: Option<Bar>, failure: Option<&Failure>) {
        let end = match failure {
            None => TaskEnd::Value,
            Some(failure) if failure.is_cancelled() => TaskEnd::Cancelled,
            Some(_) => TaskEnd::Failed,
        };
        if let Some(bar) = bar {
            // It ends once.
            let _ = self.ended.set(bar.end_task(end));
        }
        if failure.is_none() {
            self.is(State::Over);
        }
    }

    /// It is about to be over like this, whether somebody has carried it out or not.
    #[cold]
    pub(crate) fn fails(&self, failure: &Failure) {
        self.is(if failure.is_cancelled() { State::Cancelled } else { State::Failed });
    }
}
