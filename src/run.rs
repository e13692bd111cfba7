//! Entering the world that a launcher has made.

use std::sync::Arc;

use spmd_core::internal::Plane;

use crate::{Ctx, Result};

/// What a program's `main` is, for ranks that print or write what they find: [`run`] without results,
/// which are those of all ranks in one place and of one in another. It means the same in every place:
/// each rank runs `f` once, and an error of any is one of `main`.
///
/// Errors: as [`run`].
///
/// ```
/// use spmd::prelude::*;
///
/// fn main() -> Result<()> {
///     spmd::main(|ctx| {
///         let sum = ctx.allreduce_value(ctx.rank(), Sum)?;
///         if ctx.rank() == 0 {
///             println!("{sum}");
///         }
///         Ok(())
///     })
/// }
/// ```
#[track_caller]
pub fn main<R: Send>(f: impl Fn(&Ctx) -> Result<R> + Sync) -> Result<()> {
    run(f).map(drop)
}

/// Runs `f` on the ranks of the launched world that this process hosts, and gives their results:
/// one under `spmdrun` with process ranks or under an MPI launcher (`mpiexec`, `srun`), all with
/// thread or virtual ranks, and one, rank 0 of 1, without a launcher. A program may enter the world
/// several times, on all ranks.
///
/// It returns when all ranks have left the block, so that nothing is still on the way.
///
/// Errors: that of this process's rank, or what stopped it; messages that nobody received; the
/// launcher's environment cannot be used; there is no MPI library where one is needed. A panic of a
/// process rank goes on as a panic. Where ranks live in several processes without common memory, a
/// rank's error ends them all, after this process has said what it was.
///
/// ```
/// # use spmd::{run, Result};
/// fn main() -> Result<()> {
///     run(|ctx| {
///         println!("rank {} of {}", ctx.rank(), ctx.size());
///         Ok(())
///     })?;
///     Ok(())
/// }
/// ```
#[track_caller]
pub fn run<R, F>(f: F) -> Result<Vec<R>>
where
    F: Fn(&Ctx) -> Result<R> + Sync,
    R: Send,
{
    run_on_planes(&[], f)
}

/// [`run`] with planes that carry out calls on memory of their own, the first that can: those of
/// `spmd::gpu` (feature `gpu`) on device buffers. All processes name the same.
///
/// Errors: as [`run`].
///
#[cfg_attr(feature = "gpu", doc = "```no_run")]
#[cfg_attr(not(feature = "gpu"), doc = "```ignore")]
/// use spmd::gpu::{OnDevice, planes};
/// use spmd::prelude::*;
///
/// spmd::run_on_planes(&planes(), |ctx| {
///     let mut sums = ctx.device()?.buffer_from(&[1.0f32; 1000])?;
///     ctx.allreduce_in_place(&mut sums, Sum)
/// })?;
/// # Ok::<(), Error>(())
/// ```
#[track_caller]
pub fn run_on_planes<R, F>(planes: &[Arc<dyn Plane>], f: F) -> Result<Vec<R>>
where
    F: Fn(&Ctx) -> Result<R> + Sync,
    R: Send,
{
    let all = [&[spmd_collectives::cluster()], planes].concat();
    spmd_core::boot::run_with(spmd_mpi::world, &all, f)
}
