//! Packets: sends that are under way, and what has come.
//!
//! Receives are not posted ahead: MPICH 5.0.2 over UCX never completes one from any source that is
//! posted when its message has come already.

use std::collections::VecDeque;
use std::ffi::c_int;

use parking_lot::Mutex;
use spmd_core::Result;
use spmd_core::transport::fabric::MAX_PACKET;

use crate::library::{Comm, Library, Message, Request, Status};
use crate::mpi::{Calls, Mpi};

/// Sends that one call looks at.
const COLLECTED: usize = 4;

/// Buffers that are kept for later sends.
const SPARE: usize = 64;

/// The tag of all packets.
const TAG: c_int = 0;

/// The packets of a process, on a communicator of their own.
pub struct Packets {
    comm: Comm,
    outbox: Mutex<Outbox>,
    inbox: Mutex<Inbox>,
}

/// Sends that are under way. MPI reads a buffer until its request is complete.
#[derive(Default)]
struct Outbox {
    sends: VecDeque<(Request, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
}

/// What comes.
struct Inbox {
    /// Allocated once: MPI writes into it while a packet arrives. Initialised throughout.
    buffer: *mut [u8; MAX_PACKET],
    /// A packet that has been matched and is not complete: others wait for it, so that all stay in
    /// order.
    arriving: Option<Arriving>,
}

struct Arriving {
    request: Request,
    from: usize,
    bytes: usize,
}

// SAFETY: it owns its buffer, and requests belong to no thread.
unsafe impl Send for Inbox {}

impl Packets {
    /// Those on this communicator, which nothing else uses.
    pub fn new(comm: Comm) -> Packets {
        let buffer = Box::into_raw(Box::new([0; MAX_PACKET]));
        let inbox = Mutex::new(Inbox { buffer, arriving: None });
        Packets { comm, outbox: Mutex::default(), inbox }
    }

    /// Sends a copy of `packet`.
    pub fn send(&self, mpi: &Mpi, to: usize, packet: &[u8]) -> Result<()> {
        assert!(packet.len() <= MAX_PACKET, "a packet of {} bytes", packet.len());
        let mpi = mpi.calls()?;
        let mut outbox = self.outbox.lock();
        outbox.collect(&mpi)?;
        let mut buffer = outbox.spare.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(packet);
        let mut request = mpi.constants.request_null;
        let (bytes, to) = (buffer.len() as c_int, to as c_int);
        // SAFETY: the buffer is readable, and stays where it is and as it is until the request is
        // complete: it goes into the outbox with it.
        let code = unsafe {
            let (isend, data, of) = (mpi.functions.isend, buffer.as_ptr(), mpi.constants.byte);
            isend(data, bytes, of, to, TAG, self.comm, &mut request)
        };
        let sent = mpi.check_sent("MPI_Isend", code).map(drop);
        // After an error, too, for the case that it was begun.
        let settled = outbox.settle(&mpi, request, buffer);
        sent.and(settled)
    }

    /// Hands over the next packet, if one has come. Says whether; no while another thread is here.
    pub fn receive(&self, mpi: &Mpi, take: &mut dyn FnMut(usize, &[u8])) -> Result<bool> {
        let Some(mut inbox) = self.inbox.try_lock() else { return Ok(false) };
        let calls = mpi.calls()?;
        let Some((from, bytes)) = inbox.next(&calls, self.comm)? else {
            self.outbox.lock().collect(&calls)?;
            return Ok(false);
        };
        // `take` may send.
        drop(calls);
        // SAFETY: the packet is complete, so that MPI has done with the buffer until the next, and
        // the inbox is locked.
        take(from, unsafe { &(&*inbox.buffer)[..bytes] });
        Ok(true)
    }
}

impl Outbox {
    /// Looks at a few of the sends under way.
    fn collect(&mut self, mpi: &Calls<'_>) -> Result<()> {
        for _ in 0..self.sends.len().min(COLLECTED) {
            if let Some((request, buffer)) = self.sends.pop_front() {
                self.settle(mpi, request, buffer)?;
            }
        }
        Ok(())
    }

    /// Keeps the buffer for as long as MPI reads it.
    fn settle(&mut self, mpi: &Calls<'_>, mut request: Request, buffer: Vec<u8>) -> Result<()> {
        // What cannot arrive any more is done with as well.
        if done(mpi, &mut request)? == Some(false) {
            self.sends.push_back((request, buffer));
        } else if self.spare.len() < SPARE {
            self.spare.push(buffer);
        }
        Ok(())
    }
}

impl Inbox {
    /// The sender and the bytes of the next packet, which is in the buffer, if one has come.
    fn next(&mut self, mpi: &Calls<'_>, comm: Comm) -> Result<Option<(usize, usize)>> {
        if self.arriving.is_none() {
            self.arriving = self.match_one(mpi, comm)?;
        }
        let Some(arriving) = &mut self.arriving else { return Ok(None) };
        let done = done(mpi, &mut arriving.request);
        let (from, bytes) = (arriving.from, arriving.bytes);
        // An error has completed it as well.
        if !matches!(done, Ok(Some(false))) {
            self.arriving = None;
        }
        Ok((done? == Some(true)).then_some((from, bytes)))
    }

    /// Begins to receive a packet that waits in MPI.
    fn match_one(&mut self, mpi: &Calls<'_>, comm: Comm) -> Result<Option<Arriving>> {
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
        let (into, room) = (self.buffer.cast::<u8>(), MAX_PACKET as c_int);
        let mut request = constants.request_null;
        // SAFETY: the buffer has so many writable bytes, and nobody uses it until the request is
        // complete: `next` gives it away only then. A longer packet is an error of MPI's.
        let code = unsafe {
            (mpi.functions.imrecv)(into, room, constants.byte, &mut message, &mut request)
        };
        if !mpi.check_sent("MPI_Imrecv", code)? {
            return Ok(None);
        }
        let bytes = usize::try_from(bytes).unwrap_or(0).min(MAX_PACKET);
        Ok(Some(Arriving { request, from: status.source() as usize, bytes }))
    }
}

/// Whether a request for one other process is complete; none if that has failed. An error completes
/// it.
pub fn done(mpi: &Calls<'_>, request: &mut Request) -> Result<Option<bool>> {
    let mut flag = 0;
    // SAFETY: `request` is null or active, for its owner gives it here alone.
    let code = unsafe { (mpi.functions.test)(request, &mut flag, mpi.constants.status_ignore) };
    let lives = mpi.check_sent("MPI_Test", code);
    if !matches!(lives, Ok(true)) {
        *request = mpi.constants.request_null;
    }
    lives.map(|lives| lives.then_some(flag != 0))
}

/// Whether a request is complete. An error completes it.
pub fn complete(mpi: &Library, request: &mut Request) -> Result<bool> {
    let mut flag = 0;
    // SAFETY: `request` is null or active, for its owner gives it here alone; MPI makes it null
    // when it is complete.
    let tested = unsafe { mpi.test(request, &mut flag, mpi.constants.status_ignore) };
    if tested.is_err() {
        *request = mpi.constants.request_null;
    }
    tested.map(|()| flag != 0)
}
