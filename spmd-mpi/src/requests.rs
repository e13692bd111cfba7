//! What is under way: payloads and steps.

use std::io::Write;

use spmd_core::Result;
use spmd_core::transport::fabric::{FabricRequest, relax};

use crate::done::complete;
use crate::handles::Request;
use crate::library::Library;
use crate::mpi::Mpi;
use crate::provider::KeptNumbers;

/// What a request is of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A payload's send.
    Send,
    /// A payload's receive.
    Receive,
    /// A collective step.
    NativeCollective,
}

/// A request, with what MPI reads until it is complete.
pub struct OwnedRequest {
    pub request: Request,
    pub kept: Vec<KeptNumbers>,
    /// Data and lists that were made for it.
    pub copy: Box<[u8]>,
    pub lists: [Vec<usize>; 2],
}

impl OwnedRequest {
    /// Of nothing yet.
    pub fn new(mpi: &Library) -> OwnedRequest {
        let (kept, copy, lists) = Default::default();
        OwnedRequest { request: mpi.constants.request_null, kept, copy, lists }
    }
}

/// A request whose memory its starter keeps valid until it is complete or dropped.
pub struct BorrowedRequest {
    pub mpi: &'static Mpi,
    pub begun: OwnedRequest,
    pub kind: Kind,
}

impl FabricRequest for BorrowedRequest {
    fn test(&mut self) -> Result<bool> {
        complete(&*self.mpi.calls()?, &mut self.begun.request)
    }
}

/// Several that are one for whoever waits.
pub struct RequestGroup(pub Vec<BorrowedRequest>);

impl FabricRequest for RequestGroup {
    fn test(&mut self) -> Result<bool> {
        while let Some(last) = self.0.last_mut() {
            if !last.test()? {
                return Ok(false);
            }
            self.0.pop();
        }
        Ok(true)
    }
}

/// MPI takes a receive back on request. It doesn't a collective, and has given up to do so for
/// sends: then MPI would go on using memory of the caller's, so that the process has to end.
impl Drop for BorrowedRequest {
    fn drop(&mut self) {
        // Once MPI is finalised nothing is under way.
        let Ok(calls) = self.mpi.calls() else { return };
        if self.begun.request == calls.constants.request_null {
            return;
        }
        if !matches!(complete(&calls, &mut self.begun.request), Ok(false)) {
            return;
        }
        if self.kind == Kind::Receive {
            // SAFETY: the request is that of a receive that was under way just now.
            let _ = unsafe { calls.cancel(&mut self.begun.request) };
            drop(calls);
            // A cancelled one is complete without any other process, one that has begun to arrive
            // once it is there. An error completes it as well.
            while matches!(self.test(), Ok(false)) {
                relax();
            }
            return;
        }
        drop(calls);
        give_up(self.mpi, if self.kind == Kind::Send { "a message" } else { "a collective call" })
    }
}

/// Ends all processes: what is under way has been given up.
#[cold]
pub fn give_up(mpi: &Mpi, what: &str) -> ! {
    let text = format!(
        "spmd: {what} was given up while {} was at work on its buffers, which it cannot be asked \
         to leave; ending all processes\n",
        mpi.name()
    );
    // In one piece: other processes may write to the same place. If nobody hears it, so be it.
    let _ = std::io::stderr().write_all(text.as_bytes());
    mpi.abort(1)
}
