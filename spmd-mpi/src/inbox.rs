//! Packets that come.
//!
//! Where the others are few, a receive is posted for each of them ahead, so that a packet comes
//! straight to its buffer, and one call tells whether it has. Otherwise packets are probed for: MPICH
//! 5.0.2 over UCX never completes a receive from any source that is posted when its message has come
//! already.

use std::ffi::c_int;
use std::time::Instant;

use spmd_core::Result;
use spmd_core::transport::fabric::relax;

use crate::bundle::{self, MAX_MESSAGE};
use crate::done::{complete, done};
use crate::handles::{Comm, Message, Request};
use crate::library::Library;
use crate::mpi::{Calls, PATIENCE};
use crate::provider::Status;

/// The tag of all packets.
pub(crate) const TAG: c_int = 0;

/// From how many other processes receives are posted ahead, at most: each takes a buffer, and a look.
const FEW: usize = 8;

/// What comes.
pub(crate) struct Inbox {
    messages: Messages,
    /// The message whose packets are handed over.
    open: Option<Open>,
}

/// Where messages come.
enum Messages {
    /// Of each other process, the message that comes next; which of them is looked at first.
    Posted { all: Vec<Posted>, next: usize },
    /// The one message that was matched and is not complete: others wait for it, so that all stay in
    /// order.
    Probed { buffer: Buffer, arriving: Option<Arriving> },
}

/// A message that has come: so much of its buffer, of which so much has been handed over.
struct Open {
    from: usize,
    /// Of those that are posted.
    place: usize,
    bytes: usize,
    done: usize,
}

/// A receive from one process.
struct Posted {
    from: usize,
    /// Once it is posted, until it is complete.
    request: Option<Request>,
    buffer: Buffer,
}

struct Arriving {
    request: Request,
    from: usize,
    bytes: usize,
}

/// Where a message comes, initialised throughout: MPI writes into it while it arrives, so that it is
/// never freed.
struct Buffer(*mut [u8; MAX_MESSAGE]);

// SAFETY: it is memory of its own, and requests belong to no thread.
unsafe impl Send for Inbox {}

impl Buffer {
    fn new() -> Buffer {
        let memory: Box<[u8]> = vec![0; MAX_MESSAGE].into();
        Buffer(Box::into_raw(memory).cast())
    }

    fn memory(&mut self) -> *mut u8 {
        self.0.cast()
    }

    /// The first bytes of it.
    ///
    /// # Safety
    /// MPI does not write into it as long as this is used.
    unsafe fn message(&self, bytes: usize) -> &[u8] {
        // SAFETY: it was allocated for so many bytes, which nobody writes (this function's contract).
        unsafe { &(&*self.0)[..bytes] }
    }
}

impl Inbox {
    /// That of a process among so many, which `survive` the failure of others or not.
    pub(crate) fn new(process: usize, processes: usize, survive: bool) -> Inbox {
        if processes > FEW + 1 || survive {
            let messages = Messages::Probed { buffer: Buffer::new(), arriving: None };
            return Inbox { messages, open: None };
        }
        let others = (0..processes).filter(|from| *from != process);
        let all = others.map(|from| Posted { from, request: None, buffer: Buffer::new() });
        Inbox { messages: Messages::Posted { all: all.collect(), next: 0 }, open: None }
    }

    /// The next packet and its sender, if one has come.
    pub(crate) fn next(&mut self, mpi: &Calls<'_>, comm: Comm) -> Result<Option<(usize, &[u8])>> {
        if self.open.is_none() {
            self.open = self.messages.next(mpi, comm)?;
        }
        let Some(Open { from, place, bytes, done }) = &mut self.open else { return Ok(None) };
        let buffer = match &self.messages {
            Messages::Posted { all, .. } => &all[*place].buffer,
            Messages::Probed { buffer, .. } => buffer,
        };
        // SAFETY: the message is complete, and no other one is received into this buffer before this
        // one is done with.
        let message = unsafe { buffer.message(*bytes) };
        let (packet, rest) = bundle::first(&message[*done..]).unwrap_or_default();
        let from = *from;
        *done = *bytes - rest.len();
        if rest.is_empty() {
            self.open = None;
        }
        Ok(Some((from, packet)))
    }

    /// Takes back what is posted. Whether nothing is left of it, in a while.
    pub(crate) fn close(&mut self, calls: &Calls<'_>) -> bool {
        let Messages::Posted { all, .. } = &mut self.messages else { return true };
        let start = Instant::now();
        all.iter_mut().filter_map(|posted| posted.request.as_mut()).all(|request| {
            // SAFETY: the request is that of a receive that is not complete.
            let cancelled = unsafe { calls.cancel(request) };
            // A cancelled one is complete without any other process, one that has begun to arrive
            // once it is there.
            cancelled.is_ok()
                && loop {
                    match complete(calls, request) {
                        Ok(false) if start.elapsed() < PATIENCE => relax(),
                        complete => break !matches!(complete, Ok(false)),
                    }
                }
        })
    }
}

impl Messages {
    /// The next message, if one has come.
    fn next(&mut self, mpi: &Calls<'_>, comm: Comm) -> Result<Option<Open>> {
        match self {
            Messages::Posted { all, next } => {
                for _ in 0..all.len() {
                    let place = *next;
                    *next = (place + 1) % all.len();
                    if let Some(bytes) = all[place].look(mpi, comm)? {
                        return Ok(Some(Open { from: all[place].from, place, bytes, done: 0 }));
                    }
                }
                Ok(None)
            }
            Messages::Probed { buffer, arriving } => {
                if arriving.is_none() {
                    *arriving = match_one(mpi, comm, buffer)?;
                }
                let Some(message) = arriving else { return Ok(None) };
                let done = done(mpi, &mut message.request);
                let (from, bytes) = (message.from, message.bytes);
                // An error has completed it as well.
                if !matches!(done, Ok(Some(false))) {
                    *arriving = None;
                }
                let come = done? == Some(true);
                Ok(come.then_some(Open { from, place: 0, bytes, done: 0 }))
            }
        }
    }
}

impl Posted {
    /// How many bytes the message has, if it has come. Otherwise it comes to the buffer from now on.
    fn look(&mut self, mpi: &Calls<'_>, comm: Comm) -> Result<Option<usize>> {
        let (mut flag, mut status, mut bytes) = (0, Status::default(), 0);
        let mut request = match self.request.take() {
            Some(request) => request,
            None => self.post(mpi, comm)?,
        };
        // SAFETY: the request is active; what is written is writable. After an error it is complete.
        unsafe { mpi.test(&mut request, &mut flag, &mut status)? };
        if flag == 0 {
            self.request = Some(request);
            return Ok(None);
        }
        // SAFETY: the status is that of the message.
        unsafe { mpi.get_count(&status, mpi.constants.byte, &mut bytes)? };
        Ok(Some(usize::try_from(bytes).unwrap_or(0).min(MAX_MESSAGE)))
    }

    /// Has the next message come to the buffer.
    fn post(&mut self, mpi: &Calls<'_>, comm: Comm) -> Result<Request> {
        let (room, of, from) = (MAX_MESSAGE as _, mpi.constants.byte, self.from as c_int);
        let mut request = mpi.constants.request_null;
        // SAFETY: the buffer has so many writable bytes, is never freed, and nobody uses it until the
        // request is complete. A longer message is an error of MPI's.
        unsafe { mpi.irecv(self.buffer.memory(), room, of, from, TAG, comm, &mut request)? };
        Ok(request)
    }
}

/// Begins to receive a message that waits in MPI.
fn match_one(mpi: &Calls<'_>, comm: Comm, buffer: &mut Buffer) -> Result<Option<Arriving>> {
    let Library { constants, .. } = &**mpi;
    let (mut flag, mut status, mut bytes) = (0, Status::default(), 0);
    let mut message = Message::unset();
    let (improbe, from) = (mpi.functions.improbe, constants.any_source);
    // SAFETY: what is written is writable.
    let code = unsafe { improbe(from, TAG, comm, &mut flag, &mut message, &mut status) };
    if !mpi.check_sent("MPI_Improbe", code)? {
        // It finds nothing from anybody until it is told that the failure is known.
        mpi.acknowledge(comm)?;
        return Ok(None);
    }
    if flag == 0 {
        return Ok(None);
    }
    // SAFETY: the status is that of the message.
    unsafe { mpi.get_count(&status, constants.byte, &mut bytes)? };
    let (into, room) = (buffer.memory(), MAX_MESSAGE as c_int);
    let mut request = constants.request_null;
    // SAFETY: the buffer has so many writable bytes, and nobody uses it until the request is
    // complete: `next` gives it away only then. A longer message is an error of MPI's.
    let code =
        unsafe { (mpi.functions.imrecv)(into, room, constants.byte, &mut message, &mut request) };
    if !mpi.check_sent("MPI_Imrecv", code)? {
        return Ok(None);
    }
    let bytes = usize::try_from(bytes).unwrap_or(0).min(MAX_MESSAGE);
    Ok(Some(Arriving { request, from: status.source() as usize, bytes }))
}
