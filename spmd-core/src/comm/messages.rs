//! Messages from one rank to another.

use std::panic::Location;

use super::Comm;
use crate::buffer::{Buffer, BufferMut, View};
use crate::call::{Call, Kind};
use crate::element::{DType, Element};
use crate::error::{Error, Result};
use crate::rank::{Source, Status, TagOrAny};
use crate::transport::shared::agents::Waiter;
use crate::transport::shared::inbox::{Arrived, Envelope, Wanted};
use crate::transport::shared::post::{Manner, Pending};

/// Messages between two ranks (MPI 5.0 chapter 3). Messages from one rank to another with
/// matching tags are received in the order in which they were sent.
impl Comm {
    /// Sends `buf` to `dest`. A small message is gone when this returns; a large one has been
    /// received, or is being received, by then: two ranks that send each other large messages
    /// before they receive wait for each other (use [`Comm::sendrecv`]).
    ///
    /// Errors: `dest` out of range; the receiver has failed or left.
    #[track_caller]
    pub fn send<B: Buffer + ?Sized>(&self, buf: &B, dest: usize, tag: u32) -> Result<()> {
        self.send_call(Kind::Send, Manner::Standard, buf.view(), dest, tag, Location::caller())
    }

    /// Sends `buf` to `dest` and returns when the receiver has taken it, however small it is.
    ///
    /// Errors: as [`Comm::send`].
    #[track_caller]
    pub fn ssend<B: Buffer + ?Sized>(&self, buf: &B, dest: usize, tag: u32) -> Result<()> {
        self.send_call(Kind::Ssend, Manner::Synchronous, buf.view(), dest, tag, Location::caller())
    }

    fn send_call(
        &self,
        kind: Kind,
        manner: Manner,
        view: View<'_>,
        dest: usize,
        tag: u32,
        site: &'static Location<'static>,
    ) -> Result<()> {
        let call = message_call(kind, view.dtype(), view.len(), Some(dest), Some(tag), site);
        let waiter = self.waiter(&call)?;
        self.check_rank(&call, "destination", dest)?;
        let pending = self.post(&view, dest, tag, manner, &waiter)?;
        self.complete(pending, &waiter)
    }

    fn waiter<'a>(&'a self, call: &'a Call<'a>) -> Result<Waiter<'a>> {
        self.refuse_reentry(call)?;
        let waiter = Waiter::new(&self.endpoint, &self.scope, call, self.note(call));
        match waiter.stopped() {
            Some(error) => Err(error),
            None => Ok(waiter),
        }
    }

    fn post<'a>(
        &'a self,
        view: &View<'_>,
        dest: usize,
        tag: u32,
        manner: Manner,
        waiter: &Waiter<'_>,
    ) -> Result<Pending<'a>> {
        let dtype = view.dtype();
        let envelope = Envelope {
            context: self.scope.context,
            source: self.endpoint.rank as u32,
            tag,
            count: view.len() as u64,
            bytes: view.bytes(),
            dtype: dtype.id,
            dtype_text: waiter.noted.dtype,
            file: waiter.noted.file,
            line: waiter.call.site.line(),
        };
        let to = self.scope.group.world(dest);
        // SAFETY: callers complete what this gives before they return, or drop it, which takes
        // the buffer back; they hold the buffer's borrow all that time.
        unsafe { self.endpoint.post(to, envelope, view, manner, waiter) }
    }

    /// An error here gives the buffer back before it is returned: dropping `pending` does.
    fn complete(&self, pending: Pending<'_>, waiter: &Waiter<'_>) -> Result<()> {
        let result = pending.complete(waiter);
        if let Err(Error::Timeout { .. }) = &result {
            waiter.give_up(result.as_ref().unwrap_err());
        }
        result
    }

    /// Receives a message into `buf`, which may be longer than it: the first [`Status::len`]
    /// elements are overwritten. `source` is a rank or [`crate::ANY`], `tag` a number or
    /// [`crate::ANY`].
    ///
    /// Errors: `source` out of range; the message is longer than `buf` or of another element
    /// type (it is consumed, `buf` stays as it was); a rank that it could come from has failed,
    /// or all have left.
    #[track_caller]
    pub fn recv<B: BufferMut + ?Sized>(
        &self,
        buf: &mut B,
        source: impl Source,
        tag: impl TagOrAny,
    ) -> Result<Status> {
        let (source, tag) = (source.source(), tag.tag());
        let mut view = buf.view_mut();
        let (dtype, len) = (view.dtype(), view.len());
        let call = message_call(Kind::Recv, dtype, len, source, tag, Location::caller());
        let waiter = self.waiter(&call)?;
        let arrived = self.await_message(&call, source, tag, &waiter)?;
        let status = self.status(&arrived.envelope);
        if let Err(error) = self.check_message(&arrived, dtype, Some(len), &call, &waiter) {
            self.endpoint.refuse(arrived);
            return Err(error);
        }
        match view.contiguous_mut().filter(|_| !self.endpoint.must_check(dtype)) {
            // SAFETY: the buffer has room for the message, which is not longer, and whose bytes
            // are values of its element type: the types are the same, and all bytes are values.
            Some(ptr) => unsafe { self.endpoint.fetch(arrived, ptr, &waiter)? },
            None => {
                let bytes = self.fetch_bytes(arrived, dtype, &waiter)?;
                // SAFETY: `bytes` holds `status.len` values of the buffer's element type.
                unsafe { view.unpack_range(0, status.len, bytes.as_ptr()) };
            }
        }
        Ok(status)
    }

    /// Receives a message of any length.
    ///
    /// Errors: as [`Comm::recv`], but for the length.
    #[track_caller]
    pub fn recv_vec<T: Element>(
        &self,
        source: impl Source,
        tag: impl TagOrAny,
    ) -> Result<(Vec<T>, Status)> {
        let (source, tag) = (source.source(), tag.tag());
        let dtype = T::DTYPE;
        let call = message_call(Kind::Recv, dtype, Call::UNEQUAL, source, tag, Location::caller());
        let waiter = self.waiter(&call)?;
        let arrived = self.await_message(&call, source, tag, &waiter)?;
        let status = self.status(&arrived.envelope);
        let mut values = Vec::<T>::new();
        let checked = self.check_message(&arrived, dtype, None, &call, &waiter);
        // The length is the sender's word.
        let room = checked.and_then(|()| reserve(&mut values, status.len, &call));
        if let Err(error) = room {
            self.endpoint.refuse(arrived);
            return Err(error);
        }
        if self.endpoint.must_check(dtype) {
            let bytes = self.fetch_bytes(arrived, dtype, &waiter)?;
            // SAFETY: the vector has room for the message, whose bytes were checked to be values.
            unsafe {
                let into = values.as_mut_ptr().cast();
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), into, bytes.len());
                values.set_len(status.len);
            }
        } else {
            // SAFETY: the vector has room for the message, all bytes of which are values.
            unsafe {
                self.endpoint.fetch(arrived, values.as_mut_ptr().cast(), &waiter)?;
                values.set_len(status.len);
            }
        }
        Ok((values, status))
    }

    /// Sends `send` to `dest` and receives into `recv` from `source`, at once: a ring of ranks in
    /// which each sends to the next does not block, whatever the sizes.
    ///
    /// Errors: as [`Comm::send`] and [`Comm::recv`].
    #[track_caller]
    pub fn sendrecv<S: Buffer + ?Sized, R: BufferMut + ?Sized>(
        &self,
        send: &S,
        dest: usize,
        send_tag: u32,
        recv: &mut R,
        source: impl Source,
        recv_tag: impl TagOrAny,
    ) -> Result<Status> {
        let view = send.view();
        let site = Location::caller();
        let call =
            message_call(Kind::Send, view.dtype(), view.len(), Some(dest), Some(send_tag), site);
        let waiter = self.waiter(&call)?;
        self.check_rank(&call, "destination", dest)?;
        let pending = self.post(&view, dest, send_tag, Manner::Detached, &waiter)?;
        let received = self.recv(recv, source, recv_tag);
        // Whatever became of the receive, the message is on its way, and its receiver counts on it.
        let sent = self.complete(pending, &waiter);
        let status = received?;
        sent?;
        Ok(status)
    }

    /// Waits for a message that fits and tells what it is, without receiving it.
    ///
    /// Errors: as [`Comm::recv`], but for length and type.
    #[track_caller]
    pub fn probe(&self, source: impl Source, tag: impl TagOrAny) -> Result<Status> {
        let (source, tag) = (source.source(), tag.tag());
        let mut call = Call::new(Kind::Probe, Location::caller());
        (call.root, call.tag) = (source, tag);
        let waiter = self.waiter(&call)?;
        let wanted = self.wanted(&call, source, tag)?;
        let on = wanted.source;
        let envelope = waiter.until_by(on, || self.endpoint.peek(&wanted).transpose())??;
        Ok(self.status(&envelope))
    }

    /// Tells what the next message that fits is, if one has come; does not wait.
    ///
    /// Errors: as [`Comm::probe`].
    #[track_caller]
    pub fn iprobe(&self, source: impl Source, tag: impl TagOrAny) -> Result<Option<Status>> {
        let (source, tag) = (source.source(), tag.tag());
        let mut call = Call::new(Kind::Probe, Location::caller());
        (call.root, call.tag) = (source, tag);
        self.waiter(&call)?;
        let wanted = self.wanted(&call, source, tag)?;
        let found = self.endpoint.peek(&wanted)?;
        if found.is_none() {
            crate::wait::relax();
        }
        Ok(found.map(|envelope| self.status(&envelope)))
    }

    fn wanted(&self, call: &Call<'_>, source: Option<usize>, tag: Option<u32>) -> Result<Wanted> {
        if let Some(source) = source {
            self.check_rank(call, "source", source)?;
        }
        let source = source.map(|source| self.scope.group.world(source));
        Ok(Wanted { context: self.scope.context, source, tag })
    }

    fn await_message(
        &self,
        call: &Call<'_>,
        source: Option<usize>,
        tag: Option<u32>,
        waiter: &Waiter<'_>,
    ) -> Result<Arrived> {
        let wanted = self.wanted(call, source, tag)?;
        waiter.until_by(wanted.source, || self.endpoint.take(&wanted).transpose())?
    }

    fn status(&self, envelope: &Envelope) -> Status {
        let source = self.scope.group.local(envelope.source as usize).unwrap_or(usize::MAX);
        Status { source, tag: envelope.tag, len: envelope.count as usize }
    }

    /// Whether the message can go into a buffer of this type and length.
    fn check_message(
        &self,
        arrived: &Arrived,
        dtype: DType,
        capacity: Option<usize>,
        call: &Call<'_>,
        waiter: &Waiter<'_>,
    ) -> Result<()> {
        let envelope = &arrived.envelope;
        let world = envelope.source as usize;
        let (from, tag, len) =
            (self.status(envelope).source, envelope.tag, envelope.count as usize);
        let table = self.endpoint.world.memory.text(world);
        let sent_at = || format!("{}:{}", table.get(envelope.file), envelope.line);
        if envelope.dtype != dtype.id {
            return Err(Error::ElementType {
                call: call.to_string(),
                from,
                tag,
                sent: table.get(envelope.dtype_text),
                expected: dtype.to_string(),
                sent_at: sent_at(),
            });
        }
        if len.checked_mul(dtype.size as usize) != Some(envelope.bytes) {
            let error =
                Error::Corrupt { rank: world, what: "a message's length is not its data's" };
            return Err(waiter.stopped().unwrap_or(error));
        }
        match capacity {
            Some(capacity) if len > capacity => Err(Error::Truncated {
                call: call.to_string(),
                from,
                tag,
                len,
                capacity,
                sent_at: sent_at(),
            }),
            _ => Ok(()),
        }
    }

    /// The data of a message, checked to be values of its type.
    fn fetch_bytes(&self, arrived: Arrived, dtype: DType, waiter: &Waiter<'_>) -> Result<Vec<u8>> {
        let (source, count) = (arrived.envelope.source, arrived.envelope.count);
        let mut bytes = Vec::new();
        if let Err(error) = reserve(&mut bytes, arrived.envelope.bytes, waiter.call) {
            self.endpoint.refuse(arrived);
            return Err(error);
        }
        bytes.resize(arrived.envelope.bytes, 0u8);
        // SAFETY: the vector has room for the message, and any bytes are bytes.
        unsafe { self.endpoint.fetch(arrived, bytes.as_mut_ptr(), waiter)? };
        // SAFETY: `bytes` holds `count` elements' worth of bytes, as `check_message` has seen.
        if unsafe { !dtype.all_valid(bytes.as_ptr(), count as usize) } {
            let what = "a message holds bytes that are no values of its type";
            return Err(Error::Corrupt { rank: source as usize, what });
        }
        Ok(bytes)
    }
}

/// Makes room for `len` values; that there is no memory for them is an error, as it may be another
/// process that asks for so many.
fn reserve<T>(values: &mut Vec<T>, len: usize, call: &Call<'_>) -> Result<()> {
    values.try_reserve_exact(len).map_err(|error| Error::Unavailable {
        what: format!("memory for a message of {len} elements"),
        reason: format!("{call}: {error}"),
        remedy: "send less at once".into(),
    })
}

fn message_call(
    kind: Kind,
    dtype: DType,
    count: usize,
    peer: Option<usize>,
    tag: Option<u32>,
    site: &'static Location<'static>,
) -> Call<'static> {
    let mut call = Call::new(kind, site).data(dtype, count);
    (call.root, call.tag) = (peer, tag);
    call
}
