//! Who goes on with the calls that a rank has started.

/// Who goes on with the calls that a rank has started, besides the rank itself in its waits
/// and tests: see [`Spmd::progress`](crate::Spmd::progress).
///
/// ```
/// use spmd::prelude::*;
/// use spmd::Progress;
///
/// Spmd::new(2).progress(Progress::Thread).run(|_ctx| Ok(()))?;
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// Nobody: they go on in calls of the library.
    #[default]
    Calls,
    /// A thread beside each rank that is a thread or a process, with collectives and large messages.
    /// Virtual ranks have none.
    Thread,
}
