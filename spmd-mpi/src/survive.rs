//! Going on when processes fail, where the library can: Open MPI 5 under `mpirun --with-ft ulfm`,
//! with the functions of `ulfm.rs`.

use std::ffi::{c_int, c_void};
use std::{mem, ptr};

use spmd_core::transport::fabric::FabricRequest;
use spmd_core::{Error, Result};

use crate::done::done;
use crate::handles::{Comm, Group};
use crate::mpi::{Calls, Mpi};
use crate::requests::{BorrowedRequest, OwnedRequest};
use crate::ulfm::symbol;

/// The number in `old` of each process of `new`, all of which are in both.
pub fn numbers(calls: &Calls<'_>, new: Comm, old: Comm, count: usize) -> Result<Vec<usize>> {
    let ranks: Vec<c_int> = (0..count as c_int).collect();
    let mut there = vec![0; count];
    let (mut of_new, mut of_old) = (Group::unset(), Group::unset());
    // SAFETY: the communicators are valid, both arrays have so many numbers, and the handles that
    // are written are used once they have been.
    unsafe {
        calls.comm_group(new, &mut of_new)?;
        calls.comm_group(old, &mut of_old)?;
        let (from, into) = (ranks.as_ptr(), there.as_mut_ptr());
        calls.group_translate_ranks(of_new, count as c_int, from, of_old, into)?;
        calls.group_free(&mut of_new)?;
        calls.group_free(&mut of_old)?;
    }
    Ok(there.into_iter().map(|number| number as usize).collect())
}

/// That the library cannot do it, and what is needed.
#[cold]
pub fn missing(mpi: &Mpi) -> Error {
    Error::unavailable(
        "going on without failed processes".to_owned(),
        format!("{} does not do that here", mpi.name()),
        "start the program with Open MPI 5's mpirun --with-ft ulfm".to_owned(),
    )
}

/// Tells the launcher that this process is about to end, alone, and whether it has been told: then
/// its status is that of the job.
pub fn sign_off() -> bool {
    let Some(finalize) = symbol(c"PMIx_Finalize") else { return false };
    // SAFETY: the name has this prototype in every PMIx, of which the process is a client since MPI
    // was initialised. It needs no information, and serves several threads: what others ask of PMIx
    // from now on, MPI's among them, are errors.
    unsafe {
        let finalize =
            mem::transmute::<usize, unsafe extern "C" fn(*const c_void, usize) -> c_int>(finalize);
        finalize(ptr::null(), 0) == 0
    }
}

/// Has this called with the process's status when it exits.
pub fn leave_at_exit(leave: fn(c_int)) {
    unsafe extern "C" {
        fn on_exit(f: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
    }

    extern "C" fn at_exit(status: c_int, leave: *mut c_void) {
        // SAFETY: the argument is the function that was given below.
        let leave = unsafe { mem::transmute::<*mut c_void, fn(c_int)>(leave) };
        leave(status);
    }

    // SAFETY: the function has the prototype that is asked for, and may run at any time. Should
    // there be no memory for it, the process ends as it would without.
    unsafe { on_exit(at_exit, leave as *mut c_void) };
}

/// A payload's send whose receiver may fail, or give up to take it: MPI takes no send back, so that
/// it has a copy of its own, which stays with it if it is dropped before its end.
pub struct BufferedSend {
    mpi: &'static Mpi,
    begun: OwnedRequest,
    data: Vec<u8>,
    lost: bool,
}

impl BufferedSend {
    pub fn new(mpi: &'static Mpi, begun: OwnedRequest, data: Vec<u8>, lost: bool) -> BufferedSend {
        BufferedSend { mpi, begun, data, lost }
    }
}

impl FabricRequest for BufferedSend {
    fn test(&mut self) -> Result<bool> {
        test(self.mpi, &mut self.begun, &mut self.lost)
    }
}

impl Drop for BufferedSend {
    fn drop(&mut self) {
        if !matches!(self.test(), Ok(true)) && !self.lost {
            mem::forget(mem::take(&mut self.data));
        }
    }
}

/// A payload's receive whose sender may fail: then it is never complete.
pub struct BufferedReceive {
    underway: BorrowedRequest,
    lost: bool,
}

impl BufferedReceive {
    pub fn new(underway: BorrowedRequest, lost: bool) -> BufferedReceive {
        BufferedReceive { underway, lost }
    }
}

impl FabricRequest for BufferedReceive {
    fn test(&mut self) -> Result<bool> {
        test(self.underway.mpi, &mut self.underway.begun, &mut self.lost)
    }
}

fn test(mpi: &Mpi, begun: &mut OwnedRequest, lost: &mut bool) -> Result<bool> {
    if *lost {
        return Ok(false);
    }
    let done = done(&mpi.calls()?, &mut begun.request)?;
    *lost = done.is_none();
    Ok(done == Some(true))
}
