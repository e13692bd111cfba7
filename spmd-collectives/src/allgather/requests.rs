//! Allgather as a request.

use std::panic::Location;

use spmd_core::internal::{Call, Form, Kind, Starts};
use spmd_core::{Buffer, BufferMut, Comm, Element, Request, Result};

#[cfg(doc)]
use super::Allgather;
use crate::sealed::Sealed;

/// [`Allgather`] as requests, which own their buffers (MPI 5.0 section 6.12).
pub trait AllgatherStart: Sealed {
    /// Starts [`Allgather::allgather`]; the request gives back both buffers (MPI 5.0 section 6.12).
    /// All ranks start it, in the same order among the calls that they start and make.
    ///
    /// Errors: as [`Allgather::allgather`], here or from [`Request::wait`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let (_mine, all) = ctx.allgather_start([ctx.rank()], vec![0; 3])?.wait()?;
    ///     assert_eq!(all, [0, 1, 2]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn allgather_start<S, R>(&self, send: S, recv: R) -> Result<Request<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static;

    /// Starts [`Allgather::allgatherv`]; the request gives back both buffers (MPI 5.0 section
    /// 6.12). All ranks start it, in the same order among the calls that they start and make.
    ///
    /// Errors: as [`Allgather::allgatherv`], here or from [`Request::wait`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let mine = vec![ctx.rank(); ctx.rank()];
    ///     let (_mine, all) = ctx.allgatherv_start(mine, vec![0; 3], &[0, 1, 2])?.wait()?;
    ///     assert_eq!(all, [1, 2, 2]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn allgatherv_start<S, R>(&self, send: S, recv: R, counts: &[usize]) -> Result<Request<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static;

    /// Starts [`Allgather::allgather_in_place`]; the request gives back its buffer (MPI 5.0 section
    /// 6.12). All ranks start it, in the same order among the calls that they start and make.
    ///
    /// Errors: as [`Allgather::allgather_in_place`], here or from [`Request::wait`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let mut all = vec![0; 3];
    ///     all[ctx.rank()] = ctx.rank();
    ///     assert_eq!(ctx.allgather_in_place_start(all)?.wait()?, [0, 1, 2]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn allgather_in_place_start<B>(&self, buf: B) -> Result<Request<B>>
    where
        B: BufferMut + Send + 'static;
}

impl AllgatherStart for Comm {
    fn allgather_start<S, R>(&self, send: S, recv: R) -> Result<Request<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static,
    {
        self.internals().allgather(send, recv)
    }

    fn allgatherv_start<S, R>(&self, send: S, recv: R, counts: &[usize]) -> Result<Request<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static,
    {
        self.internals().allgatherv(send, recv, counts)
    }

    fn allgather_in_place_start<B>(&self, buf: B) -> Result<Request<B>>
    where
        B: BufferMut + Send + 'static,
    {
        self.internals().allgather_in_place(buf)
    }
}

/// [`Allgather`] as requests, of what outlives the scope that they are started in
/// ([`Comm::requests`](spmd_core::Comm::requests)).
pub trait AllgatherRequests<'a>: Starts<'a> {
    /// Starts [`Allgather::allgather`], as
    /// [`AllgatherStart::allgather_start`] does.
    #[track_caller]
    fn allgather<S, R>(&self, send: S, recv: R) -> Result<Request<(S, R)>>
    where
        S: Buffer + Send + 'a,
        R: BufferMut<Elem = S::Elem> + Send + 'a,
    {
        let site = Location::caller();
        let call = Call::new(Kind::Allgather, site)
            .form(Form::Start)
            .data(&S::Elem::DTYPE, send.erased().len());
        let mut recv = recv;
        self.start(call, move |comm| {
            super::allgather(comm, &send, &mut recv, site)?;
            Ok((send, recv))
        })
    }

    /// Starts [`Allgather::allgatherv`], as
    /// [`AllgatherStart::allgatherv_start`] does.
    #[track_caller]
    fn allgatherv<S, R>(&self, send: S, recv: R, counts: &[usize]) -> Result<Request<(S, R)>>
    where
        S: Buffer + Send + 'a,
        R: BufferMut<Elem = S::Elem> + Send + 'a,
    {
        let site = Location::caller();
        let call = Call::new(Kind::Allgatherv, site)
            .form(Form::Start)
            .data(&S::Elem::DTYPE, Call::UNEQUAL);
        let counts = counts.to_vec();
        let mut recv = recv;
        self.start(call, move |comm| {
            super::allgatherv(comm, &send, &mut recv, &counts, site)?;
            Ok((send, recv))
        })
    }

    /// Starts [`Allgather::allgather_in_place`], as
    /// [`AllgatherStart::allgather_in_place_start`] does.
    #[track_caller]
    fn allgather_in_place<B>(&self, buf: B) -> Result<Request<B>>
    where
        B: BufferMut + Send + 'a,
    {
        let site = Location::caller();
        let call = Call::new(Kind::Allgather, site)
            .form(Form::Start)
            .data(&B::Elem::DTYPE, buf.erased().len());
        let mut buf = buf;
        self.start(call, move |comm| {
            super::allgather_in_place(comm, &mut buf, site)?;
            Ok(buf)
        })
    }
}

impl<'a, S: Starts<'a>> AllgatherRequests<'a> for S {}
