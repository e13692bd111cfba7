//! Lengths of memory as MPI's counts: those of the standard ABI can say all of them.

use spmd_core::Result;
use spmd_core::transport::fabric::NativeCollective;

use super::types::{Count, Start};
use crate::handles::Datatype;
use crate::library::Library;

/// Bytes in a row.
pub struct Run {
    pub count: Count,
    pub of: Datatype,
}

impl Run {
    #[inline(always)]
    pub fn of(mpi: &Library, bytes: usize) -> Result<Run> {
        Ok(Run { count: bytes as Count, of: mpi.constants.byte })
    }
}

/// Counts, one for each process, and where the blocks start.
pub struct Lists {
    pub counts: *const Count,
    pub displacements: *const Start,
    pub of: Datatype,
}

/// What MPI reads until a step is complete: nothing but the step's own slices.
pub type KeptNumbers = ();

/// Lengths are of the size of counts on 64-bit systems, and no memory has more bytes than the
/// signed type can say.
const _: () = assert!(size_of::<usize>() == size_of::<Count>());

impl Lists {
    /// The blocks, in bytes.
    #[inline(always)]
    pub fn of(mpi: &Library, bytes: &[usize], displacements: &[usize]) -> Result<Lists> {
        let (counts, displacements) = (bytes.as_ptr().cast(), displacements.as_ptr().cast());
        Ok(Lists { counts, displacements, of: mpi.constants.byte })
    }

    /// So many elements of a type, one block after the other.
    #[inline(always)]
    pub fn of_elements(counts: &[usize], of: Datatype) -> Lists {
        Lists { counts: counts.as_ptr().cast(), displacements: std::ptr::null(), of }
    }

    pub fn keep(self) -> KeptNumbers {}
}

/// The steps that make up one which is too large for a call of MPI: none is.
#[inline(always)]
pub fn pieces(_: usize, _: NativeCollective<'_>) -> Result<Option<Vec<NativeCollective<'static>>>> {
    Ok(None)
}
