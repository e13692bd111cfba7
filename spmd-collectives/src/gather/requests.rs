//! Gather as a request.

use std::panic::Location;

use spmd_core::internal::{Call, Form, Kind, Starts};
use spmd_core::{Buffer, BufferMut, Comm, Element, Request, Result};

#[cfg(doc)]
use super::Gather;
use crate::sealed::Sealed;

/// [`Gather`] as requests, which own their buffers (MPI 5.0 section 6.12).
pub trait GatherStart: Sealed {
    /// Starts [`Gather::gather`]; the request gives back both buffers (MPI 5.0 section 6.12). All
    /// ranks start it, in the same order among the calls that they start and make.
    ///
    /// Errors: as [`Gather::gather`], here or from [`Request::wait`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let request = ctx.gather_start([ctx.rank()], vec![0; 3], 0)?;
    ///     let (_mine, all) = request.wait()?;
    ///     assert!(ctx.rank() != 0 || all == [0, 1, 2]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn gather_start<S, R>(&self, send: S, recv: R, root: usize) -> Result<Request<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static;

    /// Starts [`Gather::gatherv`]; the request gives back both buffers (MPI 5.0 section 6.12). All
    /// ranks start it, in the same order among the calls that they start and make.
    ///
    /// Errors: as [`Gather::gatherv`], here or from [`Request::wait`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let mine = vec![ctx.rank(); ctx.rank()];
    ///     let (_mine, all) = ctx.gatherv_start(mine, vec![0; 3], &[0, 1, 2], 0)?.wait()?;
    ///     assert!(ctx.rank() != 0 || all == [1, 2, 2]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn gatherv_start<S, R>(
        &self,
        send: S,
        recv: R,
        counts: &[usize],
        root: usize,
    ) -> Result<Request<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static;
}

impl GatherStart for Comm {
    fn gather_start<S, R>(&self, send: S, recv: R, root: usize) -> Result<Request<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static,
    {
        self.internals().gather(send, recv, root)
    }

    fn gatherv_start<S, R>(
        &self,
        send: S,
        recv: R,
        counts: &[usize],
        root: usize,
    ) -> Result<Request<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static,
    {
        self.internals().gatherv(send, recv, counts, root)
    }
}

/// [`Gather`] as requests, of what outlives the scope that they are started in
/// ([`Comm::requests`](spmd_core::Comm::requests)).
pub trait GatherRequests<'a>: Starts<'a> {
    /// Starts [`Gather::gather`], as
    /// [`GatherStart::gather_start`] does.
    #[track_caller]
    fn gather<S, R>(&self, send: S, recv: R, root: usize) -> Result<Request<(S, R)>>
    where
        S: Buffer + Send + 'a,
        R: BufferMut<Elem = S::Elem> + Send + 'a,
    {
        let site = Location::caller();
        let call = Call::new(Kind::Gather, site)
            .form(Form::Start)
            .data(&S::Elem::DTYPE, send.erased().len())
            .root(root);
        let mut recv = recv;
        self.start(call, move |comm| {
            super::gather(comm, &send, &mut recv, root, site)?;
            Ok((send, recv))
        })
    }

    /// Starts [`Gather::gatherv`], as
    /// [`GatherStart::gatherv_start`] does.
    #[track_caller]
    fn gatherv<S, R>(
        &self,
        send: S,
        recv: R,
        counts: &[usize],
        root: usize,
    ) -> Result<Request<(S, R)>>
    where
        S: Buffer + Send + 'a,
        R: BufferMut<Elem = S::Elem> + Send + 'a,
    {
        let site = Location::caller();
        let call = Call::new(Kind::Gatherv, site)
            .form(Form::Start)
            .data(&S::Elem::DTYPE, Call::UNEQUAL)
            .root(root);
        let counts = counts.to_vec();
        let mut recv = recv;
        self.start(call, move |comm| {
            super::gatherv(comm, &send, &mut recv, &counts, root, site)?;
            Ok((send, recv))
        })
    }
}

impl<'a, S: Starts<'a>> GatherRequests<'a> for S {}
