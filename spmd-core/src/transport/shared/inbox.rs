//! Messages that have come and wait to be received.

use std::collections::VecDeque;
use std::ops::Range;

use parking_lot::MutexGuard;

use super::Endpoint;
use super::ring::{Letter, Place, RingReader};
use crate::error::Result;
use crate::transport::message::{Arrived, Body, Data, Envelope, Kept, Wanted};

/// One rank's messages, in the order in which they came from each source.
pub(crate) struct Inbox {
    waiting: VecDeque<Kept>,
    readers: Vec<Option<RingReader>>,
}

/// The data of a message that are still in the ring; they leave it when this is dropped.
pub(crate) struct Lent<'a> {
    inbox: MutexGuard<'a, Inbox>,
    endpoint: &'a Endpoint,
    source: usize,
    data: *const u8,
    bytes: usize,
    end: u64,
}

impl Lent<'_> {
    /// Copies the data, as many bytes as the envelope says.
    ///
    /// # Safety
    /// `into` is valid for writes of so many.
    pub(crate) unsafe fn copy(&self, into: *mut u8) {
        // SAFETY: the data lie in the ring, as its reader, locked in here, has checked; `into` is a
        // buffer's memory, which is no ring's. The data are bytes: whatever the sender does to them
        // meanwhile, the copy is some bytes.
        unsafe { std::ptr::copy_nonoverlapping(self.data, into, self.bytes) };
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.inbox.pass(self.endpoint, self.source, self.end);
    }
}

impl Inbox {
    pub(super) fn new() -> Inbox {
        Inbox { waiting: VecDeque::new(), readers: Vec::new() }
    }

    fn position(&self, wanted: &Wanted) -> Option<usize> {
        self.waiting.iter().position(|arrived| wanted.fits(&arrived.envelope))
    }

    /// The next message in the ring from `source`.
    #[inline]
    fn next(&mut self, endpoint: &Endpoint, source: usize) -> Result<Option<Letter>> {
        match self.readers.get_mut(source) {
            Some(Some(reader)) if !reader.has_next() => Ok(None),
            Some(Some(reader)) => reader.next(endpoint, source),
            _ => self.first(endpoint, source),
        }
    }

    #[cold]
    fn first(&mut self, endpoint: &Endpoint, source: usize) -> Result<Option<Letter>> {
        self.readers.resize_with(endpoint.world.size(), || None);
        self.readers[source] = RingReader::find(endpoint, source)?;
        self.readers[source].as_mut().map_or(Ok(None), |reader| reader.next(endpoint, source))
    }

    /// Keeps a message that nobody wants yet.
    fn keep(&mut self, endpoint: &Endpoint, source: usize, letter: Letter) {
        let Letter { envelope, body, end } = letter;
        let data = match body {
            Place::Ring(data) => {
                let mut bytes = Vec::<u8>::with_capacity(envelope.bytes);
                // SAFETY: the ring holds the message's bytes, and the vector has room for them.
                unsafe {
                    std::ptr::copy_nonoverlapping(data, bytes.as_mut_ptr(), envelope.bytes);
                    bytes.set_len(envelope.bytes);
                }
                Data::Here(bytes)
            }
            Place::Lane(large) => Data::There(Box::new(large)),
        };
        self.waiting.push_back(Kept { envelope, data });
        self.pass(endpoint, source, end);
    }

    /// Goes on in the ring from `source`.
    fn pass(&mut self, endpoint: &Endpoint, source: usize, end: u64) {
        let reader = self.readers[source].as_mut();
        reader.expect("a message came by it").pass(endpoint, source, end);
    }
}

impl Endpoint {
    /// Takes the first message that fits, if one has come.
    pub(super) fn take_message(&self, wanted: &Wanted) -> Result<Option<Arrived<'_>>> {
        let mut inbox = self.inbox.lock();
        if let Some(index) = inbox.position(wanted) {
            return Ok(inbox.waiting.remove(index).map(Arrived::from));
        }
        if let Some(queue) = self.world.queue(self.rank) {
            if queue.is_empty() {
                return Ok(None);
            }
            let before = inbox.waiting.len();
            self.collect(&mut inbox, wanted.source)?;
            let found = inbox.position(wanted);
            if inbox.waiting.len() > before + usize::from(found.is_some()) {
                self.ring_other_agents();
            }
            return Ok(found.and_then(|index| inbox.waiting.remove(index)).map(Arrived::from));
        }
        for source in self.sources(wanted.source) {
            while let Some(letter) = inbox.next(self, source)? {
                if !wanted.fits(&letter.envelope) {
                    inbox.keep(self, source, letter);
                    self.ring_other_agents();
                    continue;
                }
                let Letter { envelope, body, end } = letter;
                let body = match body {
                    Place::Ring(data) => {
                        let bytes = envelope.bytes;
                        Body::Lent(Lent { inbox, endpoint: self, source, data, bytes, end })
                    }
                    Place::Lane(large) => {
                        inbox.pass(self, source, end);
                        Body::Kept(Data::There(Box::new(large)))
                    }
                };
                return Ok(Some(Arrived { envelope, body }));
            }
        }
        Ok(None)
    }

    /// Something came for another agent of this rank, which may sleep on the same bell.
    #[cold]
    fn ring_other_agents(&self) {
        self.bell().ring();
    }

    fn sources(&self, source: Option<usize>) -> Range<usize> {
        source.map_or(0..self.world.size(), |source| source..source + 1)
    }

    /// Looks at the first message that fits, if one has come.
    pub(super) fn peek_message(&self, wanted: &Wanted) -> Result<Option<Envelope>> {
        let mut inbox = self.inbox.lock();
        self.collect(&mut inbox, wanted.source)?;
        Ok(inbox.position(wanted).map(|index| inbox.waiting[index].envelope))
    }

    /// The messages that nobody has received, but for those in communicators that were given up,
    /// which are dropped: how many, and the first.
    pub(crate) fn unreceived(&self) -> Result<Option<(usize, Envelope)>> {
        let from = self.messages_from();
        let mut inbox = self.inbox.lock();
        self.collect(&mut inbox, None)?;
        inbox.waiting.retain(|arrived| arrived.envelope.context >= from);
        Ok(inbox.waiting.front().map(|first| (inbox.waiting.len(), first.envelope)))
    }

    /// Drops the messages of blocks before `block`, which all ranks have ended: one that was stopped
    /// leaves some. What is of this block comes from ranks that have entered it already, and is of its
    /// own communicator, as this rank is in no other yet.
    pub(super) fn forget_messages(&self, block: u32) {
        self.collect_all();
        let mut inbox = self.inbox.lock();
        inbox.waiting.retain(|arrived| arrived.envelope.context == u64::from(block));
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
        for source in self.sources(source) {
            while let Some(letter) = inbox.next(self, source)? {
                inbox.keep(self, source, letter);
            }
        }
        Ok(())
    }
}
