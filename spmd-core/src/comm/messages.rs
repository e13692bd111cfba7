//! Messages from one rank to another.

use std::panic::Location;

use super::communicator::Comm;
use super::internals::Internals;
use crate::buffer::{Buffer, BufferMut, View, ViewMut, by_host, on_host};
use crate::call::{Call, Form, Kind};
use crate::element::{DType, Element};
use crate::error::{Error, Result};
use crate::rank::{Source, Status, TagOrAny};
use crate::transport::message::{Envelope, SendMode};
use crate::transport::pending::PendingSend;
use crate::transport::shared::EAGER;
use crate::transport::shared::record::Noted;
use crate::transport::shared::waiter::Waiter;

/// Bytes up to which a message on one host is gone when its send returns, whether or not its receiver
/// has come: [`Comm::send`] tells when not. No program that is right needs to know it.
///
/// ```
/// assert_eq!(spmd::EAGER_LIMIT, 8 << 10);
/// ```
pub const EAGER_LIMIT: usize = EAGER;

/// Messages between two ranks (MPI 5.0 chapter 3). Messages from one rank to another with
/// matching tags are received in the order in which they were sent.
impl Comm {
    /// Sends `buf` to `dest` (MPI 5.0 section 3.2). A message of up to 8 KiB is gone when this
    /// returns; a larger one has been received by then: two ranks that send each other large
    /// messages before they receive wait for each other (use [`Comm::sendrecv`]). So has a small
    /// one that finds as many others unreceived as `SPMD_WINDOW` allows (64 MiB).
    ///
    /// Errors: `dest` out of range; a rank has failed; `dest` has left.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(2, |ctx| {
    ///     if ctx.rank() == 0 {
    ///         ctx.send(&[1.5, 2.5], 1, 7)?;
    ///     } else {
    ///         let mut pair = [0.0; 2];
    ///         ctx.recv(&mut pair, 0, 7)?;
    ///         assert_eq!(pair, [1.5, 2.5]);
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn send<B: Buffer + ?Sized>(&self, buf: &B, dest: usize, tag: u32) -> Result<()> {
        let (view, site) = (buf.erased(), Location::caller());
        if self.sends_repeat(&view, (dest, tag), site) {
            return Ok(());
        }
        self.send_call(Kind::Send, SendMode::Standard, view, dest, tag, site)
    }

    /// Sends `buf` to `dest` and returns when the receiver has taken it, however small it is (MPI
    /// 5.0 section 3.4). A program that is right with it does not depend on how much is on the way.
    ///
    /// Errors: as [`Comm::send`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(2, |ctx| match ctx.rank() {
    ///     0 => ctx.ssend(&[1], 1, 0),
    ///     _ => ctx.recv_vec::<i32>(0, 0).map(|_| ()),
    /// })?;
    /// // Both send first: an error that names both lines.
    /// let ended = spmd(2, |ctx| {
    ///     ctx.ssend(&[1], 1 - ctx.rank(), 0)?;
    ///     ctx.recv_vec::<i32>(1 - ctx.rank(), 0)
    /// });
    /// assert!(ended.unwrap_err().to_string().contains("deadlock"));
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn ssend<B: Buffer + ?Sized>(&self, buf: &B, dest: usize, tag: u32) -> Result<()> {
        self.send_call(
            Kind::Ssend,
            SendMode::Synchronous,
            buf.erased(),
            dest,
            tag,
            Location::caller(),
        )
    }

    fn send_call(
        &self,
        kind: Kind,
        mode: SendMode,
        view: View<'_>,
        dest: usize,
        tag: u32,
        site: &'static Location<'static>,
    ) -> Result<()> {
        let call = message_call(kind, view.dtype(), view.len(), Some(dest), Some(tag), site);
        let mut stage = None;
        let view = on_host(view, &mut stage, &|| Error::out_of_reach(&call, &[]))?;
        self.carried(&call, || {
            if self.sends_at_once(&call, &view, (dest, tag), mode)? {
                return Ok(());
            }
            let waiter = self.waiter(&call)?;
            let pending = self.post(&view, view.dtype(), dest, tag, mode, &waiter)?;
            self.complete(pending, &waiter)
        })
    }

    /// Checks a send, and makes it if it need not wait. Whether it has.
    #[inline]
    pub(super) fn sends_at_once(
        &self,
        call: &Call<'_>,
        view: &View<'_>,
        (dest, tag): (usize, u32),
        mode: SendMode,
    ) -> Result<bool> {
        self.check_stopped(call)?;
        self.check_rank(call, "destination", dest)?;
        let to = self.scope.group.world(dest);
        if mode != SendMode::Standard || !self.sends.is_clear(to) {
            return Ok(false);
        }
        let envelope = self.envelope((view, view.dtype()), tag, call.site, self.note(call));
        self.route.transport.send_at_once(to, &envelope, view)
    }

    pub(super) fn post<'a>(
        &'a self,
        view: &View<'_>,
        dtype: &DType,
        dest: usize,
        tag: u32,
        mode: SendMode,
        waiter: &Waiter<'_>,
    ) -> Result<PendingSend<'a>> {
        let envelope = self.envelope((view, dtype), tag, waiter.call.site, waiter.noted);
        let to = self.scope.group.world(dest);
        if !self.sends.are_clear() && !self.beside {
            self.after_earlier_sends(to, waiter)?;
        }
        // SAFETY: callers complete what this gives before they return, or drop it, which takes
        // the buffer back; they hold the buffer's borrow all that time.
        unsafe { self.route.transport.post(to, envelope, view, mode, waiter) }
    }

    /// What a message of this rank says of itself.
    #[inline(always)]
    pub(super) fn envelope(
        &self,
        (view, dtype): (&View<'_>, &DType),
        tag: u32,
        site: &'static Location<'static>,
        noted: Noted,
    ) -> Envelope {
        Envelope {
            context: self.scope.context,
            source: self.endpoint.rank as u32,
            tag,
            count: view.len() as u64,
            bytes: view.bytes(),
            size: dtype.size,
            dtype: dtype.id,
            dtype_text: noted.dtype(),
            file: noted.file(),
            line: site.line(),
        }
    }

    /// An error here gives the buffer back before it is returned: dropping `pending` does.
    pub(super) fn complete(&self, pending: PendingSend<'_>, waiter: &Waiter<'_>) -> Result<()> {
        let result = pending.complete(waiter);
        // Its receiver may wait for what was taken back.
        if let Err(error) = &result {
            waiter.give_up(error);
        }
        result
    }

    /// Receives a message into `buf`, which may be longer than it: the first [`Status::len`]
    /// elements are overwritten (MPI 5.0 section 3.2.4). `source` is a rank or [`ANY`](crate::ANY),
    /// `tag` a number or [`ANY`](crate::ANY).
    ///
    /// Errors: `source` out of range; the message is longer than `buf` or of another element
    /// type (it is consumed, `buf` stays as it was); a rank that it could come from has failed,
    /// or all have left.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     if ctx.rank() != 0 {
    ///         return ctx.send(&vec![1u8; ctx.rank()], 0, 7);
    ///     }
    ///     for _ in 1..ctx.size() {
    ///         let mut buf = [0u8; 10];
    ///         let status = ctx.recv(&mut buf, ANY, 7)?;
    ///         assert_eq!(status.len(), status.source());
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn recv<B: BufferMut + ?Sized>(
        &self,
        buf: &mut B,
        source: impl Source,
        tag: impl TagOrAny,
    ) -> Result<Status> {
        let (source, tag) = (source.source(), tag.tag());
        let mut view = buf.erased_mut();
        if let Some(status) = self.takes_repeat(&mut view, (source, tag)) {
            return Ok(status);
        }
        let (dtype, len) = (view.dtype(), view.len());
        let call = message_call(Kind::Recv, dtype, len, source, tag, Location::caller());
        let take =
            |view: &mut ViewMut<'_>| self.carried(&call, || self.receive(&call, view, source, tag));
        into_place(&call, view, take)
    }

    /// Receives a message of any length.
    ///
    /// Errors: as [`Comm::recv`], but for the length; there is no memory for the message.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(2, |ctx| {
    ///     if ctx.rank() == 0 {
    ///         return ctx.send(&[3.5; 100], 1, 0);
    ///     }
    ///     let (data, status) = ctx.recv_vec::<f64>(0, 0)?;
    ///     assert_eq!((data.len(), status.len()), (100, 100));
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn recv_vec<T: Element>(
        &self,
        source: impl Source,
        tag: impl TagOrAny,
    ) -> Result<(Vec<T>, Status)> {
        let (source, tag) = (source.source(), tag.tag());
        let site = Location::caller();
        let call = message_call(Kind::Recv, &T::DTYPE, Call::UNEQUAL, source, tag, site);
        let call = call.form(Form::Vec);
        self.carried(&call, || self.receive_vec(&call, &T::DTYPE, source, tag))
    }
}

/// Values of any type as bytes, for `spmd-collectives`: the message carries what [`DType::object`]
/// says of the type of the value.
impl Internals<'_> {
    /// [`Comm::send`] of the bytes of an object.
    pub fn send_bytes(self, call: &Call<'_>, bytes: &[u8], dest: usize, tag: u32) -> Result<()> {
        let object = call.dtype.expect("the call is of objects");
        self.0.carried(call, || {
            let waiter = self.0.waiter(call)?;
            self.0.check_rank(call, "destination", dest)?;
            let view = bytes.erased();
            let pending = self.0.post(&view, object, dest, tag, SendMode::Standard, &waiter)?;
            self.0.complete(pending, &waiter)
        })
    }

    /// [`Comm::recv_vec`] of the bytes of an object.
    pub fn recv_bytes(
        self,
        call: &Call<'_>,
        source: Option<usize>,
        tag: Option<u32>,
    ) -> Result<(Vec<u8>, Status)> {
        let object = call.dtype.expect("the call is of objects");
        self.0.carried(call, || self.0.receive_vec(call, object, source, tag))
    }
}

/// Has a message received where a buffer is, on a device by way of the host.
#[inline]
pub(super) fn into_place(
    call: &Call<'_>,
    view: ViewMut<'_>,
    receive: impl FnOnce(&mut ViewMut<'_>) -> Result<Status>,
) -> Result<Status> {
    let unknown = || Error::out_of_reach(call, &[]);
    // SAFETY: a receive without an error has written so many elements.
    unsafe { by_host(view, &unknown, |mut view| receive(&mut view), |status| status.len()) }
}

#[inline]
pub(super) fn message_call(
    kind: Kind,
    dtype: &'static DType,
    count: usize,
    peer: Option<usize>,
    tag: Option<u32>,
    site: &'static Location<'static>,
) -> Call<'static> {
    Call::new(kind, site).data(dtype, count).message(peer, tag)
}
