//! Broadcast as a request.

use std::panic::Location;

use spmd_core::internal::{Call, Form, Kind, Starts};
use spmd_core::{BufferMut, Comm, Element, Request, Result};

#[cfg(doc)]
use super::Broadcast;
use crate::sealed::Sealed;

/// [`Broadcast`] as requests, which own their buffers (MPI 5.0 section 6.12).
pub trait BroadcastStart: Sealed {
    /// Starts [`Broadcast::broadcast`]; the request gives back its buffer (MPI 5.0 section 6.12).
    /// All ranks start it, in the same order among the calls that they start and make.
    ///
    /// Errors: as [`Broadcast::broadcast`], here or from [`Request::wait`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let request = ctx.broadcast_start(vec![ctx.rank(); 3], 1)?;
    ///     assert_eq!(request.wait()?, [1; 3]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn broadcast_start<B>(&self, buf: B, root: usize) -> Result<Request<B>>
    where
        B: BufferMut + Send + 'static;
}

impl BroadcastStart for Comm {
    fn broadcast_start<B>(&self, buf: B, root: usize) -> Result<Request<B>>
    where
        B: BufferMut + Send + 'static,
    {
        self.internals().broadcast(buf, root)
    }
}

/// [`Broadcast`] as requests, of what outlives the scope that they are started in
/// ([`Comm::requests`](spmd_core::Comm::requests)).
pub trait BroadcastRequests<'a>: Starts<'a> {
    /// Starts [`Broadcast::broadcast`], as
    /// [`BroadcastStart::broadcast_start`] does.
    #[track_caller]
    fn broadcast<B>(&self, buf: B, root: usize) -> Result<Request<B>>
    where
        B: BufferMut + Send + 'a,
    {
        let site = Location::caller();
        let call = Call::new(Kind::Broadcast, site)
            .form(Form::Start)
            .data(&B::Elem::DTYPE, buf.erased().len())
            .root(root);
        let mut buf = buf;
        self.start(call, move |comm| {
            super::broadcast(comm, &mut buf, root, site)?;
            Ok(buf)
        })
    }
}

impl<'a, S: Starts<'a>> BroadcastRequests<'a> for S {}
