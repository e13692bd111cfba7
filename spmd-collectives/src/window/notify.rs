//! Notified access: data, then a notice that they are there.

use std::panic::Location;

use spmd_core::internal::{Call, Kind};
use spmd_core::{Buffer, Element, Result, Source, Status, TagOrAny};

use super::at::At;
use super::windows::Window;

impl<T: Element> Window<T> {
    /// [`Window::put`], then a notification to `target` that the elements are there, with a tag. It is
    /// received with [`Window::wait_notify`]. (Not in MPI 5.0; after Belli and Hoefler, *Notified
    /// Access*, IPDPS 2015.) This rank alone calls it, in an epoch.
    ///
    /// Notifications are messages of the window's own: those of one rank with one tag are received in
    /// order, `SPMD_WINDOW` bounds how many may be waiting, and one that nobody has received by the
    /// end of the block is an error.
    ///
    /// Errors: as [`Window::put`] and [`Comm::send`](spmd_core::Comm::send).
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let window = ctx.window::<f64>(3)?;
    ///     window.lock_all()?;
    ///     if ctx.rank() > 0 {
    ///         window.put_notify(&[1.5], 0, ctx.rank(), 7)?;
    ///     } else {
    ///         for _ in 1..3 {
    ///             let from = window.wait_notify(ANY, 7)?.source();
    ///             assert_eq!(window.read(from..=from)?, [1.5]);
    ///         }
    ///     }
    ///     window.unlock_all()
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn put_notify<B>(&self, src: &B, target: usize, at: impl Into<At>, tag: u32) -> Result<()>
    where
        B: Buffer<Elem = T> + ?Sized,
    {
        let (view, site) = (src.erased(), Location::caller());
        self.put_as(Kind::PutNotify, view, target, at.into(), site)?;
        let call = Call::new(Kind::PutNotify, site).data(&T::DTYPE, view.len());
        self.raw.notify(&call.message(Some(target), Some(tag)), target, tag)
    }

    /// Waits for a notification from `source`, a rank or [`ANY`](spmd_core::ANY), with `tag`, a number
    /// or `ANY`. What its sender has put before can be [`read`](Window::read) then. Its
    /// [`len`](Status::len) is 0. This rank alone calls it, at any time.
    ///
    /// Errors: as [`Comm::recv`](spmd_core::Comm::recv).
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(2, |ctx| {
    ///     let window = ctx.window::<u8>(1)?;
    ///     window.fence()?;
    ///     window.put_notify(&[5], 1 - ctx.rank(), 0, 1)?;
    ///     window.wait_notify(1 - ctx.rank(), 1)?;
    ///     assert_eq!(window.read(..)?, [5]);
    ///     window.fence()
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn wait_notify(&self, source: impl Source, tag: impl TagOrAny) -> Result<Status> {
        let (source, tag) = (source.source(), tag.tag());
        let call = Call::new(Kind::WaitNotify, Location::caller()).message(source, tag);
        self.raw.wait_notice(&call, source, tag)
    }
}
