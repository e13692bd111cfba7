//! One program, many ranks.

pub use spmd_collectives::*;
pub use spmd_core::*;
