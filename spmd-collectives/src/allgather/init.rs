//! Allgather as a persistent call.

use std::panic::Location;

use spmd_core::internal::{Call, Form, Internals, Kind};
use spmd_core::{Buffer, BufferMut, Comm, Element, Persistent, Result};

#[cfg(doc)]
use super::Allgather;
use crate::Split;
use crate::sealed::Sealed;

/// [`Allgather`] as persistent calls, which own their buffers (MPI 5.0 section 6.13).
pub trait AllgatherInit: Sealed {
    /// Makes [`Allgather::allgather`] a persistent call, on a communicator of its own (MPI 5.0
    /// section 6.13). All ranks make it, in the same order among their other calls.
    ///
    /// Errors: as [`Split::dup`](crate::Split::dup); what of the arguments [`Allgather::allgather`]
    /// refuses. From its starts and waits as that.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let mut call = ctx.allgather_init([ctx.rank()], vec![0; 3])?;
    ///     call.start()?;
    ///     call.wait()?;
    ///     let (_mine, all) = call.into_buffers()?;
    ///     assert_eq!(all, [0, 1, 2]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn allgather_init<S, R>(&self, send: S, recv: R) -> Result<Persistent<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static;

    /// Makes [`Allgather::allgatherv`] a persistent call, on a communicator of its own (MPI 5.0
    /// section 6.13). All ranks make it, in the same order among their other calls.
    ///
    /// Errors: as [`Split::dup`](crate::Split::dup); what of the arguments [`Allgather::allgatherv`]
    /// refuses. From its starts and waits as that.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let mine = vec![ctx.rank(); ctx.rank()];
    ///     let mut call = ctx.allgatherv_init(mine, vec![0; 3], &[0, 1, 2])?;
    ///     call.start()?;
    ///     call.wait()?;
    ///     let (_mine, all) = call.into_buffers()?;
    ///     assert_eq!(all, [1, 2, 2]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn allgatherv_init<S, R>(
        &self,
        send: S,
        recv: R,
        counts: &[usize],
    ) -> Result<Persistent<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static;

    /// Makes [`Allgather::allgather_in_place`] a persistent call, on a communicator of its own (MPI
    /// 5.0 section 6.13). All ranks make it, in the same order among their other calls.
    ///
    /// Errors: as [`Split::dup`](crate::Split::dup); what of the arguments [`Allgather::allgather_in_place`]
    /// refuses. From its starts and waits as that.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let mut all = vec![0; 3];
    ///     all[ctx.rank()] = ctx.rank();
    ///     let mut call = ctx.allgather_in_place_init(all)?;
    ///     call.start()?;
    ///     call.wait()?;
    ///     assert_eq!(call.into_buffers()?, [0, 1, 2]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn allgather_in_place_init<B>(&self, buf: B) -> Result<Persistent<B>>
    where
        B: BufferMut + Send + 'static;
}

impl AllgatherInit for Comm {
    fn allgather_init<S, R>(&self, send: S, recv: R) -> Result<Persistent<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static,
    {
        let site = Location::caller();
        let call = Call::new(Kind::Allgather, site)
            .form(Form::Init)
            .data(&S::Elem::DTYPE, send.erased().len());
        let comm = self.dup()?;
        Internals::persistent(comm, call, (send, recv), None, move |comm, (send, recv)| {
            super::allgather(comm, send, recv, site)
        })
    }

    fn allgatherv_init<S, R>(
        &self,
        send: S,
        recv: R,
        counts: &[usize],
    ) -> Result<Persistent<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static,
    {
        let site = Location::caller();
        let call =
            Call::new(Kind::Allgatherv, site).form(Form::Init).data(&S::Elem::DTYPE, Call::UNEQUAL);
        let counts = counts.to_vec();
        let comm = self.dup()?;
        Internals::persistent(comm, call, (send, recv), None, move |comm, (send, recv)| {
            super::allgatherv(comm, send, recv, &counts, site)
        })
    }

    fn allgather_in_place_init<B>(&self, buf: B) -> Result<Persistent<B>>
    where
        B: BufferMut + Send + 'static,
    {
        let site = Location::caller();
        let call = Call::new(Kind::Allgather, site)
            .form(Form::Init)
            .data(&B::Elem::DTYPE, buf.erased().len());
        let comm = self.dup()?;
        Internals::persistent(comm, call, buf, None, move |comm, buf| {
            super::allgather_in_place(comm, buf, site)
        })
    }
}
