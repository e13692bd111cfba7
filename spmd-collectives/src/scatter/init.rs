//! Scatter as a persistent call.

use std::panic::Location;

use spmd_core::internal::{Call, Form, Internals, Kind};
use spmd_core::{Buffer, BufferMut, Comm, Element, Persistent, Result};

#[cfg(doc)]
use super::Scatter;
use crate::Split;
use crate::sealed::Sealed;

/// [`Scatter`] as persistent calls, which own their buffers (MPI 5.0 section 6.13).
pub trait ScatterInit: Sealed {
    /// Makes [`Scatter::scatter`] a persistent call, on a communicator of its own (MPI 5.0 section
    /// 6.13). All ranks make it, in the same order among their other calls.
    ///
    /// Errors: as [`Split::dup`](crate::Split::dup); what of the arguments [`Scatter::scatter`]
    /// refuses. From its starts and waits as that.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let mut call = ctx.scatter_init([5, 6, 7], [0], 0)?;
    ///     call.start()?;
    ///     call.wait()?;
    ///     let (_all, mine) = call.into_buffers()?;
    ///     assert_eq!(mine, [5 + ctx.rank()]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn scatter_init<S, R>(&self, send: S, recv: R, root: usize) -> Result<Persistent<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static;

    /// Makes [`Scatter::scatterv`] a persistent call, on a communicator of its own (MPI 5.0 section
    /// 6.13). All ranks make it, in the same order among their other calls.
    ///
    /// Errors: as [`Split::dup`](crate::Split::dup); what of the arguments [`Scatter::scatterv`]
    /// refuses. From its starts and waits as that.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let mine = vec![0; ctx.rank()];
    ///     let mut call = ctx.scatterv_init([1, 2, 2], &[0, 1, 2], mine, 0)?;
    ///     call.start()?;
    ///     call.wait()?;
    ///     let (_all, mine) = call.into_buffers()?;
    ///     assert_eq!(mine, vec![ctx.rank(); ctx.rank()]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn scatterv_init<S, R>(
        &self,
        send: S,
        counts: &[usize],
        recv: R,
        root: usize,
    ) -> Result<Persistent<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static;
}

impl ScatterInit for Comm {
    fn scatter_init<S, R>(&self, send: S, recv: R, root: usize) -> Result<Persistent<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static,
    {
        let site = Location::caller();
        let call = Call::new(Kind::Scatter, site)
            .form(Form::Init)
            .data(&R::Elem::DTYPE, recv.erased().len())
            .root(root);
        let comm = self.dup()?;
        Internals::persistent(comm, call, (send, recv), None, move |comm, (send, recv)| {
            super::scatter(comm, send, recv, root, site)
        })
    }

    fn scatterv_init<S, R>(
        &self,
        send: S,
        counts: &[usize],
        recv: R,
        root: usize,
    ) -> Result<Persistent<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static,
    {
        let site = Location::caller();
        let call = Call::new(Kind::Scatterv, site)
            .form(Form::Init)
            .data(&S::Elem::DTYPE, Call::UNEQUAL)
            .root(root);
        let counts = counts.to_vec();
        let comm = self.dup()?;
        Internals::persistent(comm, call, (send, recv), None, move |comm, (send, recv)| {
            super::scatterv(comm, send, &counts, recv, root, site)
        })
    }
}
