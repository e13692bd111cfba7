//! What becomes of a message that has come.

use super::Transport;
use super::message::Data;
use super::shared::waiter::Waiter;
use super::shared::{Arrived, Body};
use crate::copy::copy_bytes;
use crate::error::Result;

impl Arrived<'_> {
    /// Takes the data of a message, which `transport` has found, to `into`.
    ///
    /// # Safety
    /// `into` is valid for writes of the message's bytes, and nobody else touches these until this
    /// returns.
    pub(crate) unsafe fn fetch(
        self,
        into: *mut u8,
        transport: &dyn Transport,
        waiter: &Waiter<'_>,
    ) -> Result<()> {
        let Arrived { envelope, body } = self;
        let taken = match body {
            Body::UnexpectedMessage(Data::Here(data)) => {
                assert_eq!(data.len(), envelope.bytes);
                // SAFETY: the target has room for the envelope's bytes, and the source, a vector
                // of this rank's own, has as many.
                unsafe { copy_bytes(data.as_ptr(), into, data.len()) };
                waiter.endpoint.reuse(data);
                true
            }
            Body::Lent(data) => {
                // SAFETY: `into` is valid for writes of the message's bytes, as many as the
                // envelope says, and nobody else touches these until this returns (this function's
                // contract).
                unsafe { data.copy(into) };
                true
            }
            Body::UnexpectedMessage(Data::There(data)) => {
                // SAFETY: as above.
                unsafe { transport.fetch(data, &envelope, into, waiter)? }
            }
        };
        if taken {
            return Ok(());
        }
        // It was withdrawn: its sender has failed, and says so by a fault.
        waiter.until_by(Some(envelope.source as usize), || None)
    }

    /// Tells the sender of a message that will not be taken that it has been.
    pub(crate) fn refuse(self, transport: &dyn Transport, waiter: &Waiter<'_>) {
        if let Body::UnexpectedMessage(Data::There(data)) = self.body {
            transport.refuse(data, &self.envelope, waiter);
        }
    }
}
