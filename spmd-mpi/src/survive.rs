//! Going on when processes fail, where the library can: Open MPI 5 under `mpirun --with-ft ulfm`,
//! with the functions proposed to the MPI Forum as "User-Level Failure Mitigation".

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;
use std::{mem, ptr, thread};

use spmd_core::transport::fabric::Started;
use spmd_core::{Error, Result};

use crate::library::{Comm, Group, Library};
use crate::mpi::{Calls, Mpi};
use crate::packets::done;
use crate::started::{Begun, Underway};

type OfComm<T> = unsafe extern "C" fn(Comm, T) -> c_int;

/// The functions of the library for this.
pub struct Survival {
    revoke: unsafe extern "C" fn(Comm) -> c_int,
    shrink: OfComm<*mut Comm>,
    agree: OfComm<*mut c_int>,
    acknowledge: unsafe extern "C" fn(Comm, c_int, *mut c_int) -> c_int,
    /// Whether the library is set to it, once it is initialised.
    enabled: &'static AtomicU8,
}

/// What Open MPI's launcher sets with `--with-ft ulfm`.
const SETTING: &str = "OMPI_MCA_mpi_ft_enable";

impl Survival {
    /// None where the program is not linked with a library that has them.
    pub fn find() -> Option<Survival> {
        if !cfg!(feature = "mpi") {
            return None;
        }
        // SAFETY: these names have these prototypes and this type in Open MPI, the only library
        // with all of them; a variable of the library stays where it is.
        unsafe {
            Some(Survival {
                revoke: mem::transmute::<usize, unsafe extern "C" fn(Comm) -> c_int>(symbol(
                    c"MPIX_Comm_revoke",
                )?),
                shrink: mem::transmute::<usize, OfComm<*mut Comm>>(symbol(c"MPIX_Comm_shrink")?),
                agree: mem::transmute::<usize, OfComm<*mut c_int>>(symbol(c"MPIX_Comm_agree")?),
                acknowledge: mem::transmute::<
                    usize,
                    unsafe extern "C" fn(Comm, c_int, *mut c_int) -> c_int,
                >(symbol(c"MPIX_Comm_ack_failed")?),
                enabled: &*(symbol(c"ompi_ftmpi_enabled")? as *const AtomicU8),
            })
        }
    }

    /// Whether the launcher asks for it. Known before the library is initialised.
    pub fn is_wanted() -> bool {
        std::env::var(SETTING).is_ok_and(|value| !matches!(&*value, "" | "0" | "false"))
    }

    /// Whether the library does it. Known once it is initialised.
    pub fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed) != 0
    }

    /// Ends what is under way in `comm`, for good.
    pub fn revoke(&self, comm: Comm, _: &Calls<'_>) {
        // SAFETY: the communicator is valid. An error could be told to nobody.
        let _ = unsafe { (self.revoke)(comm) };
    }

    /// Lets `comm` receive from any source although processes have failed.
    pub fn acknowledge(&self, comm: Comm, calls: &Calls<'_>) -> Result<()> {
        let (_, all) = calls.rank_and_size(comm)?;
        let mut known = 0;
        // SAFETY: the communicator is valid, the number writable.
        let code = unsafe { (self.acknowledge)(comm, all as c_int, &mut known) };
        calls.check_survived("MPIX_Comm_ack_failed", code).map(drop)
    }

    /// The processes of `comm` that live, which call it together. It waits for them; other threads
    /// may call MPI meanwhile.
    pub fn shrink(&self, library: &Library, comm: Comm) -> Result<Comm> {
        let mut new = comm;
        // SAFETY: the communicator is valid, `new` writable, and the library serves several
        // threads.
        let code = unsafe { (self.shrink)(comm, &mut new) };
        library.check("MPIX_Comm_shrink", code).map(|()| new)
    }

    /// Whether all processes of `comm` that live say `yes`, which call it together. It waits for
    /// them; other threads may call MPI meanwhile.
    pub fn agree(&self, library: &Library, comm: Comm, yes: bool) -> Result<bool> {
        let mut all = c_int::from(yes);
        // SAFETY: as in `shrink`.
        let code = unsafe { (self.agree)(comm, &mut all) };
        // It says the same to all, also where it complains that a process has failed.
        library.check_survived("MPIX_Comm_agree", code).map(|_| all != 0)
    }
}

/// The address of something by its name, if it is in the process.
fn symbol(name: &CStr) -> Option<usize> {
    // SAFETY: the name ends in a zero; any name may be asked for.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then(|| found.expose_provenance())
}

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
    Error::Unavailable {
        what: "going on without failed processes".to_owned(),
        reason: format!("{} does not do that here", mpi.name()),
        remedy: "start the program with Open MPI 5's mpirun --with-ft ulfm".to_owned(),
    }
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

/// Waits, each process for another time, so that not all abort at once: then the launcher has been
/// seen to end with 0, or to crash. The first to abort ends the others.
pub fn wait_for_turn(library: &Library) {
    const LAST: c_int = 50;
    let mut process = 0;
    // SAFETY: the communicator is valid, the number writable, and the library serves several
    // threads. Without an answer this process is the first.
    let _ = unsafe { library.comm_rank(library.constants.comm_world, &mut process) };
    thread::sleep(Duration::from_millis(20) * process.clamp(0, LAST) as u32);
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
pub struct Gift {
    mpi: &'static Mpi,
    begun: Begun,
    data: Vec<u8>,
    lost: bool,
}

impl Gift {
    pub fn new(mpi: &'static Mpi, begun: Begun, data: Vec<u8>, lost: bool) -> Gift {
        Gift { mpi, begun, data, lost }
    }
}

impl Started for Gift {
    fn test(&mut self) -> Result<bool> {
        test(self.mpi, &mut self.begun, &mut self.lost)
    }
}

impl Drop for Gift {
    fn drop(&mut self) {
        if !matches!(self.test(), Ok(true)) && !self.lost {
            mem::forget(mem::take(&mut self.data));
        }
    }
}

/// A payload's receive whose sender may fail: then it is never complete.
pub struct Taken {
    underway: Underway,
    lost: bool,
}

impl Taken {
    pub fn new(underway: Underway, lost: bool) -> Taken {
        Taken { underway, lost }
    }
}

impl Started for Taken {
    fn test(&mut self) -> Result<bool> {
        test(self.underway.mpi, &mut self.underway.begun, &mut self.lost)
    }
}

fn test(mpi: &Mpi, begun: &mut Begun, lost: &mut bool) -> Result<bool> {
    if *lost {
        return Ok(false);
    }
    let done = done(&mpi.calls()?, &mut begun.request)?;
    *lost = done.is_none();
    Ok(done == Some(true))
}
