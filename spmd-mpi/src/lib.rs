//! What joins the processes of a world through MPI.
//!
//! [`attach`] finds an MPI library on the machine, when the program runs: nothing of MPI is needed
//! to build it. Everything else is behind the interface that it returns.
//!
//! With the feature `mpi` the program is linked with the MPI whose `mpicc` is in `PATH`, or is
//! named by `MPICC`, when it is built, and loads no other: for libraries without the standard ABI
//! of MPI
//! 5.0, as Open MPI up to 5, MPICH up to 4, and Cray's. To build it needs that `mpicc`, with the
//! library's headers, and libclang (Debian: `libopenmpi-dev` and `libclang-dev`).

#[cfg(all(unix, target_pointer_width = "64", not(feature = "mpi")))]
mod abi;
#[cfg(all(unix, target_pointer_width = "64"))]
mod bundle;
#[cfg(all(unix, target_pointer_width = "64"))]
mod calls;
#[cfg(all(unix, target_pointer_width = "64"))]
mod done;
mod environment;
#[cfg(all(unix, target_pointer_width = "64"))]
mod fabric;
pub mod find;
#[cfg(all(unix, target_pointer_width = "64"))]
mod functions;
#[cfg(all(unix, target_pointer_width = "64"))]
mod handles;
#[cfg(all(unix, target_pointer_width = "64"))]
mod heard;
#[cfg(all(unix, target_pointer_width = "64"))]
mod inbox;
#[cfg(all(unix, target_pointer_width = "64"))]
mod inits;
#[cfg(all(unix, target_pointer_width = "64"))]
mod kept;
#[cfg(all(unix, target_pointer_width = "64"))]
mod library;
#[cfg(all(unix, target_pointer_width = "64", feature = "mpi"))]
mod linked;
#[cfg(all(unix, target_pointer_width = "64"))]
mod mpi;
#[cfg(all(unix, target_pointer_width = "64"))]
mod named;
#[cfg(all(unix, target_pointer_width = "64"))]
mod packets;
#[cfg(all(unix, target_pointer_width = "64"))]
mod processes;
#[cfg(all(unix, target_pointer_width = "64"))]
mod requests;
#[cfg(all(unix, target_pointer_width = "64"))]
mod shape;
#[cfg(all(unix, target_pointer_width = "64"))]
mod steps;
#[cfg(all(unix, target_pointer_width = "64"))]
mod survive;
#[cfg(all(unix, target_pointer_width = "64"))]
mod types;
#[cfg(all(unix, target_pointer_width = "64"))]
mod ulfm;

// Where the library comes from: its functions and constants, and what handles and counts are.
#[cfg(all(unix, target_pointer_width = "64", not(feature = "mpi")))]
use abi as provider;
#[cfg(all(unix, target_pointer_width = "64", feature = "mpi"))]
use linked as provider;

use std::env;
use std::sync::Arc;

use spmd_core::boot::NCCL;
use spmd_core::transport::fabric::Fabric;
use spmd_core::{Error, Result};

/// Joins the processes that an MPI launcher has started; alone, a process is a world of one.
///
/// All processes must call it. The first call loads the library and initialises MPI, unless the
/// program has done so; what was initialised here is finalised when the process exits. Later calls
/// return the same.
///
/// The library is the one that [`find::here`] finds, by `SPMD_MPI_LIB`, in the loader's folders,
/// beside the `mpirun` or `mpiexec` on `PATH`, or in the active Python environment. With the
/// feature `mpi` it is the one that the program is linked with.
///
/// # Errors
/// [`Error::Unavailable`] where there is no library of use, or one that does not belong to the
/// launcher; [`Error::Library`] where MPI refuses.
///
/// ```no_run
/// let fabric = spmd_mpi::attach()?;
/// println!("process {} of {} on {}", fabric.process(), fabric.processes(), fabric.name());
/// # Ok::<(), spmd_core::Error>(())
/// ```
pub fn attach() -> Result<Arc<dyn Fabric>> {
    #[cfg(all(unix, target_pointer_width = "64"))]
    return fabric::attach();
    #[cfg(not(all(unix, target_pointer_width = "64")))]
    return Err(Error::unavailable(
        "MPI".to_owned(),
        "it is supported on 64-bit Unix systems alone".to_owned(),
        "run the ranks as threads, or on such a system".to_owned(),
    ));
}

/// [`attach`], where `SPMD_TRANSPORT` says `mpi`, or an MPI launcher has started this process and
/// it does not say `shm`. `nccl`, which is of device buffers, leaves that as `auto` does.
///
/// # Errors
/// As [`attach`]; the variable says something else.
pub fn world() -> Result<Option<Arc<dyn Fabric>>> {
    let wanted = match env::var("SPMD_TRANSPORT").ok().as_deref() {
        None | Some("" | "auto" | NCCL) => launched(),
        Some("mpi") => true,
        Some("shm") => false,
        Some(other) => {
            let text = format!("SPMD_TRANSPORT={other} is not auto, shm, mpi or nccl");
            return Err(Error::boot(text));
        }
    };
    if wanted { attach().map(Some) } else { Ok(None) }
}

/// Whether an MPI launcher has started this process, as its environment says. Loads nothing.
///
/// ```
/// if !spmd_mpi::launched() {
///     println!("alone");
/// }
/// ```
pub fn launched() -> bool {
    environment::launched(|name| env::var(name).ok())
}
