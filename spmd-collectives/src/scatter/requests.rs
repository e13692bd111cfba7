//! Scatter as a request.

use std::panic::Location;

use spmd_core::internal::{Call, Form, Kind, Starts};
use spmd_core::{Buffer, BufferMut, Comm, Element, Request, Result};

#[cfg(doc)]
use super::Scatter;
use crate::sealed::Sealed;

/// [`Scatter`] as requests, which own their buffers (MPI 5.0 section 6.12).
pub trait ScatterStart: Sealed {
    /// Starts [`Scatter::scatter`]; the request gives back both buffers (MPI 5.0 section 6.12). All
    /// ranks start it, in the same order among the calls that they start and make.
    ///
    /// Errors: as [`Scatter::scatter`], here or from [`Request::wait`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let (_all, mine) = ctx.scatter_start([5, 6, 7], [0], 0)?.wait()?;
    ///     assert_eq!(mine, [5 + ctx.rank()]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn scatter_start<S, R>(&self, send: S, recv: R, root: usize) -> Result<Request<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static;

    /// Starts [`Scatter::scatterv`]; the request gives back both buffers (MPI 5.0 section 6.12).
    /// All ranks start it, in the same order among the calls that they start and make.
    ///
    /// Errors: as [`Scatter::scatterv`], here or from [`Request::wait`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let mine = vec![0; ctx.rank()];
    ///     let (_all, mine) = ctx.scatterv_start([1, 2, 2], &[0, 1, 2], mine, 0)?.wait()?;
    ///     assert_eq!(mine, vec![ctx.rank(); ctx.rank()]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn scatterv_start<S, R>(
        &self,
        send: S,
        counts: &[usize],
        recv: R,
        root: usize,
    ) -> Result<Request<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static;
}

impl ScatterStart for Comm {
    fn scatter_start<S, R>(&self, send: S, recv: R, root: usize) -> Result<Request<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static,
    {
        self.internals().scatter(send, recv, root)
    }

    fn scatterv_start<S, R>(
        &self,
        send: S,
        counts: &[usize],
        recv: R,
        root: usize,
    ) -> Result<Request<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static,
    {
        self.internals().scatterv(send, counts, recv, root)
    }
}

/// [`Scatter`] as requests, of what outlives the scope that they are started in
/// ([`Comm::requests`](spmd_core::Comm::requests)).
pub trait ScatterRequests<'a>: Starts<'a> {
    /// Starts [`Scatter::scatter`], as
    /// [`ScatterStart::scatter_start`] does.
    #[track_caller]
    fn scatter<S, R>(&self, send: S, recv: R, root: usize) -> Result<Request<(S, R)>>
    where
        S: Buffer + Send + 'a,
        R: BufferMut<Elem = S::Elem> + Send + 'a,
    {
        let site = Location::caller();
        let call = Call::new(Kind::Scatter, site)
            .form(Form::Start)
            .data(&R::Elem::DTYPE, recv.erased().len())
            .root(root);
        let mut recv = recv;
        self.start(call, move |comm| {
            super::scatter(comm, &send, &mut recv, root, site)?;
            Ok((send, recv))
        })
    }

    /// Starts [`Scatter::scatterv`], as
    /// [`ScatterStart::scatterv_start`] does.
    #[track_caller]
    fn scatterv<S, R>(
        &self,
        send: S,
        counts: &[usize],
        recv: R,
        root: usize,
    ) -> Result<Request<(S, R)>>
    where
        S: Buffer + Send + 'a,
        R: BufferMut<Elem = S::Elem> + Send + 'a,
    {
        let site = Location::caller();
        let call = Call::new(Kind::Scatterv, site)
            .form(Form::Start)
            .data(&S::Elem::DTYPE, Call::UNEQUAL)
            .root(root);
        let counts = counts.to_vec();
        let mut recv = recv;
        self.start(call, move |comm| {
            super::scatterv(comm, &send, &counts, &mut recv, root, site)?;
            Ok((send, recv))
        })
    }
}

impl<'a, S: Starts<'a>> ScatterRequests<'a> for S {}
