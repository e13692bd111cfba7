//! Sending: a small message is put into the receiver's queue or ring, a large one is offered, or
//! goes by a rendezvous (`rendezvous.rs`).

use std::any::Any;
use std::sync::Arc;

use parking_lot::MutexGuard;

use super::endpoint::Endpoint;
use super::loan::{BufferBorrow, BufferLoan};
use super::posted::Arrivals;
use super::ring::{EAGER, Header, RendezvousReceive, RingWriter};
use super::unexpected::Arrived;
use super::waiter::Waiter;
use crate::algorithm::Algorithm;
use crate::buffer::View;
use crate::call::Call;
use crate::element::DType;
use crate::error::{Error, Result};
use crate::transport::Transport;
use crate::transport::message::{Data, Envelope, MatchPattern, SendMode, UnexpectedMessage};
use crate::transport::pending::PendingSend;
use crate::wait;

impl Transport for Endpoint {
    unsafe fn post<'a>(
        &'a self,
        to: usize,
        envelope: Envelope,
        data: &View<'_>,
        mode: SendMode,
        waiter: &Waiter<'_>,
    ) -> Result<PendingSend<'a>> {
        let eager = envelope.bytes <= EAGER && mode != SendMode::Synchronous;
        if eager && self.send_at_once(to, &envelope, data)? {
            return Ok(PendingSend::Done);
        }
        if let Some(queue) = self.world.queue(to) {
            if eager {
                waiter.beyond_window();
            }
            let packed = packed_if_apart(data)?;
            let ptr = packed.as_ref().map_or_else(
                || data.contiguous().expect("not packed because contiguous"),
                |packed| packed.as_ptr(),
            );
            // SAFETY: `ptr` leads to the viewed buffer, which the caller keeps, or to
            // `packed`, which the offer keeps; dropping the offer withdraws it.
            let (loan, handover) =
                unsafe { BufferLoan::new(self, to, (ptr, envelope.bytes), packed) };
            queue.push(UnexpectedMessage::new(envelope, Data::There(Box::new(handover))));
            self.world.bell(to).ring();
            return Ok(PendingSend::SenderSide(Box::new(loan)));
        }
        if eager {
            let sent = waiter.until_by(Some(to), || {
                self.with_ring(to, |ring| self.write_eager(ring, to, &envelope, data)).transpose()
            })??;
            if sent {
                return Ok(PendingSend::Done);
            }
            waiter.beyond_window();
        }
        let pending = self.send_by_rendezvous(to, envelope, data, mode, waiter)?;
        Ok(PendingSend::SenderSide(Box::new(pending)))
    }

    fn needs_sender(&self, _: usize) -> bool {
        !self.world.one_address_space()
    }

    fn take<'a>(&'a self, pattern: &MatchPattern) -> Result<Option<Arrived<'a>>> {
        self.take_message(pattern)
    }

    fn peek(&self, pattern: &MatchPattern) -> Result<Option<Envelope>> {
        self.peek_message(pattern)
    }

    #[inline]
    fn send_at_once(&self, to: usize, envelope: &Envelope, data: &View<'_>) -> Result<bool> {
        match self.world.queue(to) {
            _ if envelope.bytes > EAGER => Ok(false),
            None => {
                let sent = self.with_ring(to, |ring| self.write_eager(ring, to, envelope, data))?;
                Ok(sent == Some(true))
            }
            Some(queue) if queue.is_full() => Ok(false),
            Some(queue) => {
                let data = Data::Here(packed(data)?);
                let lasting = queue.push(UnexpectedMessage::new(*envelope, data));
                self.world.bell(to).ring();
                if lasting {
                    wait::relax();
                }
                Ok(true)
            }
        }
    }

    fn deliver(
        &self,
        arrivals: &Arc<Arrivals>,
        take: &mut dyn FnMut(usize, Arrived<'_>),
    ) -> std::result::Result<(), (Option<usize>, Error)> {
        self.deliver_posted(arrivals, take)
    }

    fn receives(&self, _: &Arrived<'_>) -> Result<()> {
        Ok(())
    }

    unsafe fn fetch(
        &self,
        there: Box<dyn Any + Send>,
        envelope: &Envelope,
        into: *mut u8,
        waiter: &Waiter<'_>,
    ) -> Result<bool> {
        match there.downcast::<BufferBorrow>() {
            // SAFETY: `into` is valid for writes of the envelope's bytes, and nobody else touches
            // these until this returns (contract of `Transport::fetch`): until `fetch` of the
            // handover has.
            Ok(handover) => Ok(unsafe { handover.fetch(envelope, into, &self.world) }),
            // SAFETY: as above.
            Err(there) => unsafe { large(there).fetch(envelope, into, waiter) },
        }
    }

    fn refuse(&self, there: Box<dyn Any + Send>, envelope: &Envelope, waiter: &Waiter<'_>) {
        match there.downcast::<BufferBorrow>() {
            Ok(handover) => handover.refuse(envelope, &self.world),
            Err(there) => large(there).refuse(envelope, waiter),
        }
    }

    fn around(&self, _: &Call<'_>, _: Option<Algorithm>, run: &mut dyn FnMut()) {
        run();
    }
}

/// Data in a rendezvous: what does not lie in a buffer that was handed over.
fn large(there: Box<dyn Any + Send>) -> RendezvousReceive {
    *there.downcast().expect("a transport is given what it has found")
}

impl Endpoint {
    /// Writes a small message into a ring: false if its receiver keeps as much as it may, `None` if
    /// there is no room.
    #[inline]
    fn write_eager(
        &self,
        ring: &mut RingWriter,
        to: usize,
        envelope: &Envelope,
        data: &View<'_>,
    ) -> Result<Option<bool>> {
        if ring.window_is_full(self, to)? {
            return Ok(Some(false));
        }
        // SAFETY: the ring gives room for the envelope's bytes, all the data, in its own block of
        // the arena, where no buffer lies.
        let mut pack = |room: *mut u8| unsafe { data.pack(room) };
        Ok(ring.write(self, to, envelope, None, &mut pack)?.map(|()| true))
    }

    /// Sends a message if it is as the last one in the ring, which has room for it. Whether it has.
    ///
    /// # Safety
    /// `data` are readable, so many bytes, as the envelope says.
    #[inline]
    pub(crate) unsafe fn send_repeat(
        &self,
        to: usize,
        header: &Header,
        data: (*const u8, usize),
    ) -> bool {
        let mut ring = self.rings[to].lock();
        // SAFETY: this function's contract.
        ring.as_mut().is_some_and(|ring| unsafe { ring.write_if_repeat(self, to, header, data) })
    }

    pub(super) fn ring(&self, to: usize) -> Result<MutexGuard<'_, Option<RingWriter>>> {
        let mut ring = self.rings[to].lock();
        if ring.is_none() {
            *ring = Some(RingWriter::new(self, to)?);
        }
        Ok(ring)
    }

    pub(super) fn with_ring<R>(
        &self,
        to: usize,
        f: impl FnOnce(&mut RingWriter) -> Result<R>,
    ) -> Result<R> {
        f(self.ring(to)?.as_mut().expect("made just now"))
    }

    /// Whether data of this type that come from a peer must be looked at first: another process
    /// may write any bytes, and that two types of one program are told apart is a matter of a
    /// hash. Types without invalid values need no look.
    pub(crate) fn must_check(&self, dtype: &DType) -> bool {
        dtype.valid.is_some()
    }
}

/// The data in one piece of their own. That there is no memory for them is an error: a view may
/// repeat its elements, and be larger than any memory.
fn packed(data: &View<'_>) -> Result<Vec<u8>> {
    let mut bytes = Vec::<u8>::new();
    bytes.try_reserve_exact(data.bytes()).map_err(|error| {
        Error::unavailable(
            format!("memory for a copy of {} {}", data.len(), data.dtype()),
            error.to_string(),
            "send less at once".into(),
        )
    })?;
    // SAFETY: the vector has room for all the data, and `pack` writes every byte of it.
    unsafe {
        data.pack(bytes.as_mut_ptr());
        bytes.set_len(data.bytes());
    }
    Ok(bytes)
}

/// A copy of data that do not lie in one piece, in one piece.
///
/// Errors: there is no memory for it.
pub fn packed_if_apart(data: &View<'_>) -> Result<Option<Vec<u8>>> {
    data.contiguous().is_none().then(|| packed(data)).transpose()
}
