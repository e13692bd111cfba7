//! The functions proposed to the MPI Forum as "User-Level Failure Mitigation", which Open MPI 5
//! has.

use std::ffi::{CStr, c_int};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;
use std::{mem, thread};

use spmd_core::Result;

use crate::handles::Comm;
use crate::library::Library;

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
    pub fn revoke(&self, comm: Comm, _: &Library) {
        // SAFETY: the communicator is valid. An error could be told to nobody.
        let _ = unsafe { (self.revoke)(comm) };
    }

    /// Lets `comm`, of `all` processes, receive from any source although processes have failed.
    pub fn acknowledge(&self, library: &Library, comm: Comm, all: usize) -> Result<()> {
        let mut known = 0;
        // SAFETY: the communicator is valid, the number writable.
        let code = unsafe { (self.acknowledge)(comm, all as c_int, &mut known) };
        library.check_survived("MPIX_Comm_ack_failed", code).map(drop)
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
pub fn symbol(name: &CStr) -> Option<usize> {
    // SAFETY: the name ends in a zero; any name may be asked for.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then(|| found.expose_provenance())
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
