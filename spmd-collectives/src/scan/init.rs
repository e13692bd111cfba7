//! Scan as a persistent call.

use std::panic::Location;

use spmd_core::internal::{Call, Form, Internals, Kind};
use spmd_core::{Buffer, BufferMut, Comm, Element, Operation, Persistent, Result};

#[cfg(doc)]
use super::Scan;
use crate::Split;
use crate::sealed::Sealed;

/// [`Scan`] as persistent calls, which own their buffers (MPI 5.0 section 6.13).
pub trait ScanInit: Sealed {
    /// Makes [`Scan::scan`] a persistent call, on a communicator of its own (MPI 5.0 section 6.13).
    /// All ranks make it, in the same order among their other calls.
    ///
    /// Errors: as [`Split::dup`](crate::Split::dup); what of the arguments [`Scan::scan`]
    /// refuses. From its starts and waits as that.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let mut call = ctx.scan_init([1], [0], Sum)?;
    ///     call.start()?;
    ///     call.wait()?;
    ///     let (_one, sum) = call.into_buffers()?;
    ///     assert_eq!(sum, [ctx.rank() + 1]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn scan_init<S, R, O>(&self, send: S, recv: R, op: O) -> Result<Persistent<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static,
        O: Operation<S::Elem> + Send + 'static;

    /// Makes [`Scan::exscan`] a persistent call, on a communicator of its own (MPI 5.0 section
    /// 6.13). All ranks make it, in the same order among their other calls.
    ///
    /// Errors: as [`Split::dup`](crate::Split::dup); what of the arguments [`Scan::exscan`]
    /// refuses. From its starts and waits as that.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let mut call = ctx.exscan_init([1], [0], Sum)?;
    ///     call.start()?;
    ///     call.wait()?;
    ///     let (_one, sum) = call.into_buffers()?;
    ///     assert_eq!(sum, [ctx.rank()]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn exscan_init<S, R, O>(&self, send: S, recv: R, op: O) -> Result<Persistent<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static,
        O: Operation<S::Elem> + Send + 'static;

    /// Makes [`Scan::scan_in_place`] a persistent call, on a communicator of its own (MPI 5.0
    /// section 6.13). All ranks make it, in the same order among their other calls.
    ///
    /// Errors: as [`Split::dup`](crate::Split::dup); what of the arguments [`Scan::scan_in_place`]
    /// refuses. From its starts and waits as that.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let mut call = ctx.scan_in_place_init([1], Sum)?;
    ///     call.start()?;
    ///     call.wait()?;
    ///     assert_eq!(call.into_buffers()?, [ctx.rank() + 1]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn scan_in_place_init<R, O>(&self, buf: R, op: O) -> Result<Persistent<R>>
    where
        R: BufferMut + Send + 'static,
        O: Operation<R::Elem> + Send + 'static;
}

impl ScanInit for Comm {
    fn scan_init<S, R, O>(&self, send: S, recv: R, op: O) -> Result<Persistent<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static,
        O: Operation<S::Elem> + Send + 'static,
    {
        let site = Location::caller();
        let call =
            Call::new(Kind::Scan, site).form(Form::Init).data(&S::Elem::DTYPE, send.erased().len());
        let comm = self.dup()?;
        Internals::persistent(comm, call, (send, recv), None, move |comm, (send, recv)| {
            super::scan(comm, send, recv, &op, site)
        })
    }

    fn exscan_init<S, R, O>(&self, send: S, recv: R, op: O) -> Result<Persistent<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static,
        O: Operation<S::Elem> + Send + 'static,
    {
        let site = Location::caller();
        let call = Call::new(Kind::Exscan, site)
            .form(Form::Init)
            .data(&S::Elem::DTYPE, send.erased().len());
        let comm = self.dup()?;
        Internals::persistent(comm, call, (send, recv), None, move |comm, (send, recv)| {
            super::exscan(comm, send, recv, &op, site)
        })
    }

    fn scan_in_place_init<R, O>(&self, buf: R, op: O) -> Result<Persistent<R>>
    where
        R: BufferMut + Send + 'static,
        O: Operation<R::Elem> + Send + 'static,
    {
        let site = Location::caller();
        let call =
            Call::new(Kind::Scan, site).form(Form::Init).data(&R::Elem::DTYPE, buf.erased().len());
        let comm = self.dup()?;
        Internals::persistent(comm, call, buf, None, move |comm, buf| {
            super::scan_in_place(comm, buf, &op, site)
        })
    }
}
