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
                Ok(Some(RingReader { base, position: 0, told: 0, head }))
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
        // SAFETY: a header of atomics within the ring, checked to lie within the arena.
        let record = unsafe { &*record_at(self.base, self.position) };
        record.stamp.load(Acquire) == self.position + 1
    }

    /// The next message, if there is one; [`RingReader::pass`] comes after it. Its numbers may be
    /// anything: they are checked here.
    pub(in super::super) fn next(
        &mut self,
        member: &Member,
        source: usize,
    ) -> Result<Option<RingMessage>> {
        let corrupt = |what| Err(Error::corrupt(source, what));
        loop {
            if !self.has_next() {
                return Ok(None);
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
