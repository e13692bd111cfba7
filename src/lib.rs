//! One program, many ranks (SPMD): the same code runs its ranks as threads, as thousands of
//! virtual ranks, or as processes, and they meet in collective calls and messages.
//!
//! ```
//! use spmd::prelude::*;
//!
//! // Four ranks as threads of this program, which borrow its data.
//! let data: Vec<f64> = (0..1000).map(f64::from).collect();
//! let sums = spmd(4, |ctx| {
//!     let share = data.len() / ctx.size();
//!     let mine: f64 = data[ctx.rank() * share..][..share].iter().sum();
//!     ctx.allreduce_value(mine, Sum)
//! })?;
//! assert_eq!(sums, [499_500.0; 4]);
//! # Ok::<(), Error>(())
//! ```
//!
//! [`run`] enters the world that the launcher `spmdrun` has made, and [`Spmd`] sets up a block in
//! detail. A rank's [`Ctx`] derefs to the communicator of all ranks, a [`Comm`]: messages are its
//! methods, collectives those of the traits in the [`prelude`].
//!
//! Every call gives a [`Result`]. A rank that fails, panics or leaves early, ranks whose calls
//! don't fit together, and ranks that wait for each other in a cycle are errors on every rank
//! that they concern, never a silent hang. Each element of a reduction is folded in one canonical
//! order: results are the same to the last bit, run after run, wherever the ranks are.
//!
//! # Soundness
//! Safe code has no undefined behaviour, whatever other ranks do, with one exception: on a virtual
//! rank, code that leaves a reference to its stack in a thread-local for the time of a closure, as
//! the crate `scoped-tls` does, must not call this library within that closure. Another rank of the
//! same thread would find the reference when what it points to is gone. `rank_local!` is storage
//! that each rank has for itself, in every place. The guide tells which crates are fit for virtual
//! ranks.
//!
//! # Features
//! - `mpi`, off by default: links the program with the MPI whose `mpicc` is in `PATH` (or is named by
//!   `MPICC`), for libraries without the standard ABI of MPI 5.0, as Open MPI 4 and 5. The build
//!   needs that MPI's headers and libclang; without the feature it needs nothing of MPI.
//! - `anyhow`, off by default: `?` turns errors of that crate into those of this one.
//! - `ndarray`, off by default: arrays of that crate are buffers.
//! - `gpu`, off by default: buffers on GPUs (`spmd::gpu`), and what carries out calls on them. The build
//!   needs nothing of CUDA, which is looked for when a program runs.

mod run;

pub use run::{main, run, run_on_planes};
pub use spmd_collectives::gathered;
pub use spmd_collectives::{
    Aggregate, Allgather, AllgatherInit, AllgatherRequests, AllgatherStart, Allreduce,
    AllreduceInit, AllreduceRequests, AllreduceStart, Alltoall, AlltoallInit, AlltoallRequests,
    AlltoallStart, At, Barrier, BarrierInit, BarrierRequests, BarrierStart, Broadcast,
    BroadcastInit, BroadcastRequests, BroadcastStart, Cartesian, Color, Dynamic, Gather,
    GatherInit, GatherRequests, GatherStart, Gathered, Neighbor, NeighborInit, NeighborRequests,
    NeighborStart, Objects, Reduce, ReduceInit, ReduceRequests, ReduceScatter, ReduceScatterInit,
    ReduceScatterRequests, ReduceScatterStart, ReduceStart, Scan, ScanInit, ScanRequests,
    ScanStart, Scatter, ScatterInit, ScatterRequests, ScatterStart, Split, Topology, Window,
    Windows, dims_create, spmd_allgather, spmd_barrier, spmd_exchange, spmd_rank, spmd_reduce,
    spmd_size,
};
#[doc = include_str!("verbs.md")]
#[doc(inline)]
pub use spmd_core::Comm;
#[doc = include_str!("verbs.md")]
#[doc(inline)]
pub use spmd_core::Ctx;
pub use spmd_core::fault::{Cause, Fault};
pub use spmd_core::{
    ANY, Any, Bind, BitAnd, BitOr, BitXor, Buffer, BufferMut, DType, DestOrNone, EAGER_LIMIT,
    Element, Error, Located, LogicalAnd, LogicalOr, Max, MaxLoc, Message, Min, MinLoc, Mirror,
    Mode, NoOp, Op, Operation, Persistent, Prod, Progress, RankLocal, Replace, Request,
    RequestScope, Requests, Result, SharedAlloc, SharedBuf, Source, SourceOrNone, Spmd, Status,
    Sum, TagOrAny, rank_local, rank_println, spmd, strided, strided_mut, subarray, subarray_mut,
    wait_all, wait_any, wait_some, with_current,
};
pub use spmd_core::{buffer, element, error, op};
/// Makes of a function a test for each of some numbers of ranks in each of some places.
///
/// The function takes the rank, `ctx: &Ctx`, and gives nothing or a [`Result`]; each rank runs it.
///
/// | argument | | without it |
/// | --- | --- | --- |
/// | `ranks = [1, 2, 5]` | how many ranks | `[1, 2, 5]` |
/// | `places = [threads, virtual_ranks]` | where they run: `threads`, `virtual_ranks`, `processes` | these two |
/// | `crate = path` | a crate that re-exports this one | `::spmd` |
///
/// ```
/// use spmd::prelude::*;
///
/// #[spmd::test(ranks = [1, 2, 5])]
/// fn sums(ctx: &Ctx) -> Result<()> {
///     let n = ctx.size();
///     assert_eq!(ctx.allreduce_value(ctx.rank(), Sum)?, n * (n - 1) / 2);
///     Ok(())
/// }
/// # fn main() {}
/// ```
///
/// These are six tests: `sums::threads_1`, `sums::virtual_ranks_1`, `sums::threads_2` and so on, so that
/// `cargo test sums::threads` runs three of them. A test fails with the error of the first rank that
/// failed, or that panicked. `#[ignore]` and `#[should_panic]` hold for each of them, other attributes for
/// the function. There is a module of the function's name beside it.
///
/// In `processes` the launcher starts the test's program once more for each rank, with this test alone. It
/// is the `spmdrun` in `PATH`; where there is none, the test says `SKIPPED` and passes.
pub use spmd_derive::test;
#[cfg(feature = "gpu")]
pub use spmd_gpu as gpu;
pub use spmd_tasks::{self as tasks, Data, Task, Tasks};

/// The crates whose numbers are elements, as this one has them.
pub use {half, num_complex};

#[doc(hidden)]
pub mod testing;

/// Which algorithm carries out which call, as [`Spmd::force`] takes them.
pub mod algorithm {
    pub use spmd_core::algorithm::{Algorithm, Kind};
}

/// All that a program needs.
///
/// ```
/// use spmd::prelude::*;
///
/// let sums = spmd(3, |ctx| ctx.allreduce_value(ctx.rank(), Sum))?;
/// assert_eq!(sums, [3; 3]);
/// # Ok::<(), Error>(())
/// ```
pub mod prelude {
    pub use crate::{
        ANY, Allgather, AllgatherInit, AllgatherRequests, AllgatherStart, Allreduce, AllreduceInit,
        AllreduceRequests, AllreduceStart, Alltoall, AlltoallInit, AlltoallRequests, AlltoallStart,
        At, Barrier, BarrierInit, BarrierRequests, BarrierStart, BitAnd, BitOr, BitXor, Broadcast,
        BroadcastInit, BroadcastRequests, BroadcastStart, Buffer, BufferMut, Cartesian, Comm, Ctx,
        Data, Dynamic, Element, Error, Gather, GatherInit, GatherRequests, GatherStart, Gathered,
        Located, LogicalAnd, LogicalOr, Max, MaxLoc, Message, Min, MinLoc, Neighbor, NeighborInit,
        NeighborRequests, NeighborStart, NoOp, Objects, Op, Operation, Persistent, Prod, Reduce,
        ReduceInit, ReduceRequests, ReduceScatter, ReduceScatterInit, ReduceScatterRequests,
        ReduceScatterStart, ReduceStart, Replace, Request, RequestScope, Requests, Result, Scan,
        ScanInit, ScanRequests, ScanStart, Scatter, ScatterInit, ScatterRequests, ScatterStart,
        Split, Spmd, Status, Sum, Task, Tasks, Topology, Window, Windows, dims_create,
        rank_println, run, spmd, spmd_allgather, spmd_barrier, spmd_exchange, spmd_rank,
        spmd_reduce, spmd_size, strided, strided_mut, subarray, subarray_mut, wait_all, wait_any,
        wait_some,
    };
}

/// The Rust code of the guides, which `cargo test --doc` runs.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../docs/guide.md")]
    struct Guide;
    #[doc = include_str!("../docs/errors.md")]
    struct Errors;
    #[doc = include_str!("../docs/from-mpi.md")]
    struct FromMpi;
    #[doc = include_str!("../docs/from-dagger.md")]
    struct FromDagger;
}
