//! Where ranks run.

/// Where the ranks of a world run, as [`Ctx::mode`](crate::Ctx::mode) tells.
///
/// ```
/// # use spmd_core::{Mode, spmd};
/// spmd(2, |ctx| {
///     let together = ctx.mode() != Mode::Processes; // statics are shared
///     assert!(together);
///     Ok(())
/// })?;
/// # Ok::<(), spmd_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Each on an OS thread of this process.
    Threads,
    /// Each on a coroutine of this process.
    Virtual,
    /// Each in a process of its own.
    Processes,
}
