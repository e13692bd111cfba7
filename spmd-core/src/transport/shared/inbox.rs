//! Messages that have come and wait to be received.

use std::collections::VecDeque;

use super::Endpoint;
use super::ring::RingReader;
use crate::error::Result;
use crate::transport::message::{Arrived, Envelope, Wanted};

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
    pub(super) fn take_message(&self, wanted: &Wanted) -> Result<Option<Arrived>> {
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
    pub(super) fn peek_message(&self, wanted: &Wanted) -> Result<Option<Envelope>> {
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
