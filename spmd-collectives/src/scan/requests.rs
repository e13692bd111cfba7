//! Scan as a request.

use std::panic::Location;

use spmd_core::internal::{Call, Form, Kind, Starts};
use spmd_core::{Buffer, BufferMut, Comm, Element, Operation, Request, Result};

#[cfg(doc)]
use super::Scan;
use crate::sealed::Sealed;

/// [`Scan`] as requests, which own their buffers (MPI 5.0 section 6.12).
pub trait ScanStart: Sealed {
    /// Starts [`Scan::scan`]; the request gives back both buffers (MPI 5.0 section 6.12). All ranks
    /// start it, in the same order among the calls that they start and make.
    ///
    /// Errors: as [`Scan::scan`], here or from [`Request::wait`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let (_one, sum) = ctx.scan_start([1], [0], Sum)?.wait()?;
    ///     assert_eq!(sum, [ctx.rank() + 1]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn scan_start<S, R, O>(&self, send: S, recv: R, op: O) -> Result<Request<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static,
        O: Operation<S::Elem> + Send + 'static;

    /// Starts [`Scan::exscan`]; the request gives back both buffers (MPI 5.0 section 6.12). All
    /// ranks start it, in the same order among the calls that they start and make.
    ///
    /// Errors: as [`Scan::exscan`], here or from [`Request::wait`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let (_one, sum) = ctx.exscan_start([1], [0], Sum)?.wait()?;
    ///     assert_eq!(sum, [ctx.rank()]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn exscan_start<S, R, O>(&self, send: S, recv: R, op: O) -> Result<Request<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static,
        O: Operation<S::Elem> + Send + 'static;

    /// Starts [`Scan::scan_in_place`]; the request gives back its buffer (MPI 5.0 section 6.12).
    /// All ranks start it, in the same order among the calls that they start and make.
    ///
    /// Errors: as [`Scan::scan_in_place`], here or from [`Request::wait`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     assert_eq!(ctx.scan_in_place_start([1], Sum)?.wait()?, [ctx.rank() + 1]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn scan_in_place_start<R, O>(&self, buf: R, op: O) -> Result<Request<R>>
    where
        R: BufferMut + Send + 'static,
        O: Operation<R::Elem> + Send + 'static;
}

impl ScanStart for Comm {
    fn scan_start<S, R, O>(&self, send: S, recv: R, op: O) -> Result<Request<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static,
        O: Operation<S::Elem> + Send + 'static,
    {
        self.internals().scan(send, recv, op)
    }

    fn exscan_start<S, R, O>(&self, send: S, recv: R, op: O) -> Result<Request<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static,
        O: Operation<S::Elem> + Send + 'static,
    {
        self.internals().exscan(send, recv, op)
    }

    fn scan_in_place_start<R, O>(&self, buf: R, op: O) -> Result<Request<R>>
    where
        R: BufferMut + Send + 'static,
        O: Operation<R::Elem> + Send + 'static,
    {
        self.internals().scan_in_place(buf, op)
    }
}

/// [`Scan`] as requests, of what outlives the scope that they are started in
/// ([`Comm::requests`](spmd_core::Comm::requests)).
pub trait ScanRequests<'a>: Starts<'a> {
    /// Starts [`Scan::scan`], as
    /// [`ScanStart::scan_start`] does.
    #[track_caller]
    fn scan<S, R, O>(&self, send: S, recv: R, op: O) -> Result<Request<(S, R)>>
    where
        S: Buffer + Send + 'a,
        R: BufferMut<Elem = S::Elem> + Send + 'a,
        O: Operation<S::Elem> + Send + 'a,
    {
        let site = Location::caller();
        let call = Call::new(Kind::Scan, site)
            .form(Form::Start)
            .data(&S::Elem::DTYPE, send.erased().len());
        let mut recv = recv;
        self.start(call, move |comm| {
            super::scan(comm, &send, &mut recv, op, site)?;
            Ok((send, recv))
        })
    }

    /// Starts [`Scan::exscan`], as
    /// [`ScanStart::exscan_start`] does.
    #[track_caller]
    fn exscan<S, R, O>(&self, send: S, recv: R, op: O) -> Result<Request<(S, R)>>
    where
        S: Buffer + Send + 'a,
        R: BufferMut<Elem = S::Elem> + Send + 'a,
        O: Operation<S::Elem> + Send + 'a,
    {
        let site = Location::caller();
        let call = Call::new(Kind::Exscan, site)
            .form(Form::Start)
            .data(&S::Elem::DTYPE, send.erased().len());
        let mut recv = recv;
        self.start(call, move |comm| {
            super::exscan(comm, &send, &mut recv, op, site)?;
            Ok((send, recv))
        })
    }

    /// Starts [`Scan::scan_in_place`], as
    /// [`ScanStart::scan_in_place_start`] does.
    #[track_caller]
    fn scan_in_place<R, O>(&self, buf: R, op: O) -> Result<Request<R>>
    where
        R: BufferMut + Send + 'a,
        O: Operation<R::Elem> + Send + 'a,
    {
        let site = Location::caller();
        let call =
            Call::new(Kind::Scan, site).form(Form::Start).data(&R::Elem::DTYPE, buf.erased().len());
        let mut buf = buf;
        self.start(call, move |comm| {
            super::scan_in_place(comm, &mut buf, op, site)?;
            Ok(buf)
        })
    }
}

impl<'a, S: Starts<'a>> ScanRequests<'a> for S {}
