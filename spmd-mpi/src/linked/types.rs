//! What handles and `MPI_Status` are made of in the header that the program was built with.

use std::ffi::c_int;
use std::mem;

/// Numbers in MPICH and what is made from it, pointers in Open MPI.
pub mod raw {
    pub use rsmpi::ffi::{
        MPI_Comm as Comm, MPI_Datatype as Datatype, MPI_Errhandler as Errhandler,
        MPI_Group as Group, MPI_Info as Info, MPI_Message as Message, MPI_Op as Op,
        MPI_Request as Request,
    };
}

/// The handle of a communicator as a number.
pub fn bits(comm: raw::Comm) -> usize {
    comm.0 as usize
}

/// `MPI_Status`.
#[repr(transparent)]
pub struct Status(rsmpi::ffi::MPI_Status);

impl Default for Status {
    fn default() -> Status {
        // SAFETY: numbers, of which zero is one.
        Status(unsafe { mem::zeroed() })
    }
}

impl Status {
    /// `MPI_SOURCE`.
    pub fn source(&self) -> c_int {
        self.0.MPI_SOURCE
    }
}

/// How many elements there are.
pub type Count = c_int;

/// Where a block starts, in elements.
pub type Start = c_int;
