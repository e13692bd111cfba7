//! One program, many ranks.

pub use spmd_collectives::*;
pub use spmd_core::*;

/// All that a program needs: `use spmd::prelude::*;`.
pub mod prelude {
    pub use spmd_collectives::*;
    pub use spmd_core::{
        ANY, BitAnd, BitOr, BitXor, Comm, Ctx, Error, Located, LogicalAnd, LogicalOr, Max, MaxLoc,
        Min, MinLoc, Op, Prod, Result, Spmd, Sum, run, spmd, strided, strided_mut, subarray,
        subarray_mut,
    };
}

/// The Rust code of the guides, which `cargo test --doc` runs.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../docs/from-mpi.md")]
    struct FromMpi;
    #[doc = include_str!("../docs/from-dagger.md")]
    struct FromDagger;
}
