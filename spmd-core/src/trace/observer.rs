//! Where what happens in a process is kept until it is written.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use super::event::Event;
use super::file::TraceFile;
use super::rows::Rows;

/// Events are kept in so many places, by their rows, so that those who write them rarely meet ..
const PLACES: usize = 8;
/// .. until one of them has so many.
const BATCH: usize = 4096;

/// Where ranks and workers of a process write down what they do.
pub struct Trace {
    pub(super) file: TraceFile,
    /// The process, as the file calls it.
    pid: u32,
    pub(super) rows: Rows,
    events: [Mutex<Vec<Event>>; PLACES],
    /// Numbers of arrows and of started calls.
    numbers: AtomicU64,
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace").field("file", &self.file).finish_non_exhaustive()
    }
}

impl Trace {
    /// Of this process, which is on the host of this number among those of its job.
    pub(crate) fn new(file: TraceFile, host: u32) -> Trace {
        // Numbers of processes have 22 bits, and those of several hosts are in one file.
        let pid = std::process::id().wrapping_add(host << 22);
        let events = Default::default();
        Trace { file, pid, rows: Rows::new(pid), events, numbers: AtomicU64::new(0) }
    }

    /// Nanoseconds of the clock that times are taken from.
    pub fn now() -> u64 {
        crate::clock::clock_ns()
    }

    pub(super) fn push(&self, event: Event) {
        let place = &self.events[event.row() as usize % PLACES];
        let mut events = place.lock();
        events.push(event);
        if events.len() >= BATCH {
            drop(events);
            self.write(std::slice::from_ref(place));
        }
    }

    /// Writes what is there to the file.
    pub(crate) fn flush(&self) {
        self.write(&self.events);
    }

    fn write(&self, places: &[Mutex<Vec<Event>>]) {
        let mut lines = self.rows.take_names();
        for events in places {
            let events = std::mem::take(&mut *events.lock());
            events.iter().for_each(|event| event.lines(self.pid, &mut lines));
        }
        self.file.write(&lines.join(",\n"));
    }

    /// A number that nothing else has in the file.
    pub(super) fn number(&self) -> u64 {
        u64::from(self.pid) << 32 | (self.numbers.fetch_add(1, Relaxed) & 0xffff_ffff)
    }
}
