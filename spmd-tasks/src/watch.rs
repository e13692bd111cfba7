//! What is written down of tasks where somebody asks for it. Of all others nothing is kept.

use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use spmd_core::internal::{Bar, Call, Label, Moment, TaskEnd, Trace, TracedTask};

use crate::failure::Failure;

/// Who asks for it, of the tasks of a rank.
#[derive(Default)]
pub(crate) struct Watch {
    /// Somebody does.
    on: AtomicBool,
    trace: Option<Arc<Trace>>,
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
}

impl Watch {
    /// Of the tasks of this rank.
    pub(crate) fn new(trace: Option<&Arc<Trace>>, rank: usize) -> Watch {
        Watch { on: AtomicBool::new(trace.is_some()), trace: trace.cloned(), rank }
    }

    /// Whether anything is to be written down of tasks that are spawned now.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Relaxed)
    }

    /// A task is spawned.
    pub(crate) fn watches(self: &Arc<Watch>) -> Watched {
        Watched {
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
    pub(crate) fn needs(&self, other: &Watched) {
        self.needed.lock().push(other.ended.clone());
    }

    /// All is there that it needs.
    #[cold]
    pub(crate) fn is_queued(&self) {
        self.queued_ns.store(Trace::now(), Relaxed);
    }

    /// Somebody carries it out from now on.
    #[cold]
    pub(crate) fn begins(
        &self,
        site: &'static Location<'static>,
        name: Option<&str>,
    ) -> Option<Bar> {
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
    }
}
