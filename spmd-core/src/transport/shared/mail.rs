//! Receiving: what has come to a rank, from its rings or its queue.

use std::ops::Range;
use std::sync::Arc;

use super::endpoint::Endpoint;
use super::posted::Arrivals;
use super::ring::{DataPlace, RingMessage};
use super::unexpected::{Arrived, Body, Inbox, Lent, UnexpectedMessages};
use crate::element::DType;
use crate::error::{Error, Result};
use crate::transport::message::{Data, Envelope, MatchPattern, UnexpectedMessage};

impl Endpoint {
    /// Takes the first message that fits, if one has come.
    pub(super) fn take_message(&self, pattern: &MatchPattern) -> Result<Option<Arrived<'_>>> {
        let mut inbox = self.inbox.lock();
        if let Some(kept) = inbox.take_unexpected(self, pattern) {
            return Ok(Some(Arrived::from(kept)));
        }
        if let Some(queue) = self.world.queue(self.rank) {
            if queue.is_empty() {
                return Ok(None);
            }
            let before = inbox.waiting.len();
            self.collect(&mut inbox, pattern.source)?;
            let found = inbox.take_unexpected(self, pattern);
            if inbox.waiting.len() > before {
                self.ring_other_agents();
            }
            return Ok(found.map(Arrived::from));
        }
        for source in self.sources(pattern.source) {
            while let Some(message) = inbox.next(self, source)? {
                if !pattern.fits(&message.envelope) || inbox.posted.wants(&message.envelope) {
                    self.keep(&mut inbox, source, message)?;
                    continue;
                }
                let RingMessage { envelope, body, end } = message;
                let body = match body {
                    DataPlace::Ring(data) => {
                        let bytes = envelope.bytes;
                        let inbox = Inbox::Locked(inbox);
                        Body::Lent(Lent { inbox, member: self, source, data, bytes, end })
                    }
                    DataPlace::Rendezvous(large) => {
                        inbox.pass(self, source, end);
                        Body::UnexpectedMessage(Data::There(Box::new(large)))
                    }
                };
                return Ok(Some(Arrived { envelope, body }));
            }
        }
        Ok(None)
    }

    /// Takes the next message of the pattern's source, if that is a repeat, of elements of this type, and
    /// there is room for so many bytes; gives its tag and its elements.
    ///
    /// # Safety
    /// `into` is valid for writes of so many bytes.
    #[inline]
    pub(crate) unsafe fn take_repeat(
        &self,
        pattern: &MatchPattern,
        dtype: &DType,
        (into, room): (*mut u8, usize),
    ) -> Option<(u32, usize)> {
        let mut inbox = self.inbox.lock();
        // What has come before, and who has waited before, come first.
        if !inbox.waiting.is_empty() || !inbox.posted.is_empty() {
            return None;
        }
        let reader = inbox.readers.get_mut(pattern.source?)?.as_mut()?;
        let fits = |envelope: &Envelope| {
            let is_of_type = envelope.dtype == dtype.id && envelope.size == dtype.size;
            is_of_type && pattern.fits(envelope) && envelope.bytes <= room
        };
        // SAFETY: this function's contract; what fits is not longer.
        unsafe { reader.take_repeat(self, fits, into) }
    }

    /// Posts a receive after all others, whose message is to come there under this number. One that
    /// has come already is given back instead.
    pub(crate) fn post_receive(
        &self,
        pattern: MatchPattern,
        to: (&Arc<Arrivals>, usize),
    ) -> std::result::Result<u64, UnexpectedMessage> {
        let mut inbox = self.inbox.lock();
        match inbox.take_unexpected(self, &pattern) {
            Some(kept) => Err(kept),
            None => Ok(inbox.posted.post(pattern, to)),
        }
    }

    /// Sets aside the first message that fits, if one has come: nobody else receives it.
    pub(crate) fn match_message(&self, pattern: &MatchPattern) -> Result<Option<(u64, Envelope)>> {
        let mut inbox = self.inbox.lock();
        let before = inbox.waiting.len();
        self.collect(&mut inbox, pattern.source)?;
        let matched = inbox.set_aside(pattern);
        if inbox.waiting.len() > before {
            self.ring_other_agents();
        }
        Ok(matched)
    }

    /// Takes a message that was set aside; nothing if it has gone with its block.
    pub(crate) fn take_matched(&self, number: u64) -> Option<UnexpectedMessage> {
        let mut inbox = self.inbox.lock();
        let (_, message) = inbox.take_set_aside(number)?;
        inbox.release(self, &message);
        Some(message)
    }

    /// A message that was set aside, and not taken, is for anybody again, as if it had been for them
    /// all the time.
    pub(crate) fn put_back(&self, number: u64) {
        let mut inbox = self.inbox.lock();
        let Some((place, message)) = inbox.take_set_aside(number) else { return };
        let message = UnexpectedMessage { matched: None, ..message };
        if let Some(message) = inbox.posted.offer(message) {
            inbox.waiting.insert(place, message);
        }
        self.ring_other_agents();
    }

    /// Takes a posted receive back; false if its message has come.
    pub(crate) fn withdraw_receive(&self, pattern: &MatchPattern, number: u64) -> bool {
        self.inbox.lock().posted.withdraw(pattern, number)
    }

    /// The message of a posted receive is about to be received.
    pub(crate) fn release_posted(&self, message: &UnexpectedMessage) {
        self.inbox.lock().release(self, message);
    }

    /// Gives what has come to the receives that were posted for it: what lies in a ring, and is for
    /// those of `arrivals`, to `take`, with their numbers there.
    ///
    /// Errors: what is wrong first, and with what comes from whom. What others have sent is given.
    pub(crate) fn deliver_posted(
        &self,
        arrivals: &Arc<Arrivals>,
        take: &mut dyn FnMut(usize, Arrived<'_>),
    ) -> std::result::Result<(), (Option<usize>, Error)> {
        let mut inbox = self.inbox.lock();
        if inbox.posted.is_empty() {
            return Ok(());
        }
        if self.world.queue(self.rank).is_some() {
            return self.collect(&mut inbox, None).map_err(|error| (None, error));
        }
        let mut outcome = Ok(());
        for source in self.sources(None) {
            if let Err(error) = self.deliver_from(source, &mut inbox, arrivals, take) {
                outcome = outcome.and(Err((Some(source), error)));
            }
        }
        outcome
    }

    /// The same of what lies in the ring from there, as long as there are posted receives: what comes
    /// after that is left to who asks for it.
    fn deliver_from(
        &self,
        source: usize,
        inbox: &mut UnexpectedMessages,
        arrivals: &Arc<Arrivals>,
        take: &mut dyn FnMut(usize, Arrived<'_>),
    ) -> Result<()> {
        while !inbox.posted.is_empty() {
            let Some(message) = inbox.next(self, source)? else { break };
            if let DataPlace::Ring(data) = message.body
                && let Some(number) = inbox.posted.take_for(&message.envelope, arrivals)
            {
                let RingMessage { envelope, end, .. } = message;
                let bytes = envelope.bytes;
                let inbox = Inbox::Borrowed(&mut *inbox);
                let lent = Lent { inbox, member: self, source, data, bytes, end };
                take(number, Arrived { envelope, body: Body::Lent(lent) });
            } else {
                self.keep(inbox, source, message)?;
            }
        }
        Ok(())
    }

    /// Keeps a message for whoever wants it, other agents of this rank among them.
    fn keep(
        &self,
        inbox: &mut UnexpectedMessages,
        source: usize,
        message: RingMessage,
    ) -> Result<()> {
        inbox.keep(self, source, message)?;
        self.ring_other_agents();
        Ok(())
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

    /// Looks at the first message that fits, if one has come. It stays where it is: most are
    /// received next, from a ring without a copy more.
    pub(super) fn peek_message(&self, pattern: &MatchPattern) -> Result<Option<Envelope>> {
        self.make_room();
        let mut inbox = self.inbox.lock();
        if self.world.queue(self.rank).is_some() {
            self.collect(&mut inbox, pattern.source)?;
        }
        if let Some(index) = inbox.position(pattern) {
            return Ok(Some(inbox.waiting[index].envelope));
        }
        if self.world.queue(self.rank).is_none() {
            for source in self.sources(pattern.source) {
                while let Some(message) = inbox.next(self, source)? {
                    if pattern.fits(&message.envelope) && !inbox.posted.wants(&message.envelope) {
                        return Ok(Some(message.envelope));
                    }
                    self.keep(&mut inbox, source, message)?;
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

    /// Drops the messages of blocks before `block`, which all ranks have ended: one that was
    /// stopped leaves some. What is of this block comes from ranks that have entered it already,
    /// and is of its own communicator, as this rank is in no other yet.
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
    fn collect(&self, inbox: &mut UnexpectedMessages, source: Option<usize>) -> Result<()> {
        let posted = inbox.posted.len();
        let collected = self.collect_from(inbox, source);
        if inbox.posted.len() < posted {
            self.ring_other_agents();
        }
        collected
    }

    fn collect_from(&self, inbox: &mut UnexpectedMessages, source: Option<usize>) -> Result<()> {
        if let Some(queue) = self.world.queue(self.rank) {
            let before = inbox.waiting.len();
            queue.drain(&mut inbox.waiting);
            inbox.offer_from(before);
            return Ok(());
        }
        for source in self.sources(source) {
            while let Some(message) = inbox.next(self, source)? {
                inbox.keep(self, source, message)?;
            }
            // Its sender may wait for room.
            if let Some(Some(reader)) = inbox.readers.get_mut(source) {
                reader.acknowledge(self, source);
            }
        }
        Ok(())
    }
}
