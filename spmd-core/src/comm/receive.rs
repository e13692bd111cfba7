//! Receiving: what happens to a message between its arrival and the buffer.

use super::communicator::Comm;
use crate::buffer::ViewMut;
use crate::call::Call;
use crate::copy::copy_bytes;
use crate::element::{DType, Element};
use crate::error::{ElementType, Error, Result, Truncated};
use crate::rank::Status;
use crate::transport::message::{Envelope, MatchPattern};
use crate::transport::shared::layout::Agent;
use crate::transport::shared::waiter::Waiter;
use crate::transport::shared::{Arrived, Body};

impl Comm {
    /// Receives a message into `view`.
    pub(super) fn receive(
        &self,
        call: &Call<'_>,
        view: &mut ViewMut<'_>,
        source: Option<usize>,
        tag: Option<u32>,
    ) -> Result<Status> {
        self.check_stopped(call)?;
        let pattern = self.pattern(call, source, tag)?;
        // Most that is received in a row has come: no wait, and no more moves of what it finds.
        let come = self.route.transport.take(&pattern)?;
        if let Some(arrived) = &come
            && let Some(status) = self.receive_as_it_is(arrived, view)
        {
            return Ok(status);
        }
        let waiter = self.waiter(call)?;
        let arrived = match come {
            Some(arrived) => arrived,
            None => self.await_message(&pattern, &waiter)?,
        };
        self.receive_arrived(arrived, call, view, &waiter)
    }

    /// Receives a message that lies where it came, if all is right with it, and all bytes are values.
    #[inline]
    pub(super) fn receive_as_it_is(
        &self,
        arrived: &Arrived<'_>,
        view: &mut ViewMut<'_>,
    ) -> Option<Status> {
        let (Body::Lent(data), envelope) = (&arrived.body, &arrived.envelope) else { return None };
        let (dtype, len) = (view.dtype(), envelope.count as usize);
        let right = envelope.dtype == dtype.id
            && len <= view.len()
            && len * dtype.size as usize == envelope.bytes
            && !self.endpoint.must_check(dtype);
        let into = view.contiguous_mut().filter(|_| right)?;
        // SAFETY: the buffer has room for the message, which is not longer, and whose bytes are values
        // of its element type: the types are the same, and all bytes are values.
        unsafe { data.copy(into) };
        Some(self.status(envelope))
    }

    /// Receives a message that has come.
    pub(super) fn receive_arrived(
        &self,
        arrived: Arrived<'_>,
        call: &Call<'_>,
        view: &mut ViewMut<'_>,
        waiter: &Waiter<'_>,
    ) -> Result<Status> {
        let (dtype, len) = (view.dtype(), view.len());
        let status = self.status(&arrived.envelope);
        if let Err(error) = self.check_message(&arrived, dtype, Some(len), call, waiter) {
            arrived.refuse(&*self.route.transport, waiter);
            return Err(error);
        }
        match view.contiguous_mut().filter(|_| !self.endpoint.must_check(dtype)) {
            // SAFETY: the buffer has room for the message, which is not longer, and whose bytes
            // are values of its element type: the types are the same, and all bytes are values.
            Some(ptr) => unsafe { arrived.fetch(ptr, &*self.route.transport, waiter)? },
            None => {
                let bytes = self.fetch_bytes(arrived, dtype, waiter)?;
                // SAFETY: `bytes` holds `status.len` values of the buffer's element type.
                unsafe { view.unpack_range(0, status.len, bytes.as_ptr()) };
            }
        }
        Ok(status)
    }

    /// Receives a message of any length, of `T`s that were sent as this type, which has the same
    /// size and values.
    pub(super) fn receive_vec<T: Element>(
        &self,
        call: &Call<'_>,
        dtype: &DType,
        source: Option<usize>,
        tag: Option<u32>,
    ) -> Result<(Vec<T>, Status)> {
        let mut values = Vec::new();
        let status = self.receive_into(call, dtype, &mut values, source, tag)?;
        Ok((values, status))
    }

    /// The same in a vector that there is, as all that is in it.
    pub(super) fn receive_into<T: Element>(
        &self,
        call: &Call<'_>,
        dtype: &DType,
        values: &mut Vec<T>,
        source: Option<usize>,
        tag: Option<u32>,
    ) -> Result<Status> {
        assert!(dtype.size == T::DTYPE.size && dtype.valid.is_some() == T::DTYPE.valid.is_some());
        let waiter = self.waiter(call)?;
        let pattern = self.pattern(call, source, tag)?;
        let arrived = match self.route.transport.take(&pattern)? {
            Some(arrived) => arrived,
            None => self.await_message(&pattern, &waiter)?,
        };
        self.receive_into_arrived(arrived, call, dtype, values, &waiter)
    }

    /// [`Comm::receive_into`] of a message that has come.
    pub(super) fn receive_into_arrived<T: Element>(
        &self,
        arrived: Arrived<'_>,
        call: &Call<'_>,
        dtype: &DType,
        values: &mut Vec<T>,
        waiter: &Waiter<'_>,
    ) -> Result<Status> {
        let status = self.status(&arrived.envelope);
        let checked = self.check_message(&arrived, dtype, None, call, waiter);
        // The length is the sender's word.
        let room = checked.and_then(|()| {
            values.clear();
            reserve(values, status.len, call)
        });
        if let Err(error) = room {
            arrived.refuse(&*self.route.transport, waiter);
            return Err(error);
        }
        if self.endpoint.must_check(&T::DTYPE) {
            let bytes = self.fetch_bytes(arrived, &T::DTYPE, waiter)?;
            // SAFETY: the vector has room for the message, whose bytes were checked to be values.
            unsafe {
                let into = values.as_mut_ptr().cast();
                copy_bytes(bytes.as_ptr(), into, bytes.len());
                values.set_len(status.len);
            }
        } else {
            // SAFETY: the vector has room for the message, all bytes of which are values.
            unsafe {
                arrived.fetch(values.as_mut_ptr().cast(), &*self.route.transport, waiter)?;
                values.set_len(status.len);
            }
        }
        Ok(status)
    }

    /// What a call of messages waits with, unless its communicator has been stopped.
    #[inline]
    pub(super) fn waiter<'a>(&'a self, call: &'a Call<'a>) -> Result<Waiter<'a>> {
        let waiter = Waiter::new(&self.endpoint, &self.scope, call, self.note(call)).polled();
        let waiter = if self.beside { waiter.off_record() } else { waiter };
        match waiter.stopped() {
            Some(error) => Err(error),
            None => Ok(waiter),
        }
    }

    /// An error if the communicator has been stopped, for a call that does not wait.
    #[inline]
    pub(super) fn check_stopped(&self, call: &Call<'_>) -> Result<()> {
        if self.endpoint.world.faults_seen() == self.scope.faults_seen.get() {
            return Ok(());
        }
        self.waiter(call).map(drop)
    }

    pub(super) fn pattern(
        &self,
        call: &Call<'_>,
        source: Option<usize>,
        tag: Option<u32>,
    ) -> Result<MatchPattern> {
        if let Some(source) = source {
            self.check_rank(call, "source", source)?;
        }
        let source = source.map(|source| self.scope.group.world(source));
        Ok(MatchPattern { context: self.scope.context, source, tag })
    }

    fn await_message(&self, pattern: &MatchPattern, waiter: &Waiter<'_>) -> Result<Arrived<'_>> {
        waiter.ended_by(Agent::MESSAGE);
        waiter.until_by(pattern.source, || self.route.transport.take(pattern).transpose())?
    }

    pub(super) fn status(&self, envelope: &Envelope) -> Status {
        let source = self.scope.group.local(envelope.source as usize).unwrap_or(usize::MAX);
        Status { source, tag: envelope.tag, len: envelope.count as usize }
    }

    /// Whether the message can go into a buffer of this type and length.
    fn check_message(
        &self,
        arrived: &Arrived<'_>,
        dtype: &DType,
        capacity: Option<usize>,
        call: &Call<'_>,
        waiter: &Waiter<'_>,
    ) -> Result<()> {
        let envelope = &arrived.envelope;
        let world = envelope.source as usize;
        let from = || self.status(envelope).source;
        let (tag, len) = (envelope.tag, envelope.count as usize);
        let text = |number| self.endpoint.world.memory.text(world).get(number);
        let sent_at = || format!("{}:{}", text(envelope.file), envelope.line);
        if envelope.dtype != dtype.id {
            return Err(Error::ElementType(Box::new(ElementType {
                call: call.to_string(),
                from: from(),
                tag,
                sent: text(envelope.dtype_text),
                expected: dtype.to_string(),
                sent_at: sent_at(),
            })));
        }
        if len.checked_mul(dtype.size as usize) != Some(envelope.bytes) {
            let error = Error::corrupt(world, "a message's length is not its data's");
            return Err(waiter.stopped().unwrap_or(error));
        }
        match capacity {
            Some(capacity) if len > capacity => Err(Error::Truncated(Box::new(Truncated {
                call: call.to_string(),
                from: from(),
                tag,
                len,
                capacity,
                sent_at: sent_at(),
            }))),
            _ => Ok(()),
        }
    }

    /// The data of a message, checked to be values of its type.
    fn fetch_bytes(
        &self,
        arrived: Arrived<'_>,
        dtype: &DType,
        waiter: &Waiter<'_>,
    ) -> Result<Vec<u8>> {
        let (source, count) = (arrived.envelope.source, arrived.envelope.count);
        let mut bytes = Vec::new();
        if let Err(error) = reserve(&mut bytes, arrived.envelope.bytes, waiter.call) {
            arrived.refuse(&*self.route.transport, waiter);
            return Err(error);
        }
        bytes.resize(arrived.envelope.bytes, 0u8);
        // SAFETY: the vector has room for the message, and any bytes are bytes.
        unsafe { arrived.fetch(bytes.as_mut_ptr(), &*self.route.transport, waiter)? };
        // SAFETY: `bytes` holds `count` elements' worth of bytes, as `check_message` has seen.
        if unsafe { !dtype.all_valid(bytes.as_ptr(), count as usize) } {
            let what = "a message holds bytes that are no values of its type";
            return Err(Error::corrupt(source as usize, what));
        }
        Ok(bytes)
    }
}

/// Makes room for `len` values; that there is no memory for them is an error, as it may be another
/// process that asks for so many.
fn reserve<T>(values: &mut Vec<T>, len: usize, call: &Call<'_>) -> Result<()> {
    values.try_reserve_exact(len).map_err(|error| {
        Error::unavailable(
            format!("memory for a message of {len} elements"),
            format!("{call}: {error}"),
            "send less at once".into(),
        )
    })
}
