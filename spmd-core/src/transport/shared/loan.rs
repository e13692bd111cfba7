//! A buffer that a rank hands over for reading to another one of the same address space.

use std::sync::Arc;

use super::access::Access;
use super::endpoint::Endpoint;
use super::waiter::Waiter;
use super::world::World;
use crate::copy::copy_from_peer;
use crate::error::Result;
use crate::transport::message::Envelope;
use crate::transport::pending::SenderSide;

struct LoanState {
    ptr: *const u8,
    bytes: usize,
    access: Access,
    sender: usize,
}

// SAFETY: the pointer is read by the one receiver that `Access::take` has admitted, while the
// sender keeps the buffer alive and unwritten (see `BufferLoan`).
unsafe impl Send for LoanState {}
// SAFETY: as above; everything else is atomic or never changes.
unsafe impl Sync for LoanState {}

/// The sender's side of a buffer handed over for reading.
pub(crate) struct BufferLoan {
    shown: Arc<LoanState>,
    to: usize,
    _packed: Option<Vec<u8>>,
}

/// The receiver's side.
pub(crate) struct BufferBorrow(Arc<LoanState>);

impl BufferLoan {
    /// Offers `bytes` at `ptr` to world rank `to`, on behalf of this end; `packed` is kept as long.
    ///
    /// # Safety
    /// The buffer stays alive and unwritten until [`BufferLoan`] is complete or dropped; it must
    /// not be forgotten before.
    pub(crate) unsafe fn new(
        endpoint: &Endpoint,
        to: usize,
        (ptr, bytes): (*const u8, usize),
        packed: Option<Vec<u8>>,
    ) -> (BufferLoan, BufferBorrow) {
        let sender = endpoint.rank;
        let shown = Arc::new(LoanState { ptr, bytes, access: Access::new(), sender });
        (BufferLoan { shown: shown.clone(), to, _packed: packed }, BufferBorrow(shown))
    }
}

impl SenderSide for BufferLoan {
    fn complete(&self, waiter: &Waiter<'_>) -> Result<()> {
        waiter.until_by(Some(self.to), || self.shown.access.is_done().then_some(()))
    }
}

impl Drop for BufferLoan {
    /// The buffer is the sender's alone after this. A receiver that is reading is a thread of
    /// this process in the middle of a copy.
    fn drop(&mut self) {
        while !self.shown.access.withdraw() {
            std::thread::yield_now();
        }
    }
}

impl BufferBorrow {
    /// Takes the data to `into`, and tells the sender; false if it has withdrawn them.
    ///
    /// # Safety
    /// `into` is valid for writes of the envelope's bytes.
    pub(super) unsafe fn fetch(self, envelope: &Envelope, into: *mut u8, world: &World) -> bool {
        let shown = &self.0;
        if !shown.access.take() {
            return false;
        }
        assert_eq!(shown.bytes, envelope.bytes);
        // SAFETY: the target has room for the envelope's bytes, and the sender's buffer, which it
        // keeps alive while the handover is being read, has as many.
        unsafe { copy_from_peer(shown.ptr, into, shown.bytes) };
        shown.access.finish();
        world.bell(shown.sender).ring();
        true
    }

    /// Tells the sender that they will not be taken.
    pub(super) fn refuse(self, envelope: &Envelope, world: &World) {
        // It is given back by being dropped: before its sender is woken.
        drop(self);
        world.bell(envelope.source as usize).ring();
    }
}

impl Drop for BufferBorrow {
    /// A message that nobody will read, because its block has ended, lets its sender go.
    fn drop(&mut self) {
        self.0.access.refuse();
    }
}
