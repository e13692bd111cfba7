//! Messages as every transport knows them.

use std::any::Any;

/// What a message says of itself. Text numbers refer to the source's table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Envelope {
    pub(crate) context: u64,
    /// World rank.
    pub(crate) source: u32,
    pub(crate) tag: u32,
    /// Elements.
    pub(crate) count: u64,
    pub(crate) bytes: usize,
    /// Bytes of an element.
    pub(crate) size: u32,
    pub(crate) dtype: u64,
    pub(crate) dtype_text: u16,
    pub(crate) file: u16,
    pub(crate) line: u32,
}

/// What a receive asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct MatchPattern {
    pub(crate) context: u64,
    /// World rank, or any.
    pub(crate) source: Option<usize>,
    pub(crate) tag: Option<u32>,
}

impl MatchPattern {
    pub(crate) fn fits(&self, envelope: &Envelope) -> bool {
        envelope.context == self.context
            && self.source.is_none_or(|source| source == envelope.source as usize)
            && self.tag.is_none_or(|tag| tag == envelope.tag)
    }
}

/// How a message is to be sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendMode {
    /// A small one is gone at once; a large one waits for the receiver.
    Standard,
    /// Waits for the receiver in any case.
    Synchronous,
    /// Needs no help from the sender once posted.
    Detached,
}

/// A message that waits until somebody wants it.
pub(crate) struct UnexpectedMessage {
    pub(crate) envelope: Envelope,
    pub(crate) data: Data,
    /// The number under which it is set aside for who has matched it.
    pub(crate) matched: Option<u64>,
}

impl UnexpectedMessage {
    pub(crate) fn new(envelope: Envelope, data: Data) -> UnexpectedMessage {
        UnexpectedMessage { envelope, data, matched: None }
    }

    /// Whether a receive of this pattern may have it.
    pub(crate) fn is_for(&self, pattern: &MatchPattern) -> bool {
        self.matched.is_none() && pattern.fits(&self.envelope)
    }

    /// What it takes of the receiver's memory, about, in bytes.
    pub(crate) fn weight(&self) -> usize {
        const BESIDES: usize = 128;
        BESIDES + if let Data::Here(data) = &self.data { data.len() } else { 0 }
    }
}

/// Its data.
pub(crate) enum Data {
    /// Here.
    Here(Vec<u8>),
    /// Where their sender has them, as the transport knows that has brought the message.
    There(Box<dyn Any + Send>),
}
