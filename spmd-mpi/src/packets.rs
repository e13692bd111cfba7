//! Packets: sends that are under way; what comes is the inbox's (`inbox.rs`).

use std::collections::VecDeque;
use std::ffi::c_int;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;
use spmd_core::Result;

use crate::bundle;
use crate::done::done;
use crate::handles::{Comm, Request};
use crate::inbox::{Inbox, TAG};
use crate::mpi::{Calls, Mpi, PATIENCE};
use crate::provider::Count;

/// Sends that one call looks at, and sends under way at which a call for another one does not look.
const COLLECTED: usize = 4;
const FEW: usize = 16;

/// Sends to one process that are under way at a time: what is more waits here. Open MPI 5 takes up
/// to 64 KiB for each.
const UNDER_WAY: usize = 128;

/// Bytes that one process is sent and has not received, as far as is known, before more waits here.
/// Most sends are complete when MPI has a copy of the message.
const UNRECEIVED: u64 = 4 << 20;

/// Bytes that each message counts besides: Intel MPI 2021 takes 500 to 1700 for the shortest.
const EACH: u64 = 512;

/// After so many bytes one message goes by a synchronous send, which is complete once it is received.
/// As MPI keeps the order, those before it are received as well.
const SYNCHRONOUS: u64 = UNRECEIVED / 4;

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
    /// Messages that wait in all queues.
    waiting: usize,
    spare: Vec<Vec<u8>>,
}

/// A send that is under way. MPI reads the buffer until the request is complete.
struct Sending {
    to: usize,
    /// It is a synchronous one, at whose end so many bytes are received.
    synchronous: Option<u64>,
    request: Request,
    buffer: Vec<u8>,
}

/// What is sent to one process.
#[derive(Default)]
struct Queue {
    under_way: usize,
    /// Bytes that MPI was given.
    begun: u64,
    /// So many of them went until the last synchronous send.
    synchronous: u64,
    /// So many of them are known to be received.
    received: u64,
    /// What goes when less is under way.
    waiting: VecDeque<Vec<u8>>,
}

impl Queue {
    fn is_full(&self) -> bool {
        self.under_way >= UNDER_WAY || self.begun - self.received >= UNRECEIVED
    }

    /// MPI is given so many bytes; what it has been given then, if that is to be a synchronous send.
    fn begin(&mut self, bytes: usize) -> Option<u64> {
        self.under_way += 1;
        self.begun += bytes as u64 + EACH;
        let due = self.begun - self.synchronous >= SYNCHRONOUS;
        self.synchronous = if due { self.begun } else { self.synchronous };
        due.then_some(self.begun)
    }
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
        let mpi = mpi.calls()?;
        let mut outbox = self.outbox.lock();
        if outbox.sends.len() > FEW || outbox.queues[to].is_full() {
            outbox.collect(&mpi, self.comm)?;
        }
        if outbox.queues[to].is_full() {
            outbox.enqueue(to, packet);
            return Ok(());
        }
        let mut message = outbox.spare.pop().unwrap_or_default();
        message.clear();
        bundle::append(&mut message, packet);
        let begun = outbox.begin(&mpi, self.comm, to, message);
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
        for (to, messages) in waiting.collect::<Vec<_>>() {
            messages.into_iter().try_for_each(|it| outbox.begin(&mpi, self.comm, to, it))?;
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
    /// Keeps a copy of a packet until less is under way.
    fn enqueue(&mut self, to: usize, packet: [&[u8]; 2]) {
        let waiting = &mut self.queues[to].waiting;
        if waiting.back_mut().is_some_and(|last| bundle::append_if_room(last, packet)) {
            return;
        }
        let mut message = self.spare.pop().unwrap_or_default();
        message.clear();
        bundle::append(&mut message, packet);
        waiting.push_back(message);
        self.waiting += 1;
    }

    /// Gives a message to MPI.
    fn begin(&mut self, mpi: &Calls<'_>, comm: Comm, to: usize, buffer: Vec<u8>) -> Result<()> {
        let synchronous = self.queues[to].begin(buffer.len());
        let mut request = mpi.constants.request_null;
        let (isend, issend) = (mpi.functions.isend, mpi.functions.issend);
        let (data, bytes, of) = (buffer.as_ptr(), buffer.len(), mpi.constants.byte);
        let (rank, new) = (to as c_int, &raw mut request);
        // SAFETY: the buffer is readable, and stays where it is and as it is until the request is
        // complete, in both cases: it goes into the outbox with it. A message's length, 64 KiB and
        // little more, is one that either count can say. `new` is writable.
        let sent = unsafe {
            match synchronous {
                None => ("MPI_Isend", isend(data, bytes as c_int, of, rank, TAG, comm, new)),
                Some(_) => ("MPI_Issend", issend(data, bytes as Count, of, rank, TAG, comm, new)),
            }
        };
        let sent = mpi.check_sent(sent.0, sent.1).map(drop);
        // After an error, too, for the case that it was begun.
        let kept = self.keep_until_sent(mpi, Sending { to, synchronous, request, buffer });
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
            while !self.queues[to].is_full() {
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
        let queue = &mut self.queues[send.to];
        queue.under_way -= 1;
        queue.received = queue.received.max(send.synchronous.unwrap_or(0));
        if self.spare.len() < SPARE {
            self.spare.push(send.buffer);
        }
        done.map(|_| true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is full has a synchronous send under way, whose end makes room.
    #[test]
    fn a_full_queue_hears_what_is_received() {
        for bytes in [0, 1, 5000, bundle::MAX_MESSAGE] {
            let (mut queue, mut synchronous) = (Queue::default(), VecDeque::new());
            for _ in 0..10 {
                while !queue.is_full() {
                    synchronous.extend(queue.begin(bytes));
                    // The library has a copy.
                    queue.under_way -= 1;
                }
                assert!(queue.begun - queue.received < UNRECEIVED + bytes as u64 + EACH);
                queue.received = synchronous.pop_front().expect("one is under way");
                assert!(!queue.is_full() && synchronous.len() < 4, "{bytes}: {synchronous:?}");
            }
        }
    }
}
