//! Messages of one value, and into a vector that there is.

use std::mem::MaybeUninit;
use std::panic::Location;
use std::slice;

use super::communicator::Comm;
use super::messages::message_call;
use crate::buffer::ViewMut;
use crate::call::{Call, Form, Kind};
use crate::element::Element;
use crate::error::{Error, Result};
use crate::rank::{Source, Status, TagOrAny};

/// Messages of one value, and into a vector that there is.
impl Comm {
    /// [`Comm::send`] of one value.
    ///
    /// Errors: as [`Comm::send`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(2, |ctx| {
    ///     if ctx.rank() == 0 {
    ///         return ctx.send_value(2.5, 1, 7);
    ///     }
    ///     let (value, status) = ctx.recv_value::<f64>(ANY, 7)?;
    ///     assert_eq!((value, status.source()), (2.5, 0));
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn send_value<T: Element>(&self, value: T, dest: usize, tag: u32) -> Result<()> {
        self.send(slice::from_ref(&value), dest, tag)
    }

    /// [`Comm::recv`] of a message of one element, as [`Comm::send_value`] sends it.
    ///
    /// Errors: as [`Comm::recv`]; [`Error::Length`], if the message has no element (it is consumed).
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(2, |ctx| {
    ///     if ctx.rank() == 0 {
    ///         ctx.send(&[1u8, 2], 1, 0)?;
    ///         return ctx.send_value(3u8, 1, 1);
    ///     }
    ///     assert!(matches!(ctx.recv_value::<u8>(0, 0), Err(Error::Truncated(_))));
    ///     assert_eq!(ctx.recv_value::<u8>(0, 1)?.0, 3);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn recv_value<T: Element>(
        &self,
        source: impl Source,
        tag: impl TagOrAny,
    ) -> Result<(T, Status)> {
        let (source, tag) = (source.source(), tag.tag());
        let call = message_call(Kind::Recv, &T::DTYPE, 1, source, tag, Location::caller());
        let call = call.form(Form::Value);
        let mut value = MaybeUninit::<T>::uninit();
        // SAFETY: the room is borrowed uniquely as long as the view lives, and a receive only writes.
        let mut view = unsafe { ViewMut::of_room(&mut value) };
        let status = match self.takes_repeat(&mut view, (source, tag)) {
            Some(status) => status,
            None => self.carried(&call, || self.receive(&call, &mut view, source, tag))?,
        };
        if status.is_empty() {
            return Err(Error::length(&call, "message", 0, 1));
        }
        // SAFETY: a receive without an error has written `status.len` elements, which is one: it is
        // not none, and no more than there is room.
        Ok((unsafe { value.assume_init() }, status))
    }

    /// Receives a message of any length as all that is in `values`, whose memory is used again.
    ///
    /// Errors: as [`Comm::recv_vec`]. `values` is as it was, or empty.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(2, |ctx| {
    ///     if ctx.rank() == 0 {
    ///         return (1..4).try_for_each(|n| ctx.send(&vec![n; n], 1, 0));
    ///     }
    ///     let mut values: Vec<usize> = Vec::with_capacity(3);
    ///     for n in 1..4 {
    ///         ctx.recv_into(&mut values, 0, 0)?;
    ///         assert_eq!(values, vec![n; n]);
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn recv_into<T: Element>(
        &self,
        values: &mut Vec<T>,
        source: impl Source,
        tag: impl TagOrAny,
    ) -> Result<Status> {
        let (source, tag, site) = (source.source(), tag.tag(), Location::caller());
        let call = message_call(Kind::Recv, &T::DTYPE, Call::UNEQUAL, source, tag, site);
        let call = call.form(Form::Into);
        self.carried(&call, || self.receive_into(&call, &T::DTYPE, values, source, tag))
    }
}
