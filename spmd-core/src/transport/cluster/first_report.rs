//! What is the same for all of this process, whatever block it is in.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::error::Error;
use crate::fault::Fault;
use crate::trace::Trace;
use crate::transport::fabric::Fabric;

/// The number of the block in its world: each block that spans processes has a world of its own.
pub(super) const BLOCK: u32 = 1;

/// Whether what has stopped the job has been said: by this process, or by another one.
pub(super) struct FirstReport {
    fabric: Arc<dyn Fabric>,
    first_report: AtomicBool,
    trace: Option<Arc<Trace>>,
}

impl FirstReport {
    pub(super) fn new(fabric: Arc<dyn Fabric>, trace: Option<Arc<Trace>>) -> FirstReport {
        FirstReport { fabric, first_report: AtomicBool::new(false), trace }
    }

    /// The process is about to be ended, whatever its ranks do: what is known of them is written.
    pub(super) fn last_events(&self) {
        self.trace.iter().for_each(|trace| trace.flush());
    }

    /// Says in words what has stopped the job, once.
    pub(super) fn report(&self, fault: &Fault) {
        if !self.first_report.swap(true, Relaxed) {
            self.fabric.print(format_args!("{fault}"));
        }
    }

    /// Another process says it, or has said it.
    pub(super) fn leave_to_others(&self) {
        self.first_report.store(true, Relaxed);
    }

    pub(super) fn is_said(&self) -> bool {
        self.first_report.load(Relaxed)
    }
}

/// What another process sends makes no sense.
#[cold]
pub(super) fn nonsense(from: usize, what: &str) -> Error {
    Error::boot(format!(
        "process {from} sent {what}; all processes of a world must run the same version of the \
         program"
    ))
}
