//! Barrier as a request.

use std::panic::Location;

use spmd_core::internal::{Call, Form, Kind, Starts};
use spmd_core::{Comm, Request, Result};

#[cfg(doc)]
use super::Barrier;
use crate::sealed::Sealed;

/// [`Barrier`] as requests, which own their buffers (MPI 5.0 section 6.12).
pub trait BarrierStart: Sealed {
    /// Starts [`Barrier::barrier`] (MPI 5.0 section 6.12). All ranks start it, in the same order
    /// among the calls that they start and make.
    ///
    /// Errors: as [`Barrier::barrier`], here or from [`Request::wait`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let request = ctx.barrier_start()?;
    ///     // Something else meanwhile.
    ///     request.wait()
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn barrier_start(&self) -> Result<Request<()>>;
}

impl BarrierStart for Comm {
    fn barrier_start(&self) -> Result<Request<()>> {
        self.internals().barrier()
    }
}

/// [`Barrier`] as requests, of what outlives the scope that they are started in
/// ([`Comm::requests`](spmd_core::Comm::requests)).
pub trait BarrierRequests<'a>: Starts<'a> {
    /// Starts [`Barrier::barrier`], as
    /// [`BarrierStart::barrier_start`] does.
    #[track_caller]
    fn barrier(&self) -> Result<Request<()>> {
        let site = Location::caller();
        let call = Call::new(Kind::Barrier, site).form(Form::Start);
        self.start(call, move |comm| {
            super::barrier(comm, site)?;
            Ok(())
        })
    }
}

impl<'a, S: Starts<'a>> BarrierRequests<'a> for S {}
