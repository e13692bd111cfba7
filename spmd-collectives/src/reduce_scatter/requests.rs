//! ReduceScatter as a request.

use std::panic::Location;

use spmd_core::internal::{Call, Form, Kind, Starts};
use spmd_core::{Buffer, BufferMut, Comm, Element, Operation, Request, Result};

#[cfg(doc)]
use super::ReduceScatter;
use crate::sealed::Sealed;

/// [`ReduceScatter`] as requests, which own their buffers (MPI 5.0 section 6.12).
pub trait ReduceScatterStart: Sealed {
    /// Starts [`ReduceScatter::reduce_scatter`]; the request gives back both buffers (MPI 5.0
    /// section 6.12). All ranks start it, in the same order among the calls that they start and
    /// make.
    ///
    /// Errors: as [`ReduceScatter::reduce_scatter`], here or from [`Request::wait`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let (_mine, sum) = ctx.reduce_scatter_start([1, 2, 3], [0], Sum)?.wait()?;
    ///     assert_eq!(sum, [3 * (ctx.rank() + 1)]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn reduce_scatter_start<S, R, O>(&self, send: S, recv: R, op: O) -> Result<Request<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static,
        O: Operation<S::Elem> + Send + 'static;

    /// Starts [`ReduceScatter::reduce_scatterv`]; the request gives back both buffers (MPI 5.0
    /// section 6.12). All ranks start it, in the same order among the calls that they start and
    /// make.
    ///
    /// Errors: as [`ReduceScatter::reduce_scatterv`], here or from [`Request::wait`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let mine = vec![0; ctx.rank()];
    ///     let (_all, mine) = ctx.reduce_scatterv_start([1; 3], mine, &[0, 1, 2], Sum)?.wait()?;
    ///     assert_eq!(mine, vec![3; ctx.rank()]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn reduce_scatterv_start<S, R, O>(
        &self,
        send: S,
        recv: R,
        counts: &[usize],
        op: O,
    ) -> Result<Request<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static,
        O: Operation<S::Elem> + Send + 'static;

    /// Starts [`ReduceScatter::reduce_scatter_in_place`]; the request gives back its buffer (MPI
    /// 5.0 section 6.12). All ranks start it, in the same order among the calls that they start and
    /// make.
    ///
    /// Errors: as [`ReduceScatter::reduce_scatter_in_place`], here or from [`Request::wait`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let sums = ctx.reduce_scatter_in_place_start([1, 2, 3], Sum)?.wait()?;
    ///     assert_eq!(sums[0], 3 * (ctx.rank() as i32 + 1));
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn reduce_scatter_in_place_start<R, O>(&self, buf: R, op: O) -> Result<Request<R>>
    where
        R: BufferMut + Send + 'static,
        O: Operation<R::Elem> + Send + 'static;
}

impl ReduceScatterStart for Comm {
    fn reduce_scatter_start<S, R, O>(&self, send: S, recv: R, op: O) -> Result<Request<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static,
        O: Operation<S::Elem> + Send + 'static,
    {
        self.internals().reduce_scatter(send, recv, op)
    }

    fn reduce_scatterv_start<S, R, O>(
        &self,
        send: S,
        recv: R,
        counts: &[usize],
        op: O,
    ) -> Result<Request<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static,
        O: Operation<S::Elem> + Send + 'static,
    {
        self.internals().reduce_scatterv(send, recv, counts, op)
    }

    fn reduce_scatter_in_place_start<R, O>(&self, buf: R, op: O) -> Result<Request<R>>
    where
        R: BufferMut + Send + 'static,
        O: Operation<R::Elem> + Send + 'static,
    {
        self.internals().reduce_scatter_in_place(buf, op)
    }
}

/// [`ReduceScatter`] as requests, of what outlives the scope that they are started in
/// ([`Comm::requests`](spmd_core::Comm::requests)).
pub trait ReduceScatterRequests<'a>: Starts<'a> {
    /// Starts [`ReduceScatter::reduce_scatter`], as
    /// [`ReduceScatterStart::reduce_scatter_start`] does.
    #[track_caller]
    fn reduce_scatter<S, R, O>(&self, send: S, recv: R, op: O) -> Result<Request<(S, R)>>
    where
        S: Buffer + Send + 'a,
        R: BufferMut<Elem = S::Elem> + Send + 'a,
        O: Operation<S::Elem> + Send + 'a,
    {
        let site = Location::caller();
        let call = Call::new(Kind::ReduceScatter, site)
            .form(Form::Start)
            .data(&S::Elem::DTYPE, send.erased().len());
        let mut recv = recv;
        self.start(call, move |comm| {
            super::reduce_scatter(comm, &send, &mut recv, op, site)?;
            Ok((send, recv))
        })
    }

    /// Starts [`ReduceScatter::reduce_scatterv`], as
    /// [`ReduceScatterStart::reduce_scatterv_start`] does.
    #[track_caller]
    fn reduce_scatterv<S, R, O>(
        &self,
        send: S,
        recv: R,
        counts: &[usize],
        op: O,
    ) -> Result<Request<(S, R)>>
    where
        S: Buffer + Send + 'a,
        R: BufferMut<Elem = S::Elem> + Send + 'a,
        O: Operation<S::Elem> + Send + 'a,
    {
        let site = Location::caller();
        let call = Call::new(Kind::ReduceScatterv, site)
            .form(Form::Start)
            .data(&S::Elem::DTYPE, send.erased().len());
        let counts = counts.to_vec();
        let mut recv = recv;
        self.start(call, move |comm| {
            super::reduce_scatterv(comm, &send, &mut recv, &counts, op, site)?;
            Ok((send, recv))
        })
    }

    /// Starts [`ReduceScatter::reduce_scatter_in_place`], as
    /// [`ReduceScatterStart::reduce_scatter_in_place_start`] does.
    #[track_caller]
    fn reduce_scatter_in_place<R, O>(&self, buf: R, op: O) -> Result<Request<R>>
    where
        R: BufferMut + Send + 'a,
        O: Operation<R::Elem> + Send + 'a,
    {
        let site = Location::caller();
        let call = Call::new(Kind::ReduceScatter, site)
            .form(Form::Start)
            .data(&R::Elem::DTYPE, buf.erased().len());
        let mut buf = buf;
        self.start(call, move |comm| {
            super::reduce_scatter_in_place(comm, &mut buf, op, site)?;
            Ok(buf)
        })
    }
}

impl<'a, S: Starts<'a>> ReduceScatterRequests<'a> for S {}
