//! What a detector sees of the ranks of its process.

use std::time::Duration;

use super::state::ProcessState;
use crate::fault::Fault;

/// The ranks of a process, in a block.
pub(in super::super) trait Observed: Send + Sync {
    /// How things stand.
    fn state(&self) -> ProcessState;

    /// The last round of the block's own communicator that they have begun.
    fn begun(&self) -> u64;

    /// Whether they have done all that they do in their block.
    fn have_ended(&self) -> bool;

    /// How long a call may wait.
    fn timeout(&self) -> Option<Duration>;

    /// Ends their waits.
    fn stop(&self, fault: &Fault);

    /// Whether they know that a process is gone, or about to go.
    fn have_lost(&self, process: usize) -> bool;

    /// The ranks of another process have failed, all of them for this reason.
    fn lose(&self, process: usize, fault: &Fault);

    /// Another process is gone.
    fn mark_dead(&self, process: usize);
}
