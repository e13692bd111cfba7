//! Packets: sends that are under way; what comes is the inbox's (`inbox.rs`).

use std::collections::VecDeque;
use std::ffi::c_int;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;
use spmd_core::Result;
use spmd_core::transport::fabric::MAX_PACKET;

use crate::done::done;
use crate::handles::{Comm, Request};
use crate::inbox::{Inbox, TAG};
use crate::mpi::{Calls, Mpi, PATIENCE};

/// Sends that one call looks at.
const COLLECTED: usize = 4;

/// Sends to one process that MPI has at a time. Open MPI 5 keeps up to 64 KiB for each that nobody
/// has received, MPICH 5 up to a KiB: what is more waits here.
const UNDER_WAY: usize = 128;

/// Buffers that are kept for later sends.
const SPARE: usize = 64;

/// The packets of a process, on a communicator of their own.
pub struct Packets {
    comm: Comm,
    outbox: Mutex<Outbox>,
    /// Whether something was under way when the outbox was last seen to.
    sends: AtomicBool,
    inbox: Mutex<Inbox>,
}

/// What is sent and not complete.
#[derive(Default)]
struct Outbox {
    sends: VecDeque<Sending>,
    /// By process.
    queues: Vec<Queue>,
    /// Packets that wait in all queues.
    waiting: usize,
    spare: Vec<Vec<u8>>,
}

/// A send that is under way. MPI reads the buffer until the request is complete.
struct Sending {
    to: usize,
    request: Request,
    buffer: Vec<u8>,
}

/// What is sent to one process.
#[derive(Default)]
struct Queue {
    under_way: usize,
    /// What goes when less is under way.
    waiting: VecDeque<Vec<u8>>,
}

impl Packets {
    /// Those on this communicator, which nothing else uses, of this process among so many.
    pub fn new(comm: Comm, process: usize, processes: usize, survive: bool) -> Packets {
        let inbox = Mutex::new(Inbox::new(process, processes, survive));
        let queues = (0..processes).map(|_| Queue::default()).collect();
        let outbox = Mutex::new(Outbox { queues, ..Outbox::default() });
        Packets { comm, outbox, sends: AtomicBool::new(false), inbox }
    }

    /// Nothing is received any more: MPI is about to be finalised. False if a thread receives, or
    /// something does not end.
    pub fn close(&self, calls: &Calls<'_>) -> bool {
        // Whoever has it may wait for the calls.
        self.inbox.try_lock_for(PATIENCE).is_some_and(|mut inbox| inbox.close(calls))
    }

    /// Sends a copy of `packet`.
    pub fn send(&self, mpi: &Mpi, to: usize, packet: [&[u8]; 2]) -> Result<()> {
        let bytes = packet[0].len() + packet[1].len();
        assert!(bytes <= MAX_PACKET, "a packet of {bytes} bytes");
        let mpi = mpi.calls()?;
        let mut outbox = self.outbox.lock();
        outbox.collect(&mpi, self.comm)?;
        let mut buffer = outbox.spare.pop().unwrap_or_default();
        buffer.clear();
        packet.iter().for_each(|piece| buffer.extend_from_slice(piece));
        let queue = &mut outbox.queues[to];
        if queue.under_way >= UNDER_WAY {
            queue.waiting.push_back(buffer);
            outbox.waiting += 1;
            return Ok(());
        }
        let begun = outbox.begin(&mpi, self.comm, to, buffer);
        self.sends.store(!outbox.sends.is_empty(), Relaxed);
        begun
    }

    /// Gives MPI all that waits until less is under way.
    pub fn flush(&self, mpi: &Mpi) -> Result<()> {
        let mpi = mpi.calls()?;
        let mut outbox = self.outbox.lock();
        if mem::take(&mut outbox.waiting) == 0 {
            return Ok(());
        }
        self.sends.store(true, Relaxed);
        let waiting =
            outbox.queues.iter_mut().map(|queue| mem::take(&mut queue.waiting)).enumerate();
        for (to, packets) in waiting.collect::<Vec<_>>() {
            packets.into_iter().try_for_each(|packet| outbox.begin(&mpi, self.comm, to, packet))?;
        }
        Ok(())
    }

    /// Hands over the next packet, if one has come. Says whether; no while another thread is here.
    pub fn receive(&self, mpi: &Mpi, take: &mut dyn FnMut(usize, &[u8])) -> Result<bool> {
        let Some(mut inbox) = self.inbox.try_lock() else { return Ok(false) };
        let calls = mpi.calls()?;
        let Some((from, packet)) = inbox.next(&calls, self.comm)? else {
            // Nobody sends meanwhile: that takes the calls.
            if self.sends.load(Relaxed) {
                let mut outbox = self.outbox.lock();
                let collected = outbox.collect(&calls, self.comm);
                self.sends.store(!outbox.sends.is_empty(), Relaxed);
                collected?;
            }
            return Ok(false);
        };
        // `take` may send.
        drop(calls);
        take(from, packet);
        Ok(true)
    }
}

impl Outbox {
    /// Gives a packet to MPI.
    fn begin(&mut self, mpi: &Calls<'_>, comm: Comm, to: usize, buffer: Vec<u8>) -> Result<()> {
        let mut request = mpi.constants.request_null;
        let (bytes, rank) = (buffer.len() as c_int, to as c_int);
        // SAFETY: the buffer is readable, and stays where it is and as it is until the request is
        // complete: it goes into the outbox with it.
        let code = unsafe {
            let (isend, data, of) = (mpi.functions.isend, buffer.as_ptr(), mpi.constants.byte);
            isend(data, bytes, of, rank, TAG, comm, &mut request)
        };
        let sent = mpi.check_sent("MPI_Isend", code).map(drop);
        // After an error, too, for the case that it was begun.
        self.queues[to].under_way += 1;
        let kept = self.keep_until_sent(mpi, Sending { to, request, buffer });
        sent.and(kept.map(drop))
    }

    /// Looks at a few of the sends under way, and begins those that have waited for them.
    fn collect(&mut self, mpi: &Calls<'_>, comm: Comm) -> Result<()> {
        for _ in 0..self.sends.len().min(COLLECTED) {
            let Some(send) = self.sends.pop_front() else { break };
            let to = send.to;
            let kept = self.keep_until_sent(mpi, send);
            if matches!(kept, Ok(false)) {
                continue;
            }
            while self.queues[to].under_way < UNDER_WAY {
                let Some(next) = self.queues[to].waiting.pop_front() else { break };
                self.waiting -= 1;
                self.begin(mpi, comm, to, next)?;
            }
            kept?;
        }
        Ok(())
    }

    /// Keeps the buffer for as long as MPI reads it; says whether it has done with it. What cannot
    /// arrive any more is done with as well, and so is what has failed.
    fn keep_until_sent(&mut self, mpi: &Calls<'_>, mut send: Sending) -> Result<bool> {
        let done = done(mpi, &mut send.request);
        if matches!(done, Ok(Some(false))) {
            self.sends.push_back(send);
            return Ok(false);
        }
        self.queues[send.to].under_way -= 1;
        if self.spare.len() < SPARE {
            self.spare.push(send.buffer);
        }
        done.map(|_| true)
    }
}
