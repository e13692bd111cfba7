//! Mailboxes of virtual ranks, and of threads too many for rings: one queue a receiver, however
//! many senders.
//!
//! A large message is not copied into the queue: the receiver copies from the sender's buffer,
//! and the sender waits for that (`access.rs`). So does a small one that finds the mailbox full.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::*};

use parking_lot::Mutex;

use super::access::Access;
use super::agents::Waiter;
use super::{Endpoint, World};
use crate::copy::copy_from_peer;
use crate::error::Result;
use crate::transport::message::{Envelope, Kept, There, Underway};

/// Bytes after which a sender lets others run: its receiver may share its thread.
const TURN: usize = 64 << 10;

pub(crate) struct Queue {
    arrived: Mutex<VecDeque<Kept>>,
    /// What the messages in `arrived` take; changed under its lock.
    queued: AtomicUsize,
    /// What those take that the receiver has taken out of it and keeps; changed by that alone.
    kept: AtomicUsize,
    /// What both may take before small messages, too, wait with their senders.
    window: usize,
}

impl Queue {
    /// The mailbox of one of so many ranks. Its window is for all senders together: one of each
    /// pair of thousands of ranks would be no bound. There is room for some messages of each.
    pub(crate) fn new(window: usize, ranks: usize) -> Queue {
        let window = window.max(ranks * TURN);
        Queue { arrived: Mutex::default(), queued: 0.into(), kept: 0.into(), window }
    }

    /// Adds a message, whether the window is full or not. Whether many lie there by now, so that
    /// others are to be let run.
    pub(crate) fn push(&self, message: Kept) -> bool {
        let weight = message.weight();
        let mut arrived = self.arrived.lock();
        arrived.push_back(message);
        let before = self.queued.load(Relaxed);
        self.queued.store(before + weight, Release);
        before / TURN != (before + weight) / TURN
    }

    /// Whether the rank keeps as much as it may, so that the next message is to be offered instead
    /// of added. Those who add at the same time may each add one more.
    pub(crate) fn is_full(&self) -> bool {
        // In this order: what is drained meanwhile is not counted twice.
        let kept = self.kept.load(Acquire);
        kept + self.queued.load(Relaxed) >= self.window
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queued.load(Acquire) == 0
    }

    /// Moves what has arrived to the end of `waiting`.
    pub(super) fn drain(&self, waiting: &mut VecDeque<Kept>) {
        let mut arrived = self.arrived.lock();
        let queued = self.queued.swap(0, Relaxed);
        self.kept.store(self.kept.load(Relaxed) + queued, Release);
        waiting.append(&mut arrived);
    }

    /// A message that was drained is kept no longer.
    pub(super) fn release(&self, weight: usize) {
        self.kept.store(self.kept.load(Relaxed) - weight, Relaxed);
    }
}

impl World {
    /// A rank's mailbox, where ranks have no rings.
    pub(crate) fn queue(&self, rank: usize) -> Option<&Queue> {
        self.queues.get(rank)
    }
}

struct Shown {
    ptr: *const u8,
    bytes: usize,
    access: Access,
    sender: usize,
}

// SAFETY: the pointer is read by the one receiver that `Access::take` has admitted, while the
// sender keeps the buffer alive and unwritten (see `Offer`).
unsafe impl Send for Shown {}
// SAFETY: as above; everything else is atomic or never changes.
unsafe impl Sync for Shown {}

/// The sender's side of a buffer handed over for reading.
pub(crate) struct Offer {
    shown: Arc<Shown>,
    to: usize,
    _packed: Option<Vec<u8>>,
}

/// The receiver's side.
pub(crate) struct Handover(Arc<Shown>);

impl Offer {
    /// Offers `bytes` at `ptr` to world rank `to`, on behalf of this end; `packed` is kept as long.
    ///
    /// # Safety
    /// The buffer stays alive and unwritten until [`Offer`] is complete or dropped; it must not
    /// be forgotten before.
    pub(crate) unsafe fn new(
        endpoint: &Endpoint,
        to: usize,
        (ptr, bytes): (*const u8, usize),
        packed: Option<Vec<u8>>,
    ) -> (Offer, Handover) {
        let sender = endpoint.rank;
        let shown = Arc::new(Shown { ptr, bytes, access: Access::new(), sender });
        (Offer { shown: shown.clone(), to, _packed: packed }, Handover(shown))
    }
}

impl Underway for Offer {
    fn complete(&self, waiter: &Waiter<'_>) -> Result<()> {
        waiter.until_by(Some(self.to), || self.shown.access.is_done().then_some(()))
    }
}

impl Drop for Offer {
    /// The buffer is the sender's alone after this. A receiver that is reading is a thread of
    /// this process in the middle of a copy.
    fn drop(&mut self) {
        while !self.shown.access.withdraw() {
            std::thread::yield_now();
        }
    }
}

impl There for Handover {
    unsafe fn fetch(
        self: Box<Self>,
        envelope: &Envelope,
        into: *mut u8,
        waiter: &Waiter<'_>,
    ) -> Result<bool> {
        let shown = &self.0;
        if !shown.access.take() {
            return Ok(false);
        }
        assert_eq!(shown.bytes, envelope.bytes);
        // SAFETY: the target has room for the envelope's bytes, and the sender's buffer, which it
        // keeps alive while the handover is being read, has as many.
        unsafe { copy_from_peer(shown.ptr, into, shown.bytes) };
        shown.access.finish();
        waiter.endpoint.world.bell(shown.sender).ring();
        Ok(true)
    }

    fn refuse(self: Box<Self>, envelope: &Envelope, waiter: &Waiter<'_>) {
        // It is given back by being dropped: before its sender is woken.
        drop(self);
        waiter.endpoint.world.bell(envelope.source as usize).ring();
    }
}

impl Drop for Handover {
    /// A message that nobody will read, because its block has ended, lets its sender go.
    fn drop(&mut self) {
        self.0.access.refuse();
    }
}
