//! The receiver's side of a ring.

use std::sync::atomic::{AtomicU64, Ordering::*};

use super::super::member::Member;
use super::super::prefetch::prefetch;
use super::format::*;
use crate::error::{Error, Result};
use crate::transport::message::Envelope;

/// A large message, as the receiver has it in hand.
#[derive(Clone, Copy)]
pub(crate) struct RendezvousReceive {
    pub(in super::super) source: usize,
    pub(in super::super) rendezvous: usize,
    pub(in super::super) number: u64,
    /// The offset of its chunk in the sender's segment; 0 in the ring's head.
    pub(in super::super) chunk: u64,
}

/// The receiver's side of a ring.
pub(crate) struct RingReader {
    pub(super) base: *mut u8,
    pub(super) position: u64,
    /// What the last record says of its message, if repeats may follow it.
    pub(super) last: Option<Envelope>,
    /// How far the sender knows that this rank has read.
    pub(super) told: u64,
    /// Where this rank says how far it has read.
    pub(super) head: *const AtomicU64,
}

// SAFETY: the pointers lead into the arena, which is mapped for the whole process.
unsafe impl Send for RingReader {}

impl RingReader {
    /// Whether `source` has made its ring to this rank.
    #[inline]
    pub(in super::super) fn is_there(member: &Member, source: usize) -> bool {
        member.world.memory.ring_place(source, member.rank).load(Relaxed) != 0
    }

    /// The ring from `source`, if that has made one.
    pub(in super::super) fn find(member: &Member, source: usize) -> Result<Option<RingReader>> {
        let memory = &member.world.memory;
        let place = memory.ring_place(source, member.rank).load(Acquire);
        if place == 0 {
            return Ok(None);
        }
        match memory.heap(source, place, RING_BYTES) {
            Some(base) if place.is_multiple_of(4096) => {
                let head = &raw const memory.ack(member.rank, source).head;
                Ok(Some(RingReader { base, position: 0, last: None, told: 0, head }))
            }
            _ => Err(Error::corrupt(source, "its ring lies outside its arena")),
        }
    }

    /// The rendezvous of a large message of this source; `None` if it is nowhere.
    pub(in super::super) fn rendezvous<'a>(
        &'a self,
        member: &'a Member,
        large: &RendezvousReceive,
    ) -> Option<&'a Rendezvous> {
        let Some((chunk, index)) = in_chunk(large.rendezvous) else {
            // SAFETY: the ring, checked to lie within the arena, begins with a RingHead of atomics;
            // the arena is mapped as long as the member that owns this reader.
            let head = unsafe { &*self.base.cast::<RingHead>() };
            return head.all_rendezvous.get(large.rendezvous);
        };
        let bytes = chunk_size(chunk) * size_of::<Rendezvous>();
        let base = member.world.memory.heap(large.source, large.chunk, bytes)?.cast::<Rendezvous>();
        // SAFETY: the chunk lies within the arena, as just checked, which is mapped as long as the
        // member that owns this reader, and the index within the chunk. What it holds are atomics,
        // which have no invalid values.
        base.is_aligned().then(|| unsafe { &*base.add(index) })
    }

    /// Whether a message has come.
    #[inline]
    pub(in super::super) fn has_next(&self) -> bool {
        (RECORD..=REPEAT).contains(&self.stamp())
    }

    /// What the stamp of the place where the next message comes is more than its position.
    #[inline]
    fn stamp(&self) -> u64 {
        // SAFETY: two atomics within the ring, checked to lie within the arena.
        let place = unsafe { &*repeat_at(self.base, self.position) };
        place.stamp.load(Acquire).wrapping_sub(self.position)
    }

    /// The next message, if there is one; [`RingReader::pass`] comes after it. Its numbers may be
    /// anything: they are checked here.
    #[inline]
    pub(in super::super) fn next(
        &mut self,
        member: &Member,
        source: usize,
    ) -> Result<Option<RingMessage>> {
        match (self.stamp(), self.last) {
            (REPEAT, Some(envelope)) => {
                let body = DataPlace::Ring(self.repeated());
                Ok(Some(RingMessage { envelope, body, end: self.position + REPEAT_BYTES }))
            }
            _ => self.next_record(member, source),
        }
    }

    /// Takes the next message if it is a repeat, and fits; gives its tag and its elements.
    ///
    /// # Safety
    /// Of a message that fits, so many bytes may be written to `into`.
    #[inline]
    pub(in super::super) unsafe fn take_repeat(
        &mut self,
        member: &Member,
        fits: impl FnOnce(&Envelope) -> bool,
        into: *mut u8,
    ) -> Option<(u32, usize)> {
        let last = self.last.as_ref().filter(|last| self.stamp() == REPEAT && fits(last))?;
        let (source, tag, count) = (last.source as usize, last.tag, last.count as usize);
        // SAFETY: the place has room for the data of what repeats, which lie in the ring, where no buffer
        // is; `into` has, too (this function's contract). Whatever their sender does to them meanwhile,
        // they are some bytes.
        unsafe { copy_short(self.repeated(), into, last.bytes) };
        self.pass(member, source, self.position + REPEAT_BYTES);
        Some((tag, count))
    }

    /// Where the data of the repeat lie that is the next message.
    #[inline]
    fn repeated(&self) -> *const u8 {
        let end = self.position + REPEAT_BYTES;
        if end.is_multiple_of(LINE) {
            prefetch(record_at(self.base, end).cast());
        }
        // SAFETY: two atomics within the ring, checked to lie within the arena: a place is computed, and
        // nothing read.
        unsafe { (&raw const (*repeat_at(self.base, self.position)).data).cast() }
    }

    fn next_record(&mut self, member: &Member, source: usize) -> Result<Option<RingMessage>> {
        let corrupt = |what| Err(Error::corrupt(source, what));
        loop {
            match (self.stamp(), self.position.is_multiple_of(LINE)) {
                (RECORD, true) => {}
                (NEXT_LINE, false) => {
                    self.pass(member, source, self.position.next_multiple_of(LINE));
                    continue;
                }
                (RECORD..=REPEAT, _) => return corrupt("a message has an impossible stamp"),
                _ => return Ok(None),
            }
            let place = record_at(self.base, self.position);
            // SAFETY: a header of atomics within the ring, checked to lie within the arena.
            let record = unsafe { &*place };
            let (kind, tag) = (record.kind.load(Relaxed), record.tag.load(Relaxed));
            let counts = record.count.load(Relaxed);
            let (count, size) = (counts & COUNT, tag >> 32);
            let Some(bytes) = count.checked_mul(size).filter(|bytes| *bytes <= COUNT) else {
                return corrupt("a message is longer than memory");
            };
            let to_end = RING - self.position % RING - LINE;
            let (body, used) = match kind & 0xff << 56 {
                SKIP_RECORD if count == to_end => {
                    self.pass(member, source, self.position + LINE + count);
                    continue;
                }
                EAGER_RECORD if bytes <= EAGER as u64 && following(bytes) <= to_end => {
                    // SAFETY: what follows is in the ring, as just checked.
                    (DataPlace::Ring(unsafe { data_of(place, bytes) }), following(bytes))
                }
                LARGE_RECORD => {
                    let [number, far] = [0, 1].map(|word: usize| record.data[word].load(Relaxed));
                    let near = (kind >> 48 & 0xff) as usize;
                    let place = match far {
                        0 => (near < RENDEZVOUS).then_some((near, 0)),
                        far => of_far_word(far),
                    };
                    let Some((rendezvous, chunk)) = place else {
                        return corrupt("a message names a rendezvous that does not exist");
                    };
                    let large = RendezvousReceive { source, rendezvous, number, chunk };
                    (DataPlace::Rendezvous(large), 0)
                }
                _ => return corrupt("a message has an impossible header"),
            };
            let envelope = Envelope {
                context: record.context.load(Relaxed),
                source: source as u32,
                tag: tag as u32,
                size: size as u32,
                dtype: record.dtype.load(Relaxed),
                dtype_text: (counts >> 48) as u16,
                file: (kind >> 32) as u16,
                line: kind as u32,
                count,
                bytes: bytes as usize,
            };
            let end = self.position + LINE + used;
            let small = matches!(body, DataPlace::Ring(_)) && envelope.bytes <= REPEATED;
            self.last = small.then_some(envelope);
            // While this one is taken, the next one comes.
            prefetch(record_at(self.base, end).cast());
            return Ok(Some(RingMessage { envelope, body, end }));
        }
    }

    /// Goes on to the record at `end`. The sender is told of each [`TELL`] bytes: a line that it
    /// has just looked at is expensive to write, and what is left of the ring is room for any
    /// message.
    #[inline]
    pub(in super::super) fn pass(&mut self, member: &Member, source: usize, end: u64) {
        self.position = end;
        if end - self.told >= TELL {
            self.acknowledge(member, source);
        }
    }

    /// Tells the sender how far this rank has read: it may write over that.
    pub(in super::super) fn acknowledge(&mut self, member: &Member, source: usize) {
        if self.told == self.position {
            return;
        }
        self.told = self.position;
        // SAFETY: it lies in the arena, mapped as long as the member that owns this reader.
        unsafe { &*self.head }.store(self.told, Release);
        member.world.publish();
        member.world.bell(source).ring_after_fence();
    }
}

/// A message in a ring.
pub(in super::super) struct RingMessage {
    pub(in super::super) envelope: Envelope,
    pub(in super::super) body: DataPlace,
    /// Where the next record begins.
    pub(in super::super) end: u64,
}

/// Where its data are.
pub(in super::super) enum DataPlace {
    /// The envelope's bytes, in the ring; any bytes, whatever the sender does to them meanwhile.
    Ring(*const u8),
    Rendezvous(RendezvousReceive),
}
