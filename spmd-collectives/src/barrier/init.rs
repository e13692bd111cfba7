//! Barrier as a persistent call.

use std::panic::Location;

use spmd_core::internal::{Call, Form, Internals, Kind, Shown, Steps};
use spmd_core::{Comm, Persistent, Result};

#[cfg(doc)]
use super::Barrier;
use crate::Split;
use crate::sealed::Sealed;

/// [`Barrier`] as persistent calls, which own their buffers (MPI 5.0 section 6.13).
pub trait BarrierInit: Sealed {
    /// Makes [`Barrier::barrier`] a persistent call, on a communicator of its own (MPI 5.0 section
    /// 6.13). All ranks make it, in the same order among their other calls.
    ///
    /// Errors: as [`Split::dup`](crate::Split::dup), and from its starts and waits as
    /// [`Barrier::barrier`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let mut call = ctx.barrier_init()?;
    ///     call.start()?;
    ///     call.wait()?;
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn barrier_init(&self) -> Result<Persistent<()>>;
}

impl BarrierInit for Comm {
    fn barrier_init(&self) -> Result<Persistent<()>> {
        let site = Location::caller();
        let call = Call::new(Kind::Barrier, site).form(Form::Init);
        let comm = self.dup()?;
        Internals::persistent(comm, call, (), Some(steps()), move |comm, ()| {
            super::barrier(comm, site)
        })
    }
}

/// Nothing is shown but that a rank is there.
fn steps() -> Steps<()> {
    Steps { show: Box::new(|()| Ok(Shown::There(&[]))), take: Box::new(|_, ()| Ok(())) }
}
