//! Broadcast as a persistent call.

use std::panic::Location;

use spmd_core::internal::{Call, Form, Internals, Kind};
use spmd_core::{BufferMut, Comm, Element, Persistent, Result};

#[cfg(doc)]
use super::Broadcast;
use crate::Split;
use crate::sealed::Sealed;

/// [`Broadcast`] as persistent calls, which own their buffers (MPI 5.0 section 6.13).
pub trait BroadcastInit: Sealed {
    /// Makes [`Broadcast::broadcast`] a persistent call, on a communicator of its own (MPI 5.0
    /// section 6.13). All ranks make it, in the same order among their other calls.
    ///
    /// Errors: as [`Split::dup`](crate::Split::dup); what of the arguments [`Broadcast::broadcast`]
    /// refuses. From its starts and waits as that.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let mut call = ctx.broadcast_init(vec![ctx.rank(); 3], 1)?;
    ///     call.start()?;
    ///     call.wait()?;
    ///     assert_eq!(call.into_buffers()?, [1; 3]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn broadcast_init<B>(&self, buf: B, root: usize) -> Result<Persistent<B>>
    where
        B: BufferMut + Send + 'static;
}

impl BroadcastInit for Comm {
    fn broadcast_init<B>(&self, buf: B, root: usize) -> Result<Persistent<B>>
    where
        B: BufferMut + Send + 'static,
    {
        let site = Location::caller();
        let call = Call::new(Kind::Broadcast, site)
            .form(Form::Init)
            .data(&B::Elem::DTYPE, buf.erased().len())
            .root(root);
        let comm = self.dup()?;
        Internals::persistent(comm, call, buf, None, move |comm, buf| {
            super::broadcast(comm, buf, root, site)
        })
    }
}
