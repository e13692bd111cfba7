//! Tests whether requests are complete.

use spmd_core::Result;

use crate::handles::Request;
use crate::library::Library;
use crate::mpi::Calls;

/// Whether a request for one other process is complete; none if that has failed. An error completes
/// it.
pub fn done(mpi: &Calls<'_>, request: &mut Request) -> Result<Option<bool>> {
    let mut flag = 0;
    // SAFETY: `request` is null or active, for its owner gives it here alone.
    let code = unsafe { (mpi.functions.test)(request, &mut flag, mpi.constants.status_ignore) };
    let lives = mpi.check_sent("MPI_Test", code);
    if !matches!(lives, Ok(true)) {
        *request = mpi.constants.request_null;
    }
    lives.map(|lives| lives.then_some(flag != 0))
}

/// Whether a request is complete. An error completes it.
pub fn complete(mpi: &Library, request: &mut Request) -> Result<bool> {
    let mut flag = 0;
    // SAFETY: `request` is null or active, for its owner gives it here alone; MPI makes it null
    // when it is complete.
    let tested = unsafe { mpi.test(request, &mut flag, mpi.constants.status_ignore) };
    if tested.is_err() {
        *request = mpi.constants.request_null;
    }
    tested.map(|()| flag != 0)
}
