//! What ranks tell each other of their tasks.

use serde::{Deserialize, Serialize};

use crate::placement::Scope;

/// A message from one rank to another.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Message<'a> {
    /// Run a function of this name, where it may run, and answer by this number.
    Run { id: u64, name: &'a str, args: &'a [u8], scope: Option<Scope> },
    /// Do not, or let it know that nobody wants it any more.
    Cancel { id: u64 },
    /// Answer at once: it is measured how long that takes.
    Echo { id: u64, bytes: &'a [u8] },
    /// What came of it, after so many nanoseconds: its value's bytes, or why there is none; `None` if it never
    /// began, as it was cancelled.
    Answer { id: u64, ran: u64, outcome: Result<&'a [u8], Option<&'a str>> },
    /// The sender's own tasks are over, and no more come from it. To the first rank.
    Done,
    /// Those of all ranks are. From the first rank.
    End,
}

impl<'a> Message<'a> {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("words and bytes can be serialized")
    }

    /// `None` if these bytes are no message.
    pub(crate) fn from_bytes(bytes: &'a [u8]) -> Option<Message<'a>> {
        postcard::from_bytes(bytes).ok()
    }
}
