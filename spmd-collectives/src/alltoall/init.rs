//! Alltoall as a persistent call.

use std::panic::Location;

use spmd_core::internal::{Call, Form, Internals, Kind};
use spmd_core::{Buffer, BufferMut, Comm, Element, Persistent, Result};

#[cfg(doc)]
use super::Alltoall;
use crate::Split;
use crate::sealed::Sealed;

/// [`Alltoall`] as persistent calls, which own their buffers (MPI 5.0 section 6.13).
pub trait AlltoallInit: Sealed {
    /// Makes [`Alltoall::alltoall`] a persistent call, on a communicator of its own (MPI 5.0
    /// section 6.13). All ranks make it, in the same order among their other calls.
    ///
    /// Errors: as [`Split::dup`](crate::Split::dup); what of the arguments [`Alltoall::alltoall`]
    /// refuses. From its starts and waits as that.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let mut call = ctx.alltoall_init([ctx.rank(); 3], vec![0; 3])?;
    ///     call.start()?;
    ///     call.wait()?;
    ///     let (_mine, all) = call.into_buffers()?;
    ///     assert_eq!(all, [0, 1, 2]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn alltoall_init<S, R>(&self, send: S, recv: R) -> Result<Persistent<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static;

    /// Makes [`Alltoall::alltoall_in_place`] a persistent call, on a communicator of its own (MPI
    /// 5.0 section 6.13). All ranks make it, in the same order among their other calls.
    ///
    /// Errors: as [`Split::dup`](crate::Split::dup); what of the arguments [`Alltoall::alltoall_in_place`]
    /// refuses. From its starts and waits as that.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let mut call = ctx.alltoall_in_place_init([ctx.rank(); 3])?;
    ///     call.start()?;
    ///     call.wait()?;
    ///     let all = call.into_buffers()?;
    ///     assert_eq!(all, [0, 1, 2]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn alltoall_in_place_init<R>(&self, buf: R) -> Result<Persistent<R>>
    where
        R: BufferMut + Send + 'static;

    /// Makes [`Alltoall::alltoallv`] a persistent call, on a communicator of its own (MPI 5.0
    /// section 6.13). All ranks make it, in the same order among their other calls.
    ///
    /// Errors: as [`Split::dup`](crate::Split::dup); what of the arguments [`Alltoall::alltoallv`]
    /// refuses. From its starts and waits as that.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let me = ctx.rank();
    ///     let mut call = ctx.alltoallv_init(vec![me; 3], vec![0; 3 * me], &[0, 1, 2], &[me; 3])?;
    ///     call.start()?;
    ///     call.wait()?;
    ///     let (_mine, all) = call.into_buffers()?;
    ///     assert_eq!(all.iter().sum::<usize>(), 3 * me);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn alltoallv_init<S, R>(
        &self,
        send: S,
        recv: R,
        send_counts: &[usize],
        recv_counts: &[usize],
    ) -> Result<Persistent<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static;
}

impl AlltoallInit for Comm {
    fn alltoall_init<S, R>(&self, send: S, recv: R) -> Result<Persistent<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static,
    {
        let site = Location::caller();
        let call = Call::new(Kind::Alltoall, site)
            .form(Form::Init)
            .data(&S::Elem::DTYPE, send.erased().len());
        let comm = self.dup()?;
        Internals::persistent(comm, call, (send, recv), None, move |comm, (send, recv)| {
            super::alltoall(comm, send, recv, site)
        })
    }

    fn alltoall_in_place_init<R>(&self, buf: R) -> Result<Persistent<R>>
    where
        R: BufferMut + Send + 'static,
    {
        let site = Location::caller();
        let call = Call::new(Kind::Alltoall, site)
            .form(Form::Init)
            .data(&R::Elem::DTYPE, buf.erased().len());
        let comm = self.dup()?;
        Internals::persistent(comm, call, buf, None, move |comm, buf| {
            super::alltoall_in_place(comm, buf, site)
        })
    }

    fn alltoallv_init<S, R>(
        &self,
        send: S,
        recv: R,
        send_counts: &[usize],
        recv_counts: &[usize],
    ) -> Result<Persistent<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static,
    {
        let site = Location::caller();
        let call =
            Call::new(Kind::Alltoallv, site).form(Form::Init).data(&S::Elem::DTYPE, Call::UNEQUAL);
        let send_counts = send_counts.to_vec();
        let recv_counts = recv_counts.to_vec();
        let comm = self.dup()?;
        Internals::persistent(comm, call, (send, recv), None, move |comm, (send, recv)| {
            super::alltoallv(comm, send, recv, &send_counts, &recv_counts, site)
        })
    }
}
