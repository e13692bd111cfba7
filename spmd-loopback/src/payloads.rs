//! Payloads: data that go from buffer to buffer once their receiver asks for them.

use std::collections::BTreeMap;
use std::time::Instant;

/// Sender, receiver and key.
pub(crate) type Key = (usize, usize, u32);

/// Payloads that were given and not taken: each is of a message that its receiver knows, or will.
#[derive(Default)]
pub(crate) struct Payloads(pub(crate) BTreeMap<Key, Payload>);

pub(crate) struct Payload {
    pub(crate) data: PayloadData,
    pub(crate) arrival: Instant,
}

/// Where the data are.
pub(crate) enum PayloadData {
    /// With their sender, who keeps them until they have been taken or it has taken them back.
    There(*const u8, usize),
    /// Copied, as the sender may leave them.
    Copied(Vec<u8>),
}

// SAFETY: the data of another thread are only read, under the lock that their sender takes before
// it leaves them.
unsafe impl Send for PayloadData {}

impl Payloads {
    /// A process has ended: what it has not sent does not come, and nobody takes what is for it.
    pub(crate) fn forget(&mut self, process: usize) {
        self.0.retain(|(from, to, _), _| *from != process && *to != process);
    }
}
