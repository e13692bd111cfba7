//! Gather as a persistent call.

use std::panic::Location;

use spmd_core::internal::{Call, Form, Internals, Kind};
use spmd_core::{Buffer, BufferMut, Comm, Element, Persistent, Result};

#[cfg(doc)]
use super::Gather;
use crate::Split;
use crate::sealed::Sealed;

/// [`Gather`] as persistent calls, which own their buffers (MPI 5.0 section 6.13).
pub trait GatherInit: Sealed {
    /// Makes [`Gather::gather`] a persistent call, on a communicator of its own (MPI 5.0 section
    /// 6.13). All ranks make it, in the same order among their other calls.
    ///
    /// Errors: as [`Split::dup`](crate::Split::dup); what of the arguments [`Gather::gather`]
    /// refuses. From its starts and waits as that.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let mut call = ctx.gather_init([ctx.rank()], vec![0; 3], 0)?;
    ///     call.start()?;
    ///     call.wait()?;
    ///     let (_mine, all) = call.into_buffers()?;
    ///     assert!(ctx.rank() != 0 || all == [0, 1, 2]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn gather_init<S, R>(&self, send: S, recv: R, root: usize) -> Result<Persistent<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static;

    /// Makes [`Gather::gatherv`] a persistent call, on a communicator of its own (MPI 5.0 section
    /// 6.13). All ranks make it, in the same order among their other calls.
    ///
    /// Errors: as [`Split::dup`](crate::Split::dup); what of the arguments [`Gather::gatherv`]
    /// refuses. From its starts and waits as that.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let mine = vec![ctx.rank(); ctx.rank()];
    ///     let mut call = ctx.gatherv_init(mine, vec![0; 3], &[0, 1, 2], 0)?;
    ///     call.start()?;
    ///     call.wait()?;
    ///     let (_mine, all) = call.into_buffers()?;
    ///     assert!(ctx.rank() != 0 || all == [1, 2, 2]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn gatherv_init<S, R>(
        &self,
        send: S,
        recv: R,
        counts: &[usize],
        root: usize,
    ) -> Result<Persistent<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static;
}

impl GatherInit for Comm {
    fn gather_init<S, R>(&self, send: S, recv: R, root: usize) -> Result<Persistent<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static,
    {
        let site = Location::caller();
        let call = Call::new(Kind::Gather, site)
            .form(Form::Init)
            .data(&S::Elem::DTYPE, send.erased().len())
            .root(root);
        let comm = self.dup()?;
        Internals::persistent(comm, call, (send, recv), None, move |comm, (send, recv)| {
            super::gather(comm, send, recv, root, site)
        })
    }

    fn gatherv_init<S, R>(
        &self,
        send: S,
        recv: R,
        counts: &[usize],
        root: usize,
    ) -> Result<Persistent<(S, R)>>
    where
        S: Buffer + Send + 'static,
        R: BufferMut<Elem = S::Elem> + Send + 'static,
    {
        let site = Location::caller();
        let call = Call::new(Kind::Gatherv, site)
            .form(Form::Init)
            .data(&S::Elem::DTYPE, Call::UNEQUAL)
            .root(root);
        let counts = counts.to_vec();
        let comm = self.dup()?;
        Internals::persistent(comm, call, (send, recv), None, move |comm, (send, recv)| {
            super::gatherv(comm, send, recv, &counts, root, site)
        })
    }
}
