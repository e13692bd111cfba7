//! What has begun and is written down when it ends.

use std::cell::RefCell;
use std::sync::Arc;

use super::event::{Event, Moment, Part, TaskEnd, TracedCall, TracedTask, What};
use super::observer::Trace;
use super::row::Row;
use super::worker;
use crate::algorithm::Algorithm;
use crate::call::Call;
use crate::current;
use crate::wait::is_started;

/// What goes on, until this is dropped.
#[must_use]
#[expect(missing_debug_implementations, reason = "hidden: no user holds one")]
pub struct Bar {
    trace: Arc<Trace>,
    what: What,
    place: Place,
}

#[derive(Clone, Copy)]
enum Place {
    /// A row of somebody who does nothing else before this is over.
    Row { row: u32, start_ns: u64 },
    /// So many others of this worker's task are around it.
    Worker(usize),
    /// Beside what else a rank does.
    Beside { row: u32, number: u64, start_ns: u64 },
}

impl Trace {
    /// A call of this rank begins here, by this algorithm if it has a choice.
    pub fn begin_call(
        self: &Arc<Trace>,
        call: &Call<'_>,
        way: Option<Algorithm>,
        rank: usize,
    ) -> Bar {
        self.begin(What::Call(TracedCall::new(call, way)), rank)
    }

    fn begin(self: &Arc<Trace>, what: What, rank: usize) -> Bar {
        let start_ns = Trace::now();
        let place = if is_started() {
            Place::Beside { row: rank as u32, number: self.number(), start_ns }
        } else if let Some(depth) = worker::begin(what, start_ns) {
            Place::Worker(depth)
        } else {
            let row = current::with(|rank| rank.and_then(|rank| rank.row));
            Place::Row { row: row.unwrap_or_else(|| self.row_of_thread()), start_ns }
        };
        Bar { trace: self.clone(), what, place }
    }

    /// A task begins here, which needed others that ended then.
    pub fn begin_task(self: &Arc<Trace>, task: TracedTask, needed: &[Moment]) -> Bar {
        let bar = self.begin(What::Task(task, None), task.rank);
        let to = bar.now();
        for from in needed {
            self.push(Event::Arrow { number: self.number(), from: *from, to });
        }
        bar
    }

    /// That of this thread, which is no rank's and no worker's.
    fn row_of_thread(self: &Arc<Trace>) -> u32 {
        thread_local! {
            static ROW: RefCell<Option<Row>> = const { RefCell::new(None) };
        }
        let open = |row: &RefCell<Option<Row>>| {
            let mut row = row.borrow_mut();
            if row.as_ref().is_none_or(|row| !Arc::ptr_eq(&row.trace, self)) {
                let thread = std::thread::current();
                let name =
                    thread.name().map_or_else(|| "thread".into(), |it| format!("thread {it}"));
                *row = Some(Row::open(self.clone(), name));
            }
            row.as_ref().map(|row| row.number)
        };
        // At the end of the thread it is a row for this alone.
        let row = ROW.try_with(open).ok().flatten();
        row.unwrap_or_else(|| Row::open(self.clone(), "thread".into()).number)
    }
}

impl Bar {
    /// The task ends like this.
    pub fn end_task(mut self, end: TaskEnd) -> Moment {
        if let What::Task(task, _) = self.what {
            self.what = What::Task(task, Some(end));
        }
        self.now()
    }

    /// Where and when this is.
    fn now(&self) -> Moment {
        let row = match self.place {
            Place::Row { row, .. } | Place::Beside { row, .. } => row,
            Place::Worker(_) => worker::row(),
        };
        Moment { row, ns: Trace::now() }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        let (what, end_ns) = (self.what, Trace::now());
        match self.place {
            Place::Row { row, start_ns } => {
                let part = Part { number: 1, since_ns: start_ns, is_last: true };
                self.trace.push(Event::Bar { row, what, part, start_ns, end_ns });
            }
            Place::Worker(depth) => worker::end(depth, what, end_ns),
            Place::Beside { row, number, start_ns } => {
                self.trace.push(Event::Beside { row, what, number, start_ns, end_ns });
            }
        }
    }
}
