//! Handles of MPI, and the functions that it calls with them.

use std::ffi::{c_int, c_void};
use std::mem;

use crate::provider;

macro_rules! handles {
    ($($name:ident)*) => {$(
        #[doc = concat!("`MPI_", stringify!($name), "`.")]
        #[repr(transparent)]
        #[derive(Clone, Copy, PartialEq, Debug)]
        pub struct $name(pub provider::raw::$name);

        // SAFETY: a name that MPI has given to something of its own, and nobody else follows. Who
        // may pass it to MPI when is `Mpi`'s business.
        unsafe impl Send for $name {}

        // SAFETY: as for `Send`.
        unsafe impl Sync for $name {}

        #[allow(dead_code, reason = "not every kind is written by MPI")]
        impl $name {
            /// Room for a handle that MPI writes.
            pub fn unset() -> $name {
                // SAFETY: a number or a pointer, of which zero is a value.
                unsafe { mem::zeroed() }
            }
        }
    )*};
}

handles! { Comm Datatype Errhandler Group Info Message Op Request }

/// What `MPI_Comm_dup` calls to copy an attribute.
pub type CopyAttribute =
    unsafe extern "C" fn(Comm, c_int, *mut c_void, *mut c_void, *mut c_void, *mut c_int) -> c_int;

/// What `MPI_Finalize` calls when it frees an attribute.
pub type DeleteAttribute = unsafe extern "C" fn(Comm, c_int, *mut c_void, *mut c_void) -> c_int;

/// An error handler. MPI passes it more arguments, which are not in the standard.
pub type HandleError = unsafe extern "C" fn(*mut Comm, *mut c_int);
