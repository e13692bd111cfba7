//! Messages that have come and wait to be received.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::MutexGuard;

use super::heap::Block;
use super::member::Member;
use super::posted::PostedReceives;
use super::ring::{DataPlace, RING, RingMessage, RingReader};
use super::spare::Spare;
use crate::copy::copy_bytes;
use crate::error::{Error, Result};
use crate::transport::message::{Data, Envelope, MatchPattern, UnexpectedMessage};

/// One rank's messages, in the order in which they came from each source.
pub(crate) struct UnexpectedMessages {
    pub(super) waiting: VecDeque<UnexpectedMessage>,
    /// What was last looked for in vain, and among how many: a wait looks again and again.
    pub(super) searched: Option<(MatchPattern, usize)>,
    pub(super) readers: Vec<Option<RingReader>>,
    /// What the messages in `waiting` take, for each source that has a ring.
    pub(super) held: Vec<usize>,
    pub(super) spare: Spare,
    /// Who gets a message first.
    pub(super) posted: PostedReceives,
    /// Where this rank says how far it is with very many large messages.
    pub(super) acks: Vec<Block>,
    /// How many messages were set aside so far.
    matches: u64,
}

/// By how much what is kept from a source may exceed the window: the source may not have looked
/// since, and have filled its ring with short messages, each of which takes more in here.
const OVERHANG: usize = 18 * RING as usize;

/// A message that has come. It is over when it is dropped, taken or not.
pub(crate) struct Arrived<'a> {
    pub(crate) envelope: Envelope,
    pub(crate) body: Body<'a>,
}

/// Where the data of a message are.
pub(crate) enum Body<'a> {
    /// Where they came, as long as this lives; nothing else that comes is looked at meanwhile.
    Lent(Lent<'a>),
    UnexpectedMessage(Data),
}

impl From<UnexpectedMessage> for Arrived<'_> {
    fn from(UnexpectedMessage { envelope, data, .. }: UnexpectedMessage) -> Self {
        Arrived { envelope, body: Body::UnexpectedMessage(data) }
    }
}

/// The data of a message that are still in the ring; they leave it when this is dropped.
pub(crate) struct Lent<'a> {
    pub(super) inbox: Inbox<'a>,
    pub(super) member: &'a Member,
    pub(super) source: usize,
    pub(super) data: *const u8,
    pub(super) bytes: usize,
    pub(super) end: u64,
}

/// What has come to a rank, locked.
pub(super) enum Inbox<'a> {
    /// For this message.
    Locked(MutexGuard<'a, UnexpectedMessages>),
    /// For others as well, by whoever gives this one out.
    Borrowed(&'a mut UnexpectedMessages),
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
        unsafe { copy_bytes(self.data, into, self.bytes) };
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let inbox = match &mut self.inbox {
            Inbox::Locked(inbox) => &mut **inbox,
            Inbox::Borrowed(inbox) => inbox,
        };
        inbox.pass(self.member, self.source, self.end);
    }
}

impl UnexpectedMessages {
    pub(super) fn new() -> UnexpectedMessages {
        let (waiting, searched, readers, held, spare, posted, acks, matches) = Default::default();
        UnexpectedMessages { waiting, searched, readers, held, spare, posted, acks, matches }
    }

    pub(super) fn position(&mut self, pattern: &MatchPattern) -> Option<usize> {
        match self.waiting.front() {
            None => return None,
            Some(first) if first.is_for(pattern) => return Some(0),
            Some(_) => {}
        }
        let earlier = self.searched.filter(|(before, _)| before == pattern);
        let from = earlier.map_or(0, |(_, searched)| searched);
        let found = self.waiting.range(from..).position(|kept| kept.is_for(pattern));
        if found.is_none() {
            self.searched = Some((*pattern, self.waiting.len()));
        }
        found.map(|index| from + index)
    }

    /// Takes the first kept message that fits.
    #[inline]
    pub(super) fn take_unexpected(
        &mut self,
        member: &Member,
        pattern: &MatchPattern,
    ) -> Option<UnexpectedMessage> {
        if self.waiting.is_empty() {
            return None;
        }
        let kept = self.position(pattern).and_then(|index| self.waiting.remove(index))?;
        self.searched = None;
        self.release(member, &kept);
        Some(kept)
    }

    /// Sets aside the first kept message that fits, at its place; gives its number.
    pub(super) fn set_aside(&mut self, pattern: &MatchPattern) -> Option<(u64, Envelope)> {
        let kept = self.position(pattern)?;
        self.matches += 1;
        self.waiting[kept].matched = Some(self.matches);
        Some((self.matches, self.waiting[kept].envelope))
    }

    /// Takes out the message that was set aside under this number; its place, too.
    pub(super) fn take_set_aside(&mut self, number: u64) -> Option<(usize, UnexpectedMessage)> {
        let place = self.waiting.iter().position(|kept| kept.matched == Some(number))?;
        self.searched = None;
        self.waiting.remove(place).map(|kept| (place, kept))
    }

    /// Drops all messages for which `keeps` says no.
    pub(super) fn drop_but(&mut self, member: &Member, mut keeps: impl FnMut(&Envelope) -> bool) {
        self.searched = None;
        for kept in std::mem::take(&mut self.waiting) {
            match keeps(&kept.envelope) {
                true => self.waiting.push_back(kept),
                false => self.release(member, &kept),
            }
        }
    }

    /// Gives what has come to a queue, from the message of this index on, to the receives that were
    /// posted for it.
    pub(super) fn offer_from(&mut self, first: usize) {
        if self.posted.is_empty() {
            return;
        }
        let come = self.waiting.split_off(first);
        for message in come {
            self.waiting.extend(self.posted.offer(message));
        }
    }

    /// A message is kept no longer: there is room for another one.
    pub(super) fn release(&mut self, member: &Member, kept: &UnexpectedMessage) {
        if let Some(queue) = member.world.queue(member.rank) {
            return queue.release(kept.weight());
        }
        let source = kept.envelope.source as usize;
        let (held, window) = (&mut self.held[source], member.world.tuning.window);
        let was_full = *held > window;
        *held -= kept.weight();
        if was_full && *held <= window {
            member.world.memory.ack(member.rank, source).full.store(0, Relaxed);
        }
    }

    /// The next message in the ring from `source`.
    #[inline]
    pub(super) fn next(&mut self, member: &Member, source: usize) -> Result<Option<RingMessage>> {
        match self.readers.get_mut(source) {
            Some(Some(reader)) if !reader.has_next() => Ok(None),
            Some(Some(reader)) => reader.next(member, source),
            _ if !RingReader::is_there(member, source) => Ok(None),
            _ => self.first(member, source),
        }
    }

    #[cold]
    fn first(&mut self, member: &Member, source: usize) -> Result<Option<RingMessage>> {
        self.readers.resize_with(member.world.size(), || None);
        self.held.resize(member.world.size(), 0);
        self.readers[source] = RingReader::find(member, source)?;
        self.readers[source].as_mut().map_or(Ok(None), |reader| reader.next(member, source))
    }

    /// Keeps a message for the receive that was posted for it, or until somebody wants it. Tells its
    /// sender if that is to send no more without waiting.
    pub(super) fn keep(
        &mut self,
        member: &Member,
        source: usize,
        message: RingMessage,
    ) -> Result<()> {
        let window = member.world.tuning.window;
        if self.held[source] > window.saturating_add(OVERHANG) {
            let what = "it sends more than its receiver's window allows";
            return Err(Error::corrupt(source, what));
        }
        let RingMessage { envelope, body, end } = message;
        let data = match body {
            DataPlace::Ring(data) => {
                let mut bytes = self.spare.take(envelope.bytes);
                // SAFETY: the ring holds the message's bytes, and the vector has room for them.
                unsafe {
                    copy_bytes(data, bytes.as_mut_ptr(), envelope.bytes);
                    bytes.set_len(envelope.bytes);
                }
                Data::Here(bytes)
            }
            DataPlace::Rendezvous(large) => Data::There(Box::new(large)),
        };
        let kept = UnexpectedMessage::new(envelope, data);
        self.held[source] += kept.weight();
        if self.held[source] > window {
            // Whoever sees that the message was read sees this.
            member.world.memory.ack(member.rank, source).full.store(1, Relaxed);
        }
        if let Some(kept) = self.posted.offer(kept) {
            self.waiting.push_back(kept);
        }
        self.pass(member, source, end);
        Ok(())
    }

    /// Goes on in the ring from `source`.
    pub(super) fn pass(&mut self, member: &Member, source: usize, end: u64) {
        let reader = self.readers[source].as_mut();
        reader.expect("a message came by it").pass(member, source, end);
    }
}
