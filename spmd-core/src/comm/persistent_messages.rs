//! Messages as persistent calls: each start is a message that goes on, as a request starts it.

use std::panic::Location;
use std::sync::Arc;

use super::by_host::check_place;
use super::communicator::Comm;
use super::messages::message_call;
use super::outstanding::Outstanding;
use super::persistent::{Lent, Persistent};
use crate::buffer::{Buffer, BufferMut};
use crate::call::{Form, Kind};
use crate::error::Result;
use crate::rank::{Source, TagOrAny};
use crate::transport::shared::Endpoint;

/// Messages that are sent and received again and again with the same buffer (MPI 5.0 section 3.9).
/// They are matched as [`Comm::isend`] and [`Comm::irecv`] are, in the order of their starts, with
/// whatever the other side does: a persistent send may meet a plain receive.
impl Comm {
    /// Makes sending `buf` to `dest` a persistent call: each [`Persistent::start`] is a
    /// [`Comm::isend`] of what the buffer then holds. This rank alone makes it.
    ///
    /// Errors: `dest` out of range; `buf` lies where messages don't reach; a rank has failed. From
    /// its starts and waits as [`Comm::isend`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(2, |ctx| {
    ///     let other = 1 - ctx.rank();
    ///     let mut send = ctx.send_init(vec![0; 3], other, 7)?;
    ///     let mut receive = ctx.recv_init(vec![0; 3], other, 7)?;
    ///     for turn in 0..10 {
    ///         send.get_mut()?.fill(turn);
    ///         send.start()?;
    ///         receive.start()?;
    ///         // Something else meanwhile.
    ///         receive.wait()?;
    ///         send.wait()?;
    ///         assert_eq!(*receive.get()?, [turn; 3]);
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn send_init<B>(&self, buf: B, dest: usize, tag: u32) -> Result<Persistent<B>>
    where
        B: Buffer + 'static,
    {
        self.persistent_send(Kind::Send, buf, (dest, tag), Location::caller())
    }

    /// The same, of which each is over when the receiver has taken the message, however small it is,
    /// as [`Comm::issend`].
    ///
    /// Errors: as [`Comm::send_init`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(2, |ctx| {
    ///     if ctx.rank() == 0 {
    ///         let mut send = ctx.ssend_init([1], 1, 0)?;
    ///         send.start()?;
    ///         return send.wait();
    ///     }
    ///     ctx.recv(&mut [0], 0, 0).map(drop)
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn ssend_init<B>(&self, buf: B, dest: usize, tag: u32) -> Result<Persistent<B>>
    where
        B: Buffer + 'static,
    {
        self.persistent_send(Kind::Ssend, buf, (dest, tag), Location::caller())
    }

    /// Makes receiving a message into `buf`, which may be longer than it, a persistent call: each
    /// [`Persistent::start`] is a [`Comm::irecv`]. What the last one has received tells
    /// [`Persistent::status`]. This rank alone makes it.
    ///
    /// Errors: `source` out of range; `buf` lies where messages don't reach; a rank has failed. From
    /// its starts and waits as [`Comm::irecv`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     if ctx.rank() > 0 {
    ///         return ctx.send(&vec![7u8; ctx.rank()], 0, 0);
    ///     }
    ///     let mut receive = ctx.recv_init([0u8; 10], ANY, 0)?;
    ///     for _ in 1..3 {
    ///         receive.start()?;
    ///         receive.wait()?;
    ///         let status = receive.status().expect("it has received one");
    ///         assert_eq!(status.len(), status.source());
    ///         assert!(receive.get()?[..status.len()].iter().all(|it| *it == 7));
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn recv_init<B>(
        &self,
        mut buf: B,
        source: impl Source,
        tag: impl TagOrAny,
    ) -> Result<Persistent<B>>
    where
        B: BufferMut + 'static,
    {
        let (from, view) = ((source.source(), tag.tag()), buf.erased_mut());
        let (dtype, len) = (view.dtype(), view.len());
        let call = message_call(Kind::Recv, dtype, len, from.0, from.1, Location::caller());
        let call = call.form(Form::Init);
        check_place(&call, view.place())?;
        let entered = self.user.enter(&call)?;
        self.check_stopped(&call).and_then(|()| self.pattern(&call, from.0, from.1))?;
        drop(entered);
        let counted = self.counted();
        let start = move |comm: &Comm, lent: Lent<B>, site| {
            let _ = &counted;
            // SAFETY: what it owns lives as long as anybody wants.
            unsafe { comm.start_recv(Form::Init, (lent, |_, status| Some(status)), from, site) }
        };
        Ok(Persistent::new(Outstanding::of(self)?.comm(self), call, buf, None, start))
    }

    /// What counts as this communicator once that is gone: another thread may go on with the messages
    /// that it has made persistent.
    fn counted(&self) -> Option<Counted> {
        (!self.primary).then(|| {
            self.endpoint.opens_comm();
            Counted(self.endpoint.clone())
        })
    }

    fn persistent_send<B: Buffer + 'static>(
        &self,
        kind: Kind,
        buf: B,
        (dest, tag): (usize, u32),
        site: &'static Location<'static>,
    ) -> Result<Persistent<B>> {
        let view = buf.erased();
        let call = message_call(kind, view.dtype(), view.len(), Some(dest), Some(tag), site);
        let call = call.form(Form::Init);
        check_place(&call, view.place())?;
        let entered = self.user.enter(&call)?;
        self.check_stopped(&call).and_then(|()| self.check_rank(&call, "destination", dest))?;
        drop(entered);
        let counted = self.counted();
        let start = move |comm: &Comm, lent: Lent<B>, site| {
            let _ = &counted;
            // SAFETY: what it owns lives as long as anybody wants.
            unsafe { comm.start_send((kind, Form::Init), (lent, |_| None), (dest, tag), site) }
        };
        Ok(Persistent::new(Outstanding::of(self)?.comm(self), call, buf, None, start))
    }
}

/// A communicator besides the block's own, as far as it is counted.
struct Counted(Arc<Endpoint>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.closes_comm();
    }
}
