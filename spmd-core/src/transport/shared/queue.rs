//! Mailboxes of ranks that share an address space: one queue a receiver, however many senders.
//!
//! A large message is not copied into the queue: the receiver copies from the sender's buffer,
//! and the sender waits for that (`access.rs`).

use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, unbounded};

use super::World;
use super::access::Access;
use super::inbox::Arrived;

pub(crate) struct Queue {
    sender: Sender<Arrived>,
    receiver: Receiver<Arrived>,
}

impl Queue {
    pub(crate) fn new() -> Queue {
        let (sender, receiver) = unbounded();
        Queue { sender, receiver }
    }

    pub(crate) fn push(&self, message: Arrived) {
        self.sender.send(message).expect("this queue holds both ends of its channel");
    }

    pub(super) fn drain(&self) -> impl Iterator<Item = Arrived> + '_ {
        self.receiver.try_iter()
    }
}

impl World {
    /// A rank's mailbox, where ranks share an address space.
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
pub(crate) struct Offer(Arc<Shown>);

/// The receiver's side.
pub(crate) struct Handover(Arc<Shown>);

impl Offer {
    /// Offers `bytes` at `ptr`, on behalf of world rank `sender`.
    ///
    /// # Safety
    /// The buffer stays alive and unwritten until [`Offer::done`] has given `true`, or the offer
    /// is dropped; it must not be forgotten before.
    pub(crate) unsafe fn new(ptr: *const u8, bytes: usize, sender: usize) -> (Offer, Handover) {
        let shown = Arc::new(Shown { ptr, bytes, access: Access::new(), sender });
        (Offer(shown.clone()), Handover(shown))
    }

    /// Whether the receiver has taken the data.
    pub(crate) fn done(&self) -> bool {
        self.0.access.is_done()
    }
}

impl Drop for Offer {
    /// The buffer is the sender's alone after this. A receiver that is reading is a thread of
    /// this process in the middle of a copy.
    fn drop(&mut self) {
        while !self.0.access.withdraw() {
            std::thread::yield_now();
        }
    }
}

impl Handover {
    /// Gives the data to `read` once, then tells the sender. `None` if the sender has withdrawn
    /// them.
    pub(crate) fn read<R>(
        self,
        world: &World,
        read: impl FnOnce(*const u8, usize) -> R,
    ) -> Option<R> {
        let shown = &self.0;
        if !shown.access.take() {
            return None;
        }
        let result = read(shown.ptr, shown.bytes);
        shown.access.finish();
        world.bell(shown.sender).ring();
        Some(result)
    }
}

impl Drop for Handover {
    /// A message that nobody will read, because its block has ended, lets its sender go.
    fn drop(&mut self) {
        self.0.access.refuse();
    }
}
