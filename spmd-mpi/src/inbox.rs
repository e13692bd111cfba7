//! Packets that come.
//!
//! Where the others are few, a receive is posted for each of them ahead, so that a packet comes
//! straight to its buffer, and one call tells whether it has. Otherwise packets are probed for: MPICH
//! 5.0.2 over UCX never completes a receive from any source that is posted when its message has come
//! already.

use std::ffi::c_int;

use spmd_core::Result;
use spmd_core::transport::fabric::{MAX_PACKET, relax};

use crate::done::{complete, done};
use crate::handles::{Comm, Message, Request};
use crate::library::Library;
use crate::mpi::Calls;
use crate::provider::Status;

/// The tag of all packets.
pub(crate) const TAG: c_int = 0;

/// From how many other processes receives are posted ahead, at most: each takes a buffer, and a look.
const FEW: usize = 8;

/// What comes.
pub(crate) enum Inbox {
    /// Of each other process, the packet that comes next; none until somebody looks. The process
    /// that is looked at first, and whether its packet was given away.
    Posted { own: usize, all: Vec<Posted>, next: usize, given: bool },
    /// The one packet that was matched and is not complete: others wait for it, so that all stay in
    /// order.
    Probed { buffer: Buffer, arriving: Option<Arriving> },
}

/// A receive from one process.
pub(crate) struct Posted {
    request: Request,
    buffer: Buffer,
    from: usize,
}

pub(crate) struct Arriving {
    request: Request,
    from: usize,
    bytes: usize,
}

/// Where a packet comes, initialised throughout: MPI writes into it while it arrives, so that it is
/// never freed.
pub(crate) struct Buffer(*mut [u8; MAX_PACKET]);

// SAFETY: it is memory of its own, and requests belong to no thread.
unsafe impl Send for Inbox {}

impl Buffer {
    fn new() -> Buffer {
        Buffer(Box::into_raw(Box::new([0; MAX_PACKET])))
    }

    fn memory(&mut self) -> *mut u8 {
        self.0.cast()
    }

    /// The first bytes of it.
    ///
    /// # Safety
    /// MPI does not write into it as long as this is used.
    unsafe fn packet(&self, bytes: usize) -> &[u8] {
        // SAFETY: it was allocated for so many bytes, which nobody writes (this function's contract).
        unsafe { &(&*self.0)[..bytes] }
    }
}

impl Inbox {
    /// That of a process among so many, which `survive` the failure of others or not.
    pub(crate) fn new(process: usize, processes: usize, survive: bool) -> Inbox {
        match processes <= FEW + 1 && !survive {
            true => Inbox::Posted { own: process, all: Vec::new(), next: 0, given: false },
            false => Inbox::Probed { buffer: Buffer::new(), arriving: None },
        }
    }

    /// The next packet and its sender, if one has come.
    pub(crate) fn next(&mut self, mpi: &Calls<'_>, comm: Comm) -> Result<Option<(usize, &[u8])>> {
        match self {
            Inbox::Posted { own, all, next, given } => {
                if all.is_empty() {
                    let (_, processes) = mpi.rank_and_size(comm)?;
                    for from in (0..processes).filter(|from| from != own) {
                        let mut posted = Posted::new(mpi, from);
                        posted.post(mpi, comm)?;
                        all.push(posted);
                    }
                } else if std::mem::take(given) {
                    all[*next].post(mpi, comm)?;
                    *next = (*next + 1) % all.len();
                }
                for _ in 0..all.len() {
                    if let Some(bytes) = all[*next].look(mpi)? {
                        *given = true;
                        let posted = &all[*next];
                        // SAFETY: the packet is complete, and no other receive into this buffer is
                        // posted before the next call.
                        return Ok(Some((posted.from, unsafe { posted.buffer.packet(bytes) })));
                    }
                    *next = (*next + 1) % all.len();
                }
                Ok(None)
            }
            Inbox::Probed { buffer, arriving } => {
                if arriving.is_none() {
                    *arriving = match_one(mpi, comm, buffer)?;
                }
                let Some(packet) = arriving else { return Ok(None) };
                let done = done(mpi, &mut packet.request);
                let (from, bytes) = (packet.from, packet.bytes);
                // An error has completed it as well.
                if !matches!(done, Ok(Some(false))) {
                    *arriving = None;
                }
                let come = done? == Some(true);
                // SAFETY: the packet is complete, and no other one is received before the next call.
                Ok(come.then(|| (from, unsafe { buffer.packet(bytes) })))
            }
        }
    }

    /// Takes back what is posted.
    pub(crate) fn close(&mut self, calls: &Calls<'_>) {
        let Inbox::Posted { all, .. } = self else { return };
        for Posted { request, .. } in all {
            if *request == calls.constants.request_null {
                continue;
            }
            // SAFETY: the request is that of a receive that is not complete.
            let _ = unsafe { calls.cancel(request) };
            // A cancelled one is complete without any other process, one that has begun to arrive
            // once it is there.
            while matches!(complete(calls, request), Ok(false)) {
                relax();
            }
        }
    }
}

impl Posted {
    fn new(mpi: &Library, from: usize) -> Posted {
        Posted { request: mpi.constants.request_null, buffer: Buffer::new(), from }
    }

    /// Has the next packet come to the buffer.
    fn post(&mut self, mpi: &Calls<'_>, comm: Comm) -> Result<()> {
        let (room, of, from) = (MAX_PACKET as _, mpi.constants.byte, self.from as c_int);
        // SAFETY: the buffer has so many writable bytes, is never freed, and nobody uses it until the
        // request is complete. A longer packet is an error of MPI's.
        unsafe { mpi.irecv(self.buffer.memory(), room, of, from, TAG, comm, &mut self.request) }
    }

    /// How many bytes the packet has, if it has come.
    fn look(&mut self, mpi: &Calls<'_>) -> Result<Option<usize>> {
        let (mut flag, mut status, mut bytes) = (0, Status::default(), 0);
        // SAFETY: the request is null or active; what is written is writable.
        unsafe { mpi.test(&mut self.request, &mut flag, &mut status)? };
        if flag == 0 {
            return Ok(None);
        }
        // SAFETY: the status is that of the packet.
        unsafe { mpi.get_count(&status, mpi.constants.byte, &mut bytes)? };
        Ok(Some(usize::try_from(bytes).unwrap_or(0).min(MAX_PACKET)))
    }
}

/// Begins to receive a packet that waits in MPI.
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
    let (into, room) = (buffer.memory(), MAX_PACKET as c_int);
    let mut request = constants.request_null;
    // SAFETY: the buffer has so many writable bytes, and nobody uses it until the request is
    // complete: `next` gives it away only then. A longer packet is an error of MPI's.
    let code =
        unsafe { (mpi.functions.imrecv)(into, room, constants.byte, &mut message, &mut request) };
    if !mpi.check_sent("MPI_Imrecv", code)? {
        return Ok(None);
    }
    let bytes = usize::try_from(bytes).unwrap_or(0).min(MAX_PACKET);
    Ok(Some(Arriving { request, from: status.source() as usize, bytes }))
}
