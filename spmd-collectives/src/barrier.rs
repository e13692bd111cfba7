//! Barrier (MPI 5.0 section 6.3).

pub(crate) mod init;
pub(crate) mod requests;

use std::panic::Location;

use spmd_core::internal::{Args, Call, Collective, Kind, SingleRank, dispatch};
use spmd_core::{Comm, Element, Result};

use crate::sealed::Sealed;

/// Waiting for everybody (MPI 5.0 section 6.3).
///
/// ```
/// use spmd::prelude::*;
/// # use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
/// let arrived = AtomicUsize::new(0);
/// spmd(3, |ctx| {
///     arrived.fetch_add(1, Relaxed);
///     ctx.barrier()?;
///     assert_eq!(arrived.load(Relaxed), 3);
///     Ok(())
/// })?;
/// # Ok::<(), Error>(())
/// ```
pub trait Barrier: Sealed {
    /// Returns when all ranks of the communicator have called it. All ranks call it.
    ///
    /// Cost: up to 16 ranks, n loads a rank; above, a tree of 2 log₄ n steps. What a rank wrote
    /// before is visible to all after.
    ///
    /// Errors: a rank has failed, left, or makes another call.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| ctx.barrier())?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn barrier(&self) -> Result<()>;
}

impl Barrier for Comm {
    fn barrier(&self) -> Result<()> {
        barrier(self, Location::caller())
    }
}

#[inline(always)]
fn barrier(comm: &Comm, site: &'static Location<'static>) -> Result<()> {
    let call = Call::new(Kind::Barrier, site);
    // SAFETY: no memory is named.
    unsafe { dispatch(comm, &call, &const { args() }) }
}

const BARRIER: Collective =
    Collective { kind: Kind::Barrier, single_rank: SingleRank::Nothing, arena };

/// A barrier.
#[inline]
pub const fn args() -> Args<'static> {
    Args::new(&BARRIER, &u8::DTYPE)
}

/// # Safety
/// None is needed.
unsafe fn arena(comm: &Comm, call: &Call<'_>, _: &Args<'_>) -> Result<()> {
    if comm.internals().has_combining() {
        return comm.internals().collective_combined(call, |round| round.meet());
    }
    comm.internals().collective(call, |round| round.arrive(1))
}
