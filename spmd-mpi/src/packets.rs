//! Packets: sends that are under way, and receives that are posted ahead.

use std::collections::VecDeque;
use std::ffi::c_int;

use parking_lot::Mutex;
use spmd_core::Result;
use spmd_core::transport::fabric::MAX_PACKET;

use crate::library::{Comm, Count, Library, Request, Status};
use crate::mpi::{Calls, Mpi};

/// Receives that are posted ahead.
const POSTED: usize = 8;

/// Packets that one call hands over, so that a caller who waits for something else gets to look.
const AT_ONCE: usize = 64;

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
    ring: Mutex<Ring>,
}

/// Sends that are under way. MPI reads a buffer until its request is complete.
#[derive(Default)]
struct Outbox {
    sends: VecDeque<(Request, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
}

/// Receives in the order in which they were posted, which is the order in which MPI matches them.
struct Ring {
    posted: VecDeque<Slot>,
    /// Handed over, or failed, and not yet posted again.
    idle: Vec<Slot>,
}

struct Slot {
    request: Request,
    /// Allocated once: MPI writes into it while the receive is posted. Initialised throughout.
    buffer: *mut [u8; MAX_PACKET],
}

// SAFETY: a slot owns its buffer, and requests belong to no thread.
unsafe impl Send for Slot {}

impl Packets {
    /// Posts the receives.
    pub fn new(comm: Comm, mpi: &Calls<'_>) -> Result<Packets> {
        let idle = (0..POSTED).map(|_| Slot {
            request: mpi.constants.request_null,
            buffer: Box::into_raw(Box::new([0; MAX_PACKET])),
        });
        let mut ring = Ring { posted: VecDeque::with_capacity(POSTED), idle: idle.collect() };
        ring.post(mpi, comm)?;
        Ok(Packets { comm, outbox: Mutex::default(), ring: Mutex::new(ring) })
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
        let sent = unsafe {
            mpi.isend(buffer.as_ptr(), bytes, mpi.constants.byte, to, TAG, self.comm, &mut request)
        };
        // After an error, too, for the case that it was begun.
        let settled = outbox.settle(&mpi, request, buffer);
        sent.and(settled)
    }

    /// Hands over what has come. Returns how many there were; none while another thread is here.
    pub fn receive(&self, mpi: &Mpi, take: &mut dyn FnMut(usize, &[u8])) -> Result<usize> {
        let Some(mut ring) = self.ring.try_lock() else { return Ok(0) };
        for handed in 0..AT_ONCE {
            let calls = mpi.calls()?;
            ring.post(&calls, self.comm)?;
            let come = ring.oldest(&calls)?;
            if come.is_none() {
                self.outbox.lock().collect(&calls)?;
            }
            // `take` may send.
            drop(calls);
            let Some((slot, from, bytes)) = come else { return Ok(handed) };
            let buffer = slot.buffer;
            ring.idle.push(slot);
            // SAFETY: the receive is complete, so that MPI has done with the buffer, and the ring
            // is locked until the receive is posted again.
            take(from, unsafe { &(&*buffer)[..bytes] });
        }
        Ok(AT_ONCE)
    }

    /// Takes the receives back, before MPI is finalised.
    pub fn withdraw(&self, mpi: &Calls<'_>) {
        // To wait for a thread that is handing packets over could take for ever: it may itself wait
        // for `mpi`.
        let Some(mut ring) = self.ring.try_lock() else { return };
        for slot in &mut ring.posted {
            // SAFETY: the request is that of a posted receive. A cancelled one is complete without
            // any other process. Errors could be told to nobody.
            unsafe {
                let _ = mpi.cancel(&mut slot.request);
                let _ = mpi.wait(&mut slot.request, mpi.constants.status_ignore);
            }
        }
        ring.posted.clear();
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
        if !complete(mpi, &mut request)? {
            self.sends.push_back((request, buffer));
        } else if self.spare.len() < SPARE {
            self.spare.push(buffer);
        }
        Ok(())
    }
}

impl Ring {
    /// Posts the idle ones, behind the others.
    fn post(&mut self, mpi: &Calls<'_>, comm: Comm) -> Result<()> {
        let Library { constants, .. } = &**mpi;
        while let Some(mut slot) = self.idle.pop() {
            let (into, bytes) = (slot.buffer.cast::<u8>(), MAX_PACKET as Count);
            slot.request = constants.request_null;
            let (from, request) = (constants.any_source, &mut slot.request);
            // SAFETY: the buffer has so many writable bytes, and nobody uses it while the slot is
            // posted.
            let posted =
                unsafe { mpi.irecv(into, bytes, constants.byte, from, TAG, comm, request) };
            // After an error, too, if it was begun.
            if slot.request == constants.request_null {
                self.idle.push(slot);
            } else {
                self.posted.push_back(slot);
            }
            posted?;
        }
        Ok(())
    }

    /// The oldest one with its sender and bytes, if its packet has come.
    fn oldest(&mut self, mpi: &Calls<'_>) -> Result<Option<(Slot, usize, usize)>> {
        let Some(slot) = self.posted.front_mut() else { return Ok(None) };
        let (mut flag, mut status, mut bytes) = (0, Status::default(), 0);
        // SAFETY: the request is that of a posted receive, the rest writable.
        let tested = unsafe { mpi.test(&mut slot.request, &mut flag, &mut status) };
        if tested.is_ok() && flag == 0 {
            return Ok(None);
        }
        let counted = tested.and_then(|()| {
            // SAFETY: the status is that of a complete receive.
            unsafe { mpi.get_count(&status, mpi.constants.byte, &mut bytes) }
        });
        // An error has completed it as well.
        let slot = self.posted.pop_front().expect("it was there");
        if let Err(error) = counted {
            self.idle.push(slot);
            return Err(error);
        }
        Ok(Some((slot, status.source() as usize, bytes as usize)))
    }
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
