//! What handles and `MPI_Status` are made of in the standard ABI.

use std::ffi::c_int;

/// Handles are of the size of a pointer.
pub mod raw {
    /// `MPI_Comm`.
    pub type Comm = usize;
    /// `MPI_Datatype`.
    pub type Datatype = usize;
    /// `MPI_Errhandler`.
    pub type Errhandler = usize;
    /// `MPI_Group`.
    pub type Group = usize;
    /// `MPI_Info`.
    pub type Info = usize;
    /// `MPI_Message`.
    pub type Message = usize;
    /// `MPI_Op`.
    pub type Op = usize;
    /// `MPI_Request`.
    pub type Request = usize;
}

/// The handle of a communicator as a number.
pub fn bits(comm: raw::Comm) -> usize {
    comm
}

/// `MPI_Status`.
#[repr(C)]
#[derive(Default)]
pub struct Status {
    source: c_int,
    tag: c_int,
    error: c_int,
    internal: [c_int; 5],
}

impl Status {
    /// `MPI_SOURCE`.
    pub fn source(&self) -> c_int {
        self.source
    }
}

/// `MPI_Count`.
pub type Count = i64;

/// Where a block starts: `MPI_Aint`.
pub type Start = isize;
