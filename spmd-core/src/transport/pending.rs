//! Messages under way, on the sender's side.

use super::shared::waiter::Waiter;
use crate::error::Result;

/// A message whose data the receiver may not have taken yet. The sender's buffer must stay as it
/// is until [`PendingSend::complete`] has returned.
#[must_use]
pub(crate) enum PendingSend<'a> {
    /// Nothing to wait for.
    Done,
    /// The receiver takes the data from the sender.
    SenderSide(Box<dyn SenderSide + 'a>),
}

/// The sender's part in a message under way. Dropping it takes the data back: nobody reads them
/// after that.
pub(crate) trait SenderSide {
    /// Waits until the receiver has taken the data, or has refused them.
    fn complete(&self, waiter: &Waiter<'_>) -> Result<()>;
}

impl PendingSend<'_> {
    /// Waits until the receiver has taken the data.
    pub(crate) fn complete(self, waiter: &Waiter<'_>) -> Result<()> {
        match &self {
            PendingSend::Done => Ok(()),
            // An error drops it, which takes the data back.
            PendingSend::SenderSide(message) => message.complete(waiter),
        }
    }
}
