//! What a worker of tasks carries out. Its tasks take turns: what one has begun is cut where it is
//! suspended, and goes on as another bar, so that all bars of the worker's row nest.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use super::event::{Event, Part, What};
use super::observer::Trace;
use super::row::Row;

/// A task that was resumed, and suspended again before anything in it began or ended, has looked whether
/// what it waits for is there: such looks are left out if they are no longer than that.
const LOOK_NS: u64 = 20_000;

/// What has begun in a task.
struct Open {
    what: What,
    /// When this part of it began.
    start_ns: u64,
    /// When the first did.
    since_ns: u64,
    part: u32,
}

/// The worker that this thread is.
struct Here {
    trace: Arc<Trace>,
    row: u32,
    /// What the task that runs has begun, outermost first.
    open: Vec<Open>,
    /// Something has begun or ended since it goes on.
    has_acted: bool,
}

thread_local! {
    static HERE: RefCell<Option<Here>> = const { RefCell::new(None) };
}

/// Does something with the worker that this thread is, if it is one.
fn with<R>(act: impl FnOnce(&mut Here) -> R) -> Option<R> {
    HERE.try_with(|here| here.borrow_mut().as_mut().map(act)).ok().flatten()
}

/// Something begins here. In how much else that has, if this thread is a worker.
pub(super) fn begin(what: What, now: u64) -> Option<usize> {
    with(|here| {
        here.has_acted = true;
        here.open.push(Open { what, start_ns: now, since_ns: now, part: 1 });
        here.open.len() - 1
    })
}

/// What began in so much else ends.
pub(super) fn end(depth: usize, what: What, now: u64) {
    with(|here| {
        here.has_acted = true;
        here.open.truncate(depth + 1);
        if let Some(open) = here.open.pop() {
            here.push(&Open { what, ..open }, now, true);
        }
    });
}

/// The row of the worker that this thread is.
pub(super) fn row() -> u32 {
    with(|here| here.row).unwrap_or_default()
}

impl Here {
    fn push(&self, open: &Open, end_ns: u64, is_last: bool) {
        let part = Part { number: open.part, since_ns: open.since_ns, is_last };
        let (row, what, start_ns) = (self.row, open.what, open.start_ns);
        self.trace.push(Event::Bar { row, what, part, start_ns, end_ns });
    }
}

/// A worker of tasks, on its thread.
#[expect(missing_debug_implementations, reason = "hidden: no user holds one")]
pub struct TracedWorker {
    _row: Row,
    /// What those tasks have begun that are suspended, by their slots.
    suspended: RefCell<HashMap<usize, Vec<Open>>>,
}

impl TracedWorker {
    /// This thread is the worker of this name.
    pub fn enter(trace: &Arc<Trace>, name: String) -> TracedWorker {
        let row = Row::open(trace.clone(), name);
        let here =
            Here { trace: trace.clone(), row: row.number, open: Vec::new(), has_acted: false };
        HERE.set(Some(here));
        TracedWorker { _row: row, suspended: RefCell::default() }
    }

    /// The task in this slot begins, or goes on.
    pub(crate) fn resumes(&self, slot: usize) {
        let (now, mut open) =
            (Trace::now(), self.suspended.borrow_mut().remove(&slot).unwrap_or_default());
        // Of bars that begin at the same time a viewer could not tell which is around the other.
        open.iter_mut().zip(now..).for_each(|(open, now)| open.start_ns = now);
        with(|here| (here.open, here.has_acted) = (open, false));
    }

    /// It is suspended.
    pub(crate) fn suspends(&self, slot: usize) {
        let now = Trace::now();
        let open = with(|here| {
            let mut open = std::mem::take(&mut here.open);
            for open in &mut open {
                if here.has_acted || now.saturating_sub(open.start_ns) > LOOK_NS {
                    here.push(open, now, false);
                    open.part += 1;
                }
            }
            open
        });
        self.suspended.borrow_mut().insert(slot, open.unwrap_or_default());
    }
}

impl Drop for TracedWorker {
    fn drop(&mut self) {
        HERE.set(None);
    }
}
