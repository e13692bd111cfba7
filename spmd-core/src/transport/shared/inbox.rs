//! Messages that have come and wait to be received.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::MutexGuard;

use super::Endpoint;
use super::ring::{Letter, Place, RING, RingReader};
use super::spare::Spare;
use crate::error::{Error, Result};
use crate::transport::message::{Arrived, Body, Data, Envelope, Kept, Wanted};

/// One rank's messages, in the order in which they came from each source.
pub(crate) struct Inbox {
    waiting: VecDeque<Kept>,
    /// What was last looked for in vain, and among how many: a wait looks again and again.
    searched: Option<(Wanted, usize)>,
    readers: Vec<Option<RingReader>>,
    /// What the messages in `waiting` take, for each source that has a ring.
    held: Vec<usize>,
    spare: Spare,
}

/// By how much what is kept from a source may exceed the window: the source may not have looked
/// since, and have filled its ring with short messages, each of which takes more in here.
const OVERHANG: usize = 6 * RING as usize;

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
        let (waiting, searched, readers, held, spare) = Default::default();
        Inbox { waiting, searched, readers, held, spare }
    }

    fn position(&mut self, wanted: &Wanted) -> Option<usize> {
        match self.waiting.front() {
            None => return None,
            Some(first) if wanted.fits(&first.envelope) => return Some(0),
            Some(_) => {}
        }
        let earlier = self.searched.filter(|(before, _)| before == wanted);
        let from = earlier.map_or(0, |(_, searched)| searched);
        let found = self.waiting.range(from..).position(|kept| wanted.fits(&kept.envelope));
        if found.is_none() {
            self.searched = Some((*wanted, self.waiting.len()));
        }
        found.map(|index| from + index)
    }

    /// Takes the first kept message that fits.
    #[inline]
    fn take_kept(&mut self, endpoint: &Endpoint, wanted: &Wanted) -> Option<Kept> {
        if self.waiting.is_empty() {
            return None;
        }
        let kept = self.position(wanted).and_then(|index| self.waiting.remove(index))?;
        self.searched = None;
        self.release(endpoint, &kept);
        Some(kept)
    }

    /// Drops all messages for which `keeps` says no.
    fn drop_but(&mut self, endpoint: &Endpoint, mut keeps: impl FnMut(&Envelope) -> bool) {
        self.searched = None;
        for kept in std::mem::take(&mut self.waiting) {
            match keeps(&kept.envelope) {
                true => self.waiting.push_back(kept),
                false => self.release(endpoint, &kept),
            }
        }
    }

    /// A message is kept no longer: there is room for another one.
    fn release(&mut self, endpoint: &Endpoint, kept: &Kept) {
        if let Some(queue) = endpoint.world.queue(endpoint.rank) {
            return queue.release(kept.weight());
        }
        let source = kept.envelope.source as usize;
        let (held, window) = (&mut self.held[source], endpoint.world.tuning.window);
        let was_full = *held > window;
        *held -= kept.weight();
        if was_full && *held <= window {
            endpoint.world.memory.ack(endpoint.rank, source).full.store(0, Relaxed);
        }
    }

    /// The next message in the ring from `source`.
    #[inline]
    fn next(&mut self, endpoint: &Endpoint, source: usize) -> Result<Option<Letter>> {
        match self.readers.get_mut(source) {
            Some(Some(reader)) if !reader.has_next() => Ok(None),
            Some(Some(reader)) => reader.next(endpoint, source),
            _ if !RingReader::is_there(endpoint, source) => Ok(None),
            _ => self.first(endpoint, source),
        }
    }

    #[cold]
    fn first(&mut self, endpoint: &Endpoint, source: usize) -> Result<Option<Letter>> {
        self.readers.resize_with(endpoint.world.size(), || None);
        self.held.resize(endpoint.world.size(), 0);
        self.readers[source] = RingReader::find(endpoint, source)?;
        self.readers[source].as_mut().map_or(Ok(None), |reader| reader.next(endpoint, source))
    }

    /// Keeps a message that nobody wants yet. Tells its sender if that is to send no more without
    /// waiting.
    fn keep(&mut self, endpoint: &Endpoint, source: usize, letter: Letter) -> Result<()> {
        let window = endpoint.world.tuning.window;
        if self.held[source] > window.saturating_add(OVERHANG) {
            let what = "it sends more than its receiver's window allows";
            return Err(Error::Corrupt { rank: source, what });
        }
        let Letter { envelope, body, end } = letter;
        let data = match body {
            Place::Ring(data) => {
                let mut bytes = self.spare.take(envelope.bytes);
                // SAFETY: the ring holds the message's bytes, and the vector has room for them.
                unsafe {
                    std::ptr::copy_nonoverlapping(data, bytes.as_mut_ptr(), envelope.bytes);
                    bytes.set_len(envelope.bytes);
                }
                Data::Here(bytes)
            }
            Place::Lane(large) => Data::There(Box::new(large)),
        };
        let kept = Kept { envelope, data };
        self.held[source] += kept.weight();
        if self.held[source] > window {
            // Whoever sees that the message was read sees this.
            endpoint.world.memory.ack(endpoint.rank, source).full.store(1, Relaxed);
        }
        self.waiting.push_back(kept);
        self.pass(endpoint, source, end);
        Ok(())
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
        if let Some(kept) = inbox.take_kept(self, wanted) {
            return Ok(Some(Arrived::from(kept)));
        }
        if let Some(queue) = self.world.queue(self.rank) {
            if queue.is_empty() {
                return Ok(None);
            }
            let before = inbox.waiting.len();
            self.collect(&mut inbox, wanted.source)?;
            let found = inbox.take_kept(self, wanted);
            if inbox.waiting.len() > before {
                self.ring_other_agents();
            }
            return Ok(found.map(Arrived::from));
        }
        for source in self.sources(wanted.source) {
            while let Some(letter) = inbox.next(self, source)? {
                if !wanted.fits(&letter.envelope) {
                    inbox.keep(self, source, letter)?;
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

    /// The data of a message that was kept are needed no more.
    pub(crate) fn reuse(&self, data: Vec<u8>) {
        if self.world.queue(self.rank).is_none() {
            self.inbox.lock().spare.give(data);
        }
    }

    /// Something came for another agent of this rank, which may sleep on the same bell.
    #[cold]
    fn ring_other_agents(&self) {
        self.bell().ring();
    }

    fn sources(&self, source: Option<usize>) -> Range<usize> {
        source.map_or(0..self.world.size(), |source| source..source + 1)
    }

    /// Looks at the first message that fits, if one has come. It stays where it is: most are received
    /// next, from a ring without a copy more.
    pub(super) fn peek_message(&self, wanted: &Wanted) -> Result<Option<Envelope>> {
        self.make_room();
        let mut inbox = self.inbox.lock();
        if self.world.queue(self.rank).is_some() {
            self.collect(&mut inbox, wanted.source)?;
        }
        if let Some(index) = inbox.position(wanted) {
            return Ok(Some(inbox.waiting[index].envelope));
        }
        if self.world.queue(self.rank).is_none() {
            for source in self.sources(wanted.source) {
                while let Some(letter) = inbox.next(self, source)? {
                    if wanted.fits(&letter.envelope) {
                        return Ok(Some(letter.envelope));
                    }
                    inbox.keep(self, source, letter)?;
                    self.ring_other_agents();
                }
            }
        }
        Ok(None)
    }

    /// The messages of this block that nobody has received: how many, and the first. Those in
    /// communicators that were given up, and of blocks before, are dropped; those of the next
    /// block, which faster ranks have entered already, are kept for it.
    pub(crate) fn unreceived(&self, block: u32) -> Result<Option<(usize, Envelope)>> {
        let messages = self.messages_of(block);
        let mut inbox = self.inbox.lock();
        self.collect(&mut inbox, None)?;
        let (mut count, mut first) = (0, None);
        inbox.drop_but(self, |envelope| {
            let left = messages.contain(envelope.context);
            if left {
                count += 1;
                first.get_or_insert(*envelope);
            }
            left || messages.are_later(envelope.context)
        });
        Ok(first.map(|first| (count, first)))
    }

    /// Drops the messages of blocks before `block`, which all ranks have ended: one that was stopped
    /// leaves some. What is of this block comes from ranks that have entered it already, and is of its
    /// own communicator, as this rank is in no other yet.
    pub(super) fn forget_messages(&self, block: u32) {
        self.collect_all();
        let mut inbox = self.inbox.lock();
        inbox.drop_but(self, |envelope| envelope.context == u64::from(block));
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
            queue.drain(&mut inbox.waiting);
            return Ok(());
        }
        for source in self.sources(source) {
            while let Some(letter) = inbox.next(self, source)? {
                inbox.keep(self, source, letter)?;
            }
            // Its sender may wait for room.
            if let Some(Some(reader)) = inbox.readers.get_mut(source) {
                reader.tell(self, source);
            }
        }
        Ok(())
    }
}
