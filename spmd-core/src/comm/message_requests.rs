//! Messages as requests.

use std::convert::identity;
use std::panic::Location;

use super::communicator::Comm;
use super::request::Request;
use super::request_scope::RequestScope;
use crate::buffer::{Buffer, BufferMut};
use crate::call::{Form, Kind};
use crate::error::Result;
use crate::rank::{Source, Status, TagOrAny};

const ISEND: (Kind, Form) = (Kind::Send, Form::Isend);
const ISSEND: (Kind, Form) = (Kind::Ssend, Form::Issend);

/// What a receive gives.
pub(super) fn both<B>(buf: B, status: Status) -> (B, Status) {
    (buf, status)
}

/// Messages that go on while their rank does something else (MPI 5.0 section 3.7), which own their
/// buffers. Messages from one rank to another on a communicator are matched in the order in which
/// they were sent, and with receives in the order in which these were made, whether as requests or
/// not.
///
/// Buffers on a device go by way of the host: what is sent is copied there when it is started, for which
/// that waits for the device, and what is received comes to the device before its request is over, in a
/// call of whoever has started that.
impl Comm {
    /// Sends `buf` to `dest`; the request gives it back. A message of up to 8 KiB is gone when this
    /// returns, unless its receiver keeps as many others as it may.
    ///
    /// Errors: as [`Comm::send`], here or from [`Request::wait`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(2, |ctx| {
    ///     let other = 1 - ctx.rank();
    ///     // Both send first, as much as they like.
    ///     let sent = ctx.isend(vec![ctx.rank(); 100_000], other, 0)?;
    ///     let (got, _) = ctx.irecv(vec![9; 100_000], other, 0)?.wait()?;
    ///     assert_eq!(got[0], other);
    ///     sent.wait().map(drop)
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn isend<B: Buffer + 'static>(&self, buf: B, dest: usize, tag: u32) -> Result<Request<B>> {
        // SAFETY: what it owns lives as long as anybody wants.
        unsafe { self.start_send(ISEND, (buf, identity), (dest, tag), Location::caller()) }
    }

    /// The same, which is over when the receiver has taken the message, however small it is.
    ///
    /// Errors: as [`Comm::isend`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(2, |ctx| match ctx.rank() {
    ///     0 => ctx.issend([1], 1, 0)?.wait().map(drop),
    ///     _ => ctx.recv(&mut [0], 0, 0).map(drop),
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn issend<B: Buffer + 'static>(&self, buf: B, dest: usize, tag: u32) -> Result<Request<B>> {
        // SAFETY: what it owns lives as long as anybody wants.
        unsafe { self.start_send(ISSEND, (buf, identity), (dest, tag), Location::caller()) }
    }

    /// Receives a message into `buf`, which may be longer than it; the request gives it back, with
    /// what was received.
    ///
    /// Errors: as [`Comm::recv`], here or from [`Request::wait`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(2, |ctx| {
    ///     let request = ctx.irecv([0; 10], ANY, 7)?;
    ///     ctx.send(&[1, 2, 3], 1 - ctx.rank(), 7)?;
    ///     let (got, status) = request.wait()?;
    ///     assert_eq!(got[..status.len()], [1, 2, 3]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn irecv<B: BufferMut + 'static>(
        &self,
        buf: B,
        source: impl Source,
        tag: impl TagOrAny,
    ) -> Result<Request<(B, Status)>> {
        let from = (source.source(), tag.tag());
        // SAFETY: what it owns lives as long as anybody wants.
        unsafe { self.start_recv(Form::Irecv, (buf, both), from, Location::caller()) }
    }
}

/// The same of what outlives the scope.
impl<'scope> RequestScope<'scope, '_> {
    /// [`Comm::isend`] of what is borrowed.
    ///
    /// Errors: as [`Comm::isend`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(2, |ctx| {
    ///     let (mine, mut theirs) = ([ctx.rank(); 1000], [9; 1000]);
    ///     ctx.requests(|requests| {
    ///         requests.isend(&mine, 1 - ctx.rank(), 0)?;
    ///         requests.irecv(&mut theirs, 1 - ctx.rank(), 0)?;
    ///         Ok(())
    ///     })?;
    ///     assert_eq!(theirs, [1 - ctx.rank(); 1000]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn isend<B: Buffer + 'scope>(&self, buf: B, dest: usize, tag: u32) -> Result<Request<B>> {
        let site = Location::caller();
        // SAFETY: what it borrows lives as long as `'scope`, within which `keep` has it end.
        let sent = unsafe { self.comm().start_send(ISEND, (buf, identity), (dest, tag), site)? };
        Ok(self.keep(sent))
    }

    /// [`Comm::issend`] of what is borrowed.
    ///
    /// Errors: as [`Comm::issend`].
    #[track_caller]
    pub fn issend<B: Buffer + 'scope>(&self, buf: B, dest: usize, tag: u32) -> Result<Request<B>> {
        let site = Location::caller();
        // SAFETY: as for `isend`.
        let sent = unsafe { self.comm().start_send(ISSEND, (buf, identity), (dest, tag), site)? };
        Ok(self.keep(sent))
    }

    /// [`Comm::irecv`] into what is borrowed.
    ///
    /// Errors: as [`Comm::irecv`].
    #[track_caller]
    pub fn irecv<B: BufferMut + 'scope>(
        &self,
        buf: B,
        source: impl Source,
        tag: impl TagOrAny,
    ) -> Result<Request<(B, Status)>> {
        let (from, site) = ((source.source(), tag.tag()), Location::caller());
        // SAFETY: as for `isend`.
        let received = unsafe { self.comm().start_recv(Form::Irecv, (buf, both), from, site)? };
        Ok(self.keep(received))
    }
}
