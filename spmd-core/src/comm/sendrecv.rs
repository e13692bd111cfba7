//! Messages to one rank and from another at once (MPI 5.0 section 3.10).

use std::ops::Range;
use std::panic::Location;

use super::communicator::Comm;
use super::messages::{into_place, message_call};
use crate::buffer::{Buffer, BufferMut, StagedView, View, ViewMut, in_one_piece, on_host};
use crate::call::{Call, Form, Kind};
use crate::element::{DType, Element};
use crate::error::{Error, Result};
use crate::rank::{DestOrNone, NO_MESSAGE, SourceOrNone, Status, TagOrAny};
use crate::transport::message::SendMode;

/// Whom a message is for, if there is anybody, and its tag.
type To = (Option<usize>, u32);
/// Whom one may be from, if there is anybody, and its tag.
type From = (Option<Option<usize>>, Option<u32>);

/// A message to one rank and one from another at once (MPI 5.0 section 3.10). `dest` and `source` are
/// ranks or, where there may be no neighbour, `Option`s: nothing is sent to `None`, and nothing
/// received from it.
impl Comm {
    /// Sends `send` to `dest` and receives into `recv` from `source`, at once: a ring of ranks in
    /// which each sends to the next does not block, whatever the sizes (MPI 5.0 section 3.10).
    ///
    /// Where `source` is `None`, `recv` stays as it was, and [`Status::len`] is 0.
    ///
    /// Errors: as [`Comm::send`] and [`Comm::recv`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let from_left = spmd(3, |ctx| {
    ///     let (left, right) = ((ctx.rank() + 2) % 3, (ctx.rank() + 1) % 3);
    ///     let mut halo = [0usize];
    ///     ctx.sendrecv(&[ctx.rank()], right, 0, &mut halo, left, 0)?;
    ///     Ok(halo[0])
    /// })?;
    /// assert_eq!(from_left, [2, 0, 1]);
    ///
    /// // A row of ranks instead: the first has nobody on its left, the last nobody on its right.
    /// let from_left = spmd(3, |ctx| {
    ///     let (left, right) = (ctx.rank().checked_sub(1), ctx.rank() + 1);
    ///     let mut halo = [9usize];
    ///     let right = (right < ctx.size()).then_some(right);
    ///     ctx.sendrecv(&[ctx.rank()], right, 0, &mut halo, left, 0)?;
    ///     Ok(halo[0])
    /// })?;
    /// assert_eq!(from_left, [9, 0, 1]);
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn sendrecv<S: Buffer + ?Sized, R: BufferMut + ?Sized>(
        &self,
        send: &S,
        dest: impl DestOrNone,
        send_tag: u32,
        recv: &mut R,
        source: impl SourceOrNone,
        recv_tag: impl TagOrAny,
    ) -> Result<Status> {
        let (to, from) = ((dest.dest(), send_tag), (source.source_or_none(), recv_tag.tag()));
        self.send_and_receive(send.erased(), to, recv.erased_mut(), from, Location::caller())
    }

    /// [`Comm::sendrecv`] that receives a message of any length, which is empty where `source` is
    /// `None`.
    ///
    /// Errors: as [`Comm::send`] and [`Comm::recv_vec`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let from_left = spmd(3, |ctx| {
    ///     let (left, right) = ((ctx.rank() + 2) % 3, (ctx.rank() + 1) % 3);
    ///     let (got, _status) = ctx.sendrecv_vec(&vec![7; ctx.rank()], right, 0, left, 0)?;
    ///     Ok(got)
    /// })?;
    /// assert_eq!(from_left, [vec![7, 7], vec![], vec![7]]);
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn sendrecv_vec<S: Buffer + ?Sized>(
        &self,
        send: &S,
        dest: impl DestOrNone,
        send_tag: u32,
        source: impl SourceOrNone,
        recv_tag: impl TagOrAny,
    ) -> Result<(Vec<S::Elem>, Status)> {
        let (to, from) = ((dest.dest(), send_tag), (source.source_or_none(), recv_tag.tag()));
        let dtype = &S::Elem::DTYPE;
        let receive = receive_call((dtype, Call::UNEQUAL), from, Location::caller());
        let take = |source| self.receive_vec(&receive, dtype, source, from.1);
        let received = self.send_and_take(send.erased(), to, from.0, receive.site, take)?;
        Ok(received.unwrap_or((Vec::new(), NO_MESSAGE)))
    }

    /// [`Comm::sendrecv`] of one part of `buf` into another: of the elements `send` to `dest`, and
    /// into the elements `recv` from `source`. What overlaps is copied before it is sent, so that
    /// the same range twice replaces what is sent by what comes (`MPI_Sendrecv_replace`). A buffer
    /// with gaps is copied as a whole.
    ///
    /// Errors: as [`Comm::sendrecv`]; a range is not within `buf`.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// // One cell of halo in front, from the left neighbour's last one.
    /// let rows = spmd(3, |ctx| {
    ///     let (left, right) = ((ctx.rank() + 2) % 3, (ctx.rank() + 1) % 3);
    ///     let mut row = [0, 10 * ctx.rank(), 10 * ctx.rank() + 1];
    ///     ctx.sendrecv_within(&mut row, 2..3, right, 0, 0..1, left, 0)?;
    ///     Ok(row)
    /// })?;
    /// assert_eq!(rows, [[21, 0, 1], [1, 10, 11], [11, 20, 21]]);
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    #[expect(clippy::too_many_arguments, reason = "a send and a receive, as in MPI")]
    pub fn sendrecv_within<B: BufferMut + ?Sized>(
        &self,
        buf: &mut B,
        send: Range<usize>,
        dest: impl DestOrNone,
        send_tag: u32,
        recv: Range<usize>,
        source: impl SourceOrNone,
        recv_tag: impl TagOrAny,
    ) -> Result<Status> {
        let (to, from) = ((dest.dest(), send_tag), (source.source_or_none(), recv_tag.tag()));
        self.send_and_receive_within(buf.erased_mut(), (send, to), (recv, from), Location::caller())
    }

    fn send_and_receive_within(
        &self,
        buf: ViewMut<'_>,
        (send, to): (Range<usize>, To),
        (recv, from): (Range<usize>, From),
        site: &'static Location<'static>,
    ) -> Result<Status> {
        let wrong = |range: &&Range<usize>| range.start > range.end || range.end > buf.len();
        if let Some(range) = [&send, &recv].into_iter().find(wrong) {
            let why = format!("{range:?} is no range of the {} elements of `buf`", buf.len());
            return Err(Error::misuse("sendrecv_within", site, why));
        }
        in_one_piece(buf, |mut buf| {
            if let Some((sent, room)) = buf.apart(send.clone(), recv.clone()) {
                return self.send_and_receive(sent, to, room, from, site);
            }
            let receive = receive_call((buf.dtype(), recv.len()), from, site);
            let unknown = || Error::out_of_reach(&receive, &[]);
            let copy = StagedView::copy_of(&buf.as_view().range(send), &unknown)?;
            self.send_and_receive(copy.erased(), to, buf.range(recv), from, site)
        })
    }

    fn send_and_receive(
        &self,
        send: View<'_>,
        to: To,
        room: ViewMut<'_>,
        from: From,
        site: &'static Location<'static>,
    ) -> Result<Status> {
        let receive = receive_call((room.dtype(), room.len()), from, site);
        into_place(&receive, room, |room| {
            let take = |source| self.receive(&receive, room, source, from.1);
            let status = self.send_and_take(send, to, from.0, site, take)?;
            Ok(status.unwrap_or(NO_MESSAGE))
        })
    }

    /// Sends `send` to a rank, if there is one, and has a message taken meanwhile, if there is a
    /// source.
    fn send_and_take<R>(
        &self,
        send: View<'_>,
        (dest, tag): To,
        source: Option<Option<usize>>,
        site: &'static Location<'static>,
        take: impl FnOnce(Option<usize>) -> Result<R>,
    ) -> Result<Option<R>> {
        let call = message_call(Kind::Send, send.dtype(), send.len(), dest, Some(tag), site);
        let call = call.form(Form::Sendrecv);
        let mut stage = None;
        let send = on_host(send, &mut stage, &|| Error::out_of_reach(&call, &[]))?;
        self.carried(&call, || {
            let waiter = self.waiter(&call)?;
            let pending = dest.map(|dest| {
                self.check_rank(&call, "destination", dest)?;
                self.post(&send, send.dtype(), dest, tag, SendMode::Detached, &waiter)
            });
            let pending = pending.transpose()?;
            let received = source.map(take).transpose();
            // Whatever became of the receive, the message is on its way, and its receiver counts
            // on it.
            let sent = pending.map_or(Ok(()), |pending| self.complete(pending, &waiter));
            let received = received?;
            sent?;
            Ok(received)
        })
    }
}

/// What is received.
fn receive_call(
    (dtype, len): (&'static DType, usize),
    (source, tag): From,
    site: &'static Location<'static>,
) -> Call<'static> {
    message_call(Kind::Recv, dtype, len, source.flatten(), tag, site).form(Form::Sendrecv)
}
