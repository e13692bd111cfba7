//! What programs have of `spmd`. Tests of that are built once more where they are linked with an MPI;
//! this crate, the longest to compile, then is not.

pub(crate) use spmd_collectives::*;
pub(crate) use spmd_core::*;
