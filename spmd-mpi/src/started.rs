//! What is under way: payloads and steps.

use spmd_core::Result;
use spmd_core::transport::fabric::Started;

use crate::library::Request;
use crate::mpi::Mpi;
use crate::packets::complete;

/// What a request is of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A payload's send.
    Give,
    /// A payload's receive.
    Take,
    /// A collective step.
    Step,
}

/// A request, whose memory its starter keeps valid until it is complete or dropped.
pub struct Underway {
    pub mpi: &'static Mpi,
    pub request: Request,
    pub kind: Kind,
}

impl Started for Underway {
    fn test(&mut self) -> Result<bool> {
        complete(&*self.mpi.calls()?, &mut self.request)
    }
}

/// MPI takes a receive back on request. It doesn't a collective, and has given up to do so for
/// sends: then MPI would go on using memory of the caller's, so that the process has to end.
impl Drop for Underway {
    fn drop(&mut self) {
        // Once MPI is finalised nothing is under way.
        let Ok(calls) = self.mpi.calls() else { return };
        if self.request == calls.constants.request_null {
            return;
        }
        if !matches!(complete(&calls, &mut self.request), Ok(false)) {
            return;
        }
        if self.kind == Kind::Take {
            // SAFETY: the request is that of a receive that was under way just now. A cancelled one
            // is complete without any other process. An error completes it as well.
            unsafe {
                let _ = calls.cancel(&mut self.request);
                let _ = calls.wait(&mut self.request, calls.constants.status_ignore);
            }
            return;
        }
        drop(calls);
        let what = if self.kind == Kind::Give { "a message" } else { "a collective call" };
        eprintln!(
            "spmd: {what} was given up while {} was at work on its buffers, which it cannot be \
             asked to leave; ending all processes",
            self.mpi.name()
        );
        self.mpi.abort(1)
    }
}
