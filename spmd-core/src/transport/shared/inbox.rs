//! Messages that have come and wait to be received.

use std::collections::VecDeque;

use super::Endpoint;
use super::queue::Handover;
use super::ring::{Large, RingReader};
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
    pub(crate) dtype: u32,
    pub(crate) dtype_text: u32,
    pub(crate) file: u32,
    pub(crate) line: u32,
}

/// Where the data of a message are.
pub(crate) enum Body {
    /// Here.
    Eager(Vec<u8>),
    /// In the sender's memory, in this process.
    Handover(Handover),
    /// In the sender's segment, or its private memory.
    Large(Large),
}

/// A message that has come.
pub(crate) struct Arrived {
    pub(crate) envelope: Envelope,
    pub(crate) body: Body,
}

/// What a receive asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) context: u64,
    /// World rank, or any.
    pub(crate) source: Option<usize>,
    pub(crate) tag: Option<u32>,
}

impl Wanted {
    fn fits(&self, envelope: &Envelope) -> bool {
        envelope.context == self.context
            && self.source.is_none_or(|source| source == envelope.source as usize)
            && self.tag.is_none_or(|tag| tag == envelope.tag)
    }
}

/// One rank's messages, in the order in which they came from each source.
pub(crate) struct Inbox {
    waiting: VecDeque<Arrived>,
    pub(super) readers: Vec<Option<RingReader>>,
}

impl Inbox {
    pub(super) fn new(_ranks: usize) -> Inbox {
        Inbox { waiting: VecDeque::new(), readers: Vec::new() }
    }

    fn position(&self, wanted: &Wanted) -> Option<usize> {
        self.waiting.iter().position(|arrived| wanted.fits(&arrived.envelope))
    }
}

impl Endpoint {
    /// Takes the first message that fits, if one has come.
    pub(crate) fn take(&self, wanted: &Wanted) -> Result<Option<Arrived>> {
        let mut inbox = self.inbox.lock();
        let mut found = inbox.position(wanted);
        if found.is_none() {
            let before = inbox.waiting.len();
            self.collect(&mut inbox, wanted.source)?;
            found = inbox.position(wanted);
            if inbox.waiting.len() > before + usize::from(found.is_some()) {
                // What came for another agent of this rank, which may sleep on the same bell.
                self.bell().ring();
            }
        }
        Ok(found.and_then(|index| inbox.waiting.remove(index)))
    }

    /// Looks at the first message that fits, if one has come.
    pub(crate) fn peek(&self, wanted: &Wanted) -> Result<Option<Envelope>> {
        let mut inbox = self.inbox.lock();
        self.collect(&mut inbox, wanted.source)?;
        Ok(inbox.position(wanted).map(|index| inbox.waiting[index].envelope))
    }

    /// The messages of these contexts that nobody has received: how many, and the first.
    pub(crate) fn unreceived(
        &self,
        concerns: impl Fn(u64) -> bool,
    ) -> Result<Option<(usize, Envelope)>> {
        let mut inbox = self.inbox.lock();
        self.collect(&mut inbox, None)?;
        let mut left = inbox.waiting.iter().filter(|a| concerns(a.envelope.context));
        let first = left.next().map(|arrived| arrived.envelope);
        Ok(first.map(|first| (1 + left.count(), first)))
    }

    /// Makes room in all rings to this rank. What is wrong with one is an error for the call that
    /// wants a message from it.
    pub(super) fn collect_all(&self) {
        if self.world.queue(self.rank).is_none() {
            let mut inbox = self.inbox.lock();
            let sources = 0..self.world.size();
            sources.for_each(|source| drop(self.collect(&mut inbox, Some(source))));
        }
    }

    /// Moves what has come (from one source, or all) into the inbox.
    fn collect(&self, inbox: &mut Inbox, source: Option<usize>) -> Result<()> {
        if let Some(queue) = self.world.queue(self.rank) {
            inbox.waiting.extend(queue.drain());
            return Ok(());
        }
        let Inbox { waiting, readers } = inbox;
        readers.resize_with(self.world.size(), || None);
        let sources = source.map_or(0..self.world.size(), |source| source..source + 1);
        for source in sources {
            let reader = &mut readers[source];
            if reader.is_none() {
                *reader = RingReader::find(self, source)?;
            }
            if let Some(reader) = reader {
                while let Some(arrived) = reader.next(self, source)? {
                    waiting.push_back(arrived);
                }
            }
        }
        Ok(())
    }
}
