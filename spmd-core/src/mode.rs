//! Where ranks run.

use std::fmt;

/// Where the ranks of a world run, as [`Ctx::mode`](crate::Ctx::mode) tells.
///
/// ```
/// use spmd::prelude::*;
/// use spmd::Mode;
///
/// spmd(2, |ctx| {
///     let together = ctx.mode() != Mode::Processes; // statics are shared
///     assert!(together);
///     Ok(())
/// })?;
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// Each on an OS thread of this process.
    Threads,
    /// Each on a coroutine of this process.
    Virtual,
    /// Each in a process of its own.
    Processes,
}

/// As `spmdrun --as` and `SPMD_AS` name it.
///
/// ```
/// use spmd::prelude::*;
/// use spmd::Mode;
///
/// assert_eq!(Mode::Virtual.to_string(), "virtual");
/// ```
impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Mode::Threads => "threads",
            Mode::Virtual => "virtual",
            Mode::Processes => "processes",
        })
    }
}
