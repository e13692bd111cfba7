//! Messages as every transport knows them.

use super::shared::Lent;
use super::shared::agents::Waiter;
use crate::error::Result;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) context: u64,
    /// World rank, or any.
    pub(crate) source: Option<usize>,
    pub(crate) tag: Option<u32>,
}

impl Wanted {
    pub(crate) fn fits(&self, envelope: &Envelope) -> bool {
        envelope.context == self.context
            && self.source.is_none_or(|source| source == envelope.source as usize)
            && self.tag.is_none_or(|tag| tag == envelope.tag)
    }
}

/// How a message is to be sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// A small one is gone at once; a large one waits for the receiver.
    Standard,
    /// Waits for the receiver in any case.
    Synchronous,
    /// Needs no help from the sender once posted.
    Detached,
}

/// A message whose data the receiver may not have taken yet. The sender's buffer must stay as it
/// is until [`Pending::complete`] has returned.
#[must_use]
pub(crate) enum Pending<'a> {
    /// Nothing to wait for.
    Done,
    /// The receiver takes the data from the sender.
    Underway(Box<dyn Underway + 'a>),
}

/// The sender's part in a message under way. Dropping it takes the data back: nobody reads them
/// after that.
pub(crate) trait Underway {
    /// Waits until the receiver has taken the data, or has refused them.
    fn complete(&self, waiter: &Waiter<'_>) -> Result<()>;
}

impl Pending<'_> {
    /// Waits until the receiver has taken the data.
    pub(crate) fn complete(self, waiter: &Waiter<'_>) -> Result<()> {
        match &self {
            Pending::Done => Ok(()),
            // An error drops it, which takes the data back.
            Pending::Underway(message) => message.complete(waiter),
        }
    }
}

/// A message that has come. It is over when it is dropped, taken or not.
pub(crate) struct Arrived<'a> {
    pub(crate) envelope: Envelope,
    pub(crate) body: Body<'a>,
}

/// Where the data of a message are.
pub(crate) enum Body<'a> {
    /// Where they came, as long as this lives; nothing else that comes is looked at meanwhile.
    Lent(Lent<'a>),
    Kept(Data),
}

/// A message that waits until somebody wants it.
pub(crate) struct Kept {
    pub(crate) envelope: Envelope,
    pub(crate) data: Data,
}

impl Kept {
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
    /// Where their sender has them.
    There(Box<dyn There>),
}

/// Data that wait where their sender has them.
pub(crate) trait There: Send {
    /// Takes them to `into`, and tells the sender. False if it has withdrawn them.
    ///
    /// # Safety
    /// `into` is valid for writes of the envelope's bytes.
    unsafe fn fetch(
        self: Box<Self>,
        envelope: &Envelope,
        into: *mut u8,
        waiter: &Waiter<'_>,
    ) -> Result<bool>;

    /// Tells the sender that they will not be taken.
    fn refuse(self: Box<Self>, envelope: &Envelope, waiter: &Waiter<'_>);
}

impl From<Kept> for Arrived<'_> {
    fn from(Kept { envelope, data }: Kept) -> Self {
        Arrived { envelope, body: Body::Kept(data) }
    }
}

impl Arrived<'_> {
    /// Takes the data of a message to `into`.
    ///
    /// # Safety
    /// `into` is valid for writes of the message's bytes.
    pub(crate) unsafe fn fetch(self, into: *mut u8, waiter: &Waiter<'_>) -> Result<()> {
        let Arrived { envelope, body } = self;
        let taken = match body {
            Body::Kept(Data::Here(data)) => {
                assert_eq!(data.len(), envelope.bytes);
                // SAFETY: the target has room for the envelope's bytes, and the source, a vector
                // of this rank's own, has as many.
                unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), into, data.len()) };
                waiter.endpoint.reuse(data);
                true
            }
            Body::Lent(data) => {
                // SAFETY: the target is valid, as the caller promises.
                unsafe { data.copy(into) };
                true
            }
            // SAFETY: as above.
            Body::Kept(Data::There(data)) => unsafe { data.fetch(&envelope, into, waiter)? },
        };
        if taken {
            return Ok(());
        }
        // It was withdrawn: its sender has failed, and says so by a fault.
        waiter.until_by(Some(envelope.source as usize), || None)
    }

    /// Tells the sender of a message that will not be taken that it has been.
    pub(crate) fn refuse(self, waiter: &Waiter<'_>) {
        if let Body::Kept(Data::There(data)) = self.body {
            data.refuse(&self.envelope, waiter);
        }
    }
}
