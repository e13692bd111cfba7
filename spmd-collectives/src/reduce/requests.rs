//! Reduce as a request.

use std::panic::Location;

use spmd_core::internal::{Call, Form, Kind, Starts};
use spmd_core::{Buffer, BufferMut, Comm, Element, Operation, Request, Result};

#[cfg(doc)]
use super::Reduce;
use crate::sealed::Sealed;

/// [`Reduce`] as requests, which own their buffers (MPI 5.0 section 6.12).
pub trait ReduceStart: Sealed {
    /// Starts [`Reduce::reduce`]; the request gives back both buffers (MPI 5.0 section 6.12). All
    /// ranks start it, in the same order among the calls that they start and make.
    ///
    /// Errors: as [`Reduce::reduce`], here or from [`Request::wait`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let request = ctx.reduce_start(vec![1; 4], vec![0; 4], Sum, 0)?;
    ///     let (_ones, sums) = request.wait()?;
    ///     assert_eq!(sums, if ctx.rank() == 0 { [3; 4] } else { [0; 4] });
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn reduce_start<S, R, O>(
        &self,
        send: S,
        recv: R,
        op: O,
        root: usize,
    ) -> Result<Request<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static,
        O: Operation<S::Elem> + Send + 'static;

    /// Starts [`Reduce::reduce_in_place`]; the request gives back its buffer (MPI 5.0 section
    /// 6.12). All ranks start it, in the same order among the calls that they start and make.
    ///
    /// Errors: as [`Reduce::reduce_in_place`], here or from [`Request::wait`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let sums = ctx.reduce_in_place_start(vec![1; 4], Sum, 0)?.wait()?;
    ///     assert!(ctx.rank() != 0 || sums == [3; 4]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn reduce_in_place_start<R, O>(&self, buf: R, op: O, root: usize) -> Result<Request<R>>
    where
        R: BufferMut + Send + 'static,
        O: Operation<R::Elem> + Send + 'static;
}

impl ReduceStart for Comm {
    fn reduce_start<S, R, O>(&self, send: S, recv: R, op: O, root: usize) -> Result<Request<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static,
        O: Operation<S::Elem> + Send + 'static,
    {
        self.internals().reduce(send, recv, op, root)
    }

    fn reduce_in_place_start<R, O>(&self, buf: R, op: O, root: usize) -> Result<Request<R>>
    where
        R: BufferMut + Send + 'static,
        O: Operation<R::Elem> + Send + 'static,
    {
        self.internals().reduce_in_place(buf, op, root)
    }
}

/// [`Reduce`] as requests, of what outlives the scope that they are started in
/// ([`Comm::requests`](spmd_core::Comm::requests)).
pub trait ReduceRequests<'a>: Starts<'a> {
    /// Starts [`Reduce::reduce`], as
    /// [`ReduceStart::reduce_start`] does.
    #[track_caller]
    fn reduce<S, R, O>(&self, send: S, recv: R, op: O, root: usize) -> Result<Request<(S, R)>>
    where
        S: Buffer + Send + 'a,
        R: BufferMut<Elem = S::Elem> + Send + 'a,
        O: Operation<S::Elem> + Send + 'a,
    {
        let site = Location::caller();
        let call = Call::new(Kind::Reduce, site)
            .form(Form::Start)
            .data(&S::Elem::DTYPE, send.erased().len())
            .root(root);
        let mut recv = recv;
        self.start(call, move |comm| {
            super::reduce(comm, &send, &mut recv, op, root, site)?;
            Ok((send, recv))
        })
    }

    /// Starts [`Reduce::reduce_in_place`], as
    /// [`ReduceStart::reduce_in_place_start`] does.
    #[track_caller]
    fn reduce_in_place<R, O>(&self, buf: R, op: O, root: usize) -> Result<Request<R>>
    where
        R: BufferMut + Send + 'a,
        O: Operation<R::Elem> + Send + 'a,
    {
        let site = Location::caller();
        let call = Call::new(Kind::Reduce, site)
            .form(Form::Start)
            .data(&R::Elem::DTYPE, buf.erased().len())
            .root(root);
        let mut buf = buf;
        self.start(call, move |comm| {
            super::reduce_in_place(comm, &mut buf, op, root, site)?;
            Ok(buf)
        })
    }
}

impl<'a, S: Starts<'a>> ReduceRequests<'a> for S {}
