//! What the threads of the launcher tell the one that watches over the job.

/// What can happen to a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Signal(i32),
    /// A watch of a job under an MPI launcher says what has stopped it.
    Alarm(String),
    /// Every pipe from the ranks has ended.
    OutputDone,
    /// What waited for one of the launcher's streams, when it was asked so many times, is written.
    Written(usize, u64),
}
