//! What ranks have their devices do together.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::error::GpuError;

/// Work on a device that other ranks must join, which may fail to.
pub(crate) trait Joint: Send + Sync {
    /// Looks whether they will, after the host has waited so long. Otherwise it ends the work, and what
    /// comes after it in the stream goes on.
    ///
    /// Errors: why they will not.
    fn check(&self, waited: Duration) -> Result<(), GpuError>;

    /// Ends the work, as ranks are known not to join it.
    fn end(&self);

    /// The device of this number does nothing any more, nor what others wait for. Told to them without a wait.
    fn is_lost(&self, ordinal: u32);

    /// Whether the program was told of what [`check`](Joint::check) says.
    fn was_told(&self) -> &AtomicBool;
}
