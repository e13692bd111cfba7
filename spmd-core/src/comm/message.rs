//! Messages that were matched before they are received.

use std::fmt;
use std::panic::Location;

use super::communicator::Comm;
use super::messages::{into_place, message_call};
use super::request::Request;
use super::request_scope::RequestScope;
use crate::buffer::BufferMut;
use crate::call::{Call, Form, Kind};
use crate::element::Element;
use crate::error::{Error, Result};
use crate::rank::Status;
use crate::transport::message::{Envelope, MatchPattern, UnexpectedMessage};
use crate::transport::shared::Arrived;

/// A message that [`Comm::mprobe`] has set aside for its caller (MPI 5.0 section 3.8.2). What this
/// tells of it is known before anything of it is received.
///
/// Dropped, it is for anybody again, at its place among those that have come, as if it had never
/// been set aside: its sender goes on waiting, if it waits, and at the end of the block it is one
/// that nobody has received.
#[must_use = "dropped, the message is for anybody again"]
pub struct Message<'a> {
    comm: &'a Comm,
    number: u64,
    envelope: Envelope,
}

impl fmt::Debug for Message<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("Message");
        fields.field("status", &self.status()).field("element_type", &self.element_type());
        fields.finish_non_exhaustive()
    }
}

impl Drop for Message<'_> {
    fn drop(&mut self) {
        // One that was received is not there any more.
        self.comm.endpoint.put_back(self.number);
    }
}

impl<'a> Message<'a> {
    pub(super) fn new(comm: &'a Comm, number: u64, envelope: Envelope) -> Message<'a> {
        Message { comm, number, envelope }
    }

    /// Its source, its tag, and its length in elements.
    #[must_use]
    pub fn status(&self) -> Status {
        self.comm.status(&self.envelope)
    }

    /// Whether it is of elements of this type.
    #[must_use]
    pub fn is<T: Element>(&self) -> bool {
        self.envelope.dtype == T::DTYPE.id
    }

    /// The name of its element type, as errors tell it.
    #[must_use]
    pub fn element_type(&self) -> String {
        let texts = self.comm.endpoint.world.memory.text(self.envelope.source as usize);
        texts.get(self.envelope.dtype_text)
    }

    /// Receives it into `buf`, which may be longer than it: the first [`Status::len`] elements are
    /// overwritten (`MPI_Mrecv`).
    ///
    /// Errors: it is longer than `buf` or of another element type (it is consumed, `buf` stays as it
    /// was); a rank has failed; its block has ended.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(1, |ctx| {
    ///     ctx.send(&[1, 2, 3], 0, 0)?;
    ///     let message = ctx.mprobe(0, 0)?;
    ///     let mut room = [9; 5];
    ///     assert_eq!((message.recv(&mut room)?.len(), room), (3, [1, 2, 3, 9, 9]));
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn recv<B: BufferMut + ?Sized>(self, buf: &mut B) -> Result<Status> {
        let view = buf.erased_mut();
        let (status, comm) = (self.status(), self.comm);
        let (source, tag) = (Some(status.source), Some(status.tag));
        let site = Location::caller();
        let call = message_call(Kind::Recv, view.dtype(), view.len(), source, tag, site);
        into_place(&call, view, |view| {
            comm.carried(&call, || {
                let waiter = comm.waiter(&call)?;
                comm.receive_arrived(self.arrived(&call)?, &call, view, &waiter)
            })
        })
    }

    /// Receives it, however long it is.
    ///
    /// Errors: as [`Message::recv`], but for the length; there is no memory for it.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(1, |ctx| {
    ///     ctx.send(&[1.5; 7], 0, 0)?;
    ///     assert_eq!(ctx.mprobe(0, 0)?.recv_vec::<f64>()?.0, [1.5; 7]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn recv_vec<T: Element>(self) -> Result<(Vec<T>, Status)> {
        let (status, comm) = (self.status(), self.comm);
        let (source, tag) = (Some(status.source), Some(status.tag));
        let site = Location::caller();
        let call = message_call(Kind::Recv, &T::DTYPE, Call::UNEQUAL, source, tag, site);
        let call = call.form(Form::Vec);
        let mut values = Vec::new();
        comm.carried(&call, || {
            let waiter = comm.waiter(&call)?;
            let arrived = self.arrived(&call)?;
            comm.receive_into_arrived(arrived, &call, &T::DTYPE, &mut values, &waiter)
        })?;
        Ok((values, status))
    }

    /// Receives it into `buf` while the rank does something else, as [`Comm::irecv`]
    /// (`MPI_Imrecv`).
    ///
    /// Errors: as [`Message::recv`], here or from [`Request::wait`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(1, |ctx| {
    ///     let sent = ctx.isend(vec![1; 10_000], 0, 0)?;
    ///     let request = ctx.mprobe(0, 0)?.irecv(vec![0; 10_000])?;
    ///     let (got, status) = request.wait()?;
    ///     assert_eq!((got, status.len()), (sent.wait()?, 10_000));
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn irecv<B: BufferMut + 'static>(self, buf: B) -> Result<Request<(B, Status)>> {
        let site = Location::caller();
        // SAFETY: what it owns lives as long as anybody wants.
        unsafe { self.comm.start_recv_of(buf, &self, site) }
    }

    pub(super) fn pattern(&self) -> MatchPattern {
        let Envelope { context, source, tag, .. } = self.envelope;
        MatchPattern { context, source: Some(source as usize), tag: Some(tag) }
    }

    /// Takes it out, to be received.
    ///
    /// Errors: it is not there any more.
    pub(super) fn take(&self, call: &Call<'_>) -> Result<UnexpectedMessage> {
        let gone = || Error::argument(format!("{call}: its message has gone with its block"));
        self.comm.endpoint.take_matched(self.number).ok_or_else(gone)
    }

    fn arrived(&self, call: &Call<'_>) -> Result<Arrived<'a>> {
        let arrived = Arrived::from(self.take(call)?);
        self.comm.route.transport.receives(&arrived)?;
        Ok(arrived)
    }
}

impl<'scope> RequestScope<'scope, '_> {
    /// [`Message::irecv`] into what is borrowed.
    ///
    /// Errors: as [`Message::irecv`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(1, |ctx| {
    ///     let (data, mut room) = (vec![1; 10_000], vec![0; 10_000]);
    ///     ctx.requests(|requests| {
    ///         requests.isend(&data, 0, 0)?;
    ///         requests.imrecv(ctx.mprobe(0, 0)?, &mut room).map(drop)
    ///     })?;
    ///     assert_eq!(room, data);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn imrecv<B: BufferMut + 'scope>(
        &self,
        message: Message<'_>,
        buf: B,
    ) -> Result<Request<(B, Status)>> {
        let site = Location::caller();
        // SAFETY: what it borrows lives as long as `'scope`, within which `keep` has it end.
        let received = unsafe { message.comm.start_recv_of(buf, &message, site)? };
        Ok(self.keep(received))
    }
}
