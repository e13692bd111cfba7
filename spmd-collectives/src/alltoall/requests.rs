//! Alltoall as a request.

use std::panic::Location;

use spmd_core::internal::{Call, Form, Kind, Starts};
use spmd_core::{Buffer, BufferMut, Comm, Element, Request, Result};

#[cfg(doc)]
use super::Alltoall;
use crate::sealed::Sealed;

/// [`Alltoall`] as requests, which own their buffers (MPI 5.0 section 6.12).
pub trait AlltoallStart: Sealed {
    /// Starts [`Alltoall::alltoall`]; the request gives back both buffers (MPI 5.0 section 6.12).
    /// All ranks start it, in the same order among the calls that they start and make.
    ///
    /// Errors: as [`Alltoall::alltoall`], here or from [`Request::wait`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let (_mine, all) = ctx.alltoall_start([ctx.rank(); 3], vec![0; 3])?.wait()?;
    ///     assert_eq!(all, [0, 1, 2]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn alltoall_start<S, R>(&self, send: S, recv: R) -> Result<Request<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static;

    /// Starts [`Alltoall::alltoall_in_place`]; the request gives back its buffer (MPI 5.0 section
    /// 6.12). All ranks start it, in the same order among the calls that they start and make.
    ///
    /// Errors: as [`Alltoall::alltoall_in_place`], here or from [`Request::wait`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let all = ctx.alltoall_in_place_start([ctx.rank(); 3])?.wait()?;
    ///     assert_eq!(all, [0, 1, 2]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn alltoall_in_place_start<R>(&self, buf: R) -> Result<Request<R>>
    where
        R: BufferMut + Send + 'static;

    /// Starts [`Alltoall::alltoallv`]; the request gives back both buffers (MPI 5.0 section 6.12).
    /// All ranks start it, in the same order among the calls that they start and make.
    ///
    /// Errors: as [`Alltoall::alltoallv`], here or from [`Request::wait`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let me = ctx.rank();
    ///     let request =
    ///         ctx.alltoallv_start(vec![me; 3], vec![0; 3 * me], &[0, 1, 2], &[me; 3])?;
    ///     let (_mine, all) = request.wait()?;
    ///     assert_eq!(all.iter().sum::<usize>(), 3 * me);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn alltoallv_start<S, R>(
        &self,
        send: S,
        recv: R,
        send_counts: &[usize],
        recv_counts: &[usize],
    ) -> Result<Request<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static;
}

impl AlltoallStart for Comm {
    fn alltoall_start<S, R>(&self, send: S, recv: R) -> Result<Request<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static,
    {
        self.internals().alltoall(send, recv)
    }

    fn alltoall_in_place_start<R>(&self, buf: R) -> Result<Request<R>>
    where
        R: BufferMut + Send + 'static,
    {
        self.internals().alltoall_in_place(buf)
    }

    fn alltoallv_start<S, R>(
        &self,
        send: S,
        recv: R,
        send_counts: &[usize],
        recv_counts: &[usize],
    ) -> Result<Request<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static,
    {
        self.internals().alltoallv(send, recv, send_counts, recv_counts)
    }
}

/// [`Alltoall`] as requests, of what outlives the scope that they are started in
/// ([`Comm::requests`](spmd_core::Comm::requests)).
pub trait AlltoallRequests<'a>: Starts<'a> {
    /// Starts [`Alltoall::alltoall`], as
    /// [`AlltoallStart::alltoall_start`] does.
    #[track_caller]
    fn alltoall<S, R>(&self, send: S, recv: R) -> Result<Request<(S, R)>>
    where
        S: Buffer + Send + 'a,
        R: BufferMut<Elem = S::Elem> + Send + 'a,
    {
        let site = Location::caller();
        let call = Call::new(Kind::Alltoall, site)
            .form(Form::Start)
            .data(&S::Elem::DTYPE, send.erased().len());
        let mut recv = recv;
        self.start(call, move |comm| {
            super::alltoall(comm, &send, &mut recv, site)?;
            Ok((send, recv))
        })
    }

    /// Starts [`Alltoall::alltoall_in_place`], as
    /// [`AlltoallStart::alltoall_in_place_start`] does.
    #[track_caller]
    fn alltoall_in_place<R>(&self, buf: R) -> Result<Request<R>>
    where
        R: BufferMut + Send + 'a,
    {
        let site = Location::caller();
        let call = Call::new(Kind::Alltoall, site)
            .form(Form::Start)
            .data(&R::Elem::DTYPE, buf.erased().len());
        let mut buf = buf;
        self.start(call, move |comm| {
            super::alltoall_in_place(comm, &mut buf, site)?;
            Ok(buf)
        })
    }

    /// Starts [`Alltoall::alltoallv`], as
    /// [`AlltoallStart::alltoallv_start`] does.
    #[track_caller]
    fn alltoallv<S, R>(
        &self,
        send: S,
        recv: R,
        send_counts: &[usize],
        recv_counts: &[usize],
    ) -> Result<Request<(S, R)>>
    where
        S: Buffer + Send + 'a,
        R: BufferMut<Elem = S::Elem> + Send + 'a,
    {
        let site = Location::caller();
        let call =
            Call::new(Kind::Alltoallv, site).form(Form::Start).data(&S::Elem::DTYPE, Call::UNEQUAL);
        let send_counts = send_counts.to_vec();
        let recv_counts = recv_counts.to_vec();
        let mut recv = recv;
        self.start(call, move |comm| {
            super::alltoallv(comm, &send, &mut recv, &send_counts, &recv_counts, site)?;
            Ok((send, recv))
        })
    }
}

impl<'a, S: Starts<'a>> AlltoallRequests<'a> for S {}
