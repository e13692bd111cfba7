//! Messages between processes or threads: a byte ring from each sender to each receiver that it has
//! written to, in the sender's segment, made at the first message.
//!
//! A record is a header line and its data, on 64-byte boundaries. The header's first word, its
//! stamp, is the record's position plus one, written last; before that, the stamp of the next
//! record is cleared, so that old data there are never taken for one. The receiver says in its
//! own segment ([`super::layout::Ack`]) how far it has read: after each sixteenth of the ring, and
//! where the sender asks.
//!
//! Data above [`EAGER`] do not go through the ring: the record names one of some *rendezvous*, in
//! which the sender shows where the data are (in its segment, or in the memory of the same
//! process: read there; in private memory: through a staging area, piece after piece, or by
//! `process_vm_readv`).

pub(super) mod format;
#[cfg(any(fuzzing, test))]
pub(crate) mod hostile;

use std::sync::atomic::{AtomicU64, Ordering::*};

pub(crate) use self::format::EAGER;
use self::format::*;
pub(super) use self::format::{PIECE, RENDEZVOUS, RING, RendezvousAck, STAGING, staged_at};
use super::heap::Block;
use super::member::Member;
use super::memory::Memory;
use super::prefetch::prefetch;
use crate::error::{Error, Result};
use crate::transport::message::Envelope;

/// The sender's side of a ring.
pub(super) struct RingWriter {
    /// Has its memory.
    _block: Block,
    /// Where that lies.
    base: *mut u8,
    position: u64,
    /// What the receiver is known to have read.
    head: u64,
    /// Whether the receiver then kept as much as its window allows.
    full: bool,
    /// The stamps of the lines from the next record to here are cleared already.
    cleared: u64,
    /// Those of the ring's head, then those of the chunks.
    pub(super) all_rendezvous: Vec<RendezvousState>,
    chunks: Vec<Block>,
    /// How many of them have a message that may not be over.
    busy: usize,
    /// How many of these the sender has not handed over.
    pub(super) under_way: usize,
    /// Where the search for a free one goes on.
    next: usize,
}

/// What the sender keeps of a rendezvous for itself.
#[derive(Default)]
pub(super) struct RendezvousState {
    pub(super) busy: bool,
    /// Busy only until the receiver has taken the last message from the staging area.
    pub(super) handed: bool,
    pub(super) number: u64,
    pub(super) staging: Option<Block>,
}

/// A large message, as the receiver has it in hand.
#[derive(Clone, Copy)]
pub(crate) struct RendezvousReceive {
    pub(super) source: usize,
    pub(super) rendezvous: usize,
    pub(super) number: u64,
    /// The offset of its chunk in the sender's segment; 0 in the ring's head.
    pub(super) chunk: u64,
}

// SAFETY: the pointer leads into the arena, which is mapped for the whole process, to a block that
// this owns.
unsafe impl Send for RingWriter {}

impl RingWriter {
    pub(super) fn new(member: &Member, receiver: usize) -> Result<RingWriter> {
        let block = member.heap.allocate(RING_BYTES)?;
        let place = member.world.memory.ring_place(member.rank, receiver);
        place.store(block.offset(), Release);
        Ok(RingWriter {
            base: block.pointer(),
            _block: block,
            position: 0,
            head: 0,
            full: false,
            cleared: 0,
            all_rendezvous: (0..RENDEZVOUS).map(|_| RendezvousState::default()).collect(),
            chunks: Vec::new(),
            busy: 0,
            under_way: 0,
            next: 0,
        })
    }

    /// What is shown of a rendezvous.
    pub(super) fn rendezvous(&self, rendezvous: usize) -> &Rendezvous {
        let Some((chunk, index)) = in_chunk(rendezvous) else {
            // SAFETY: the block begins with a RingHead of atomics, and lives as long as `self`.
            return unsafe { &(&*self.base.cast::<RingHead>()).all_rendezvous[rendezvous] };
        };
        assert!(index < chunk_size(chunk));
        // SAFETY: a chunk holds as many of these, which are atomics, and lives as long as `self`.
        unsafe { &*self.chunks[chunk].pointer().cast::<Rendezvous>().add(index) }
    }

    /// Takes a rendezvous that is free, or makes more; `None` if there are as many as there can be,
    /// or as there is room for.
    pub(super) fn take_rendezvous(
        &mut self,
        member: &Member,
        receiver: usize,
    ) -> Result<Option<usize>> {
        let all = self.all_rendezvous.len();
        let is_free = |index: &usize| {
            let RendezvousState { busy, handed, number, .. } = self.all_rendezvous[*index];
            let finished = |ack: &RendezvousAck| ack.finished.load(Acquire) == number;
            !busy || handed && with_ack(member, receiver, *index, finished).unwrap_or(false)
        };
        // The first ones are most often free, and have their staging areas.
        let near = (0..RENDEZVOUS).find(is_free);
        let some = self.busy < all || all == MOST;
        let far = || (self.next..self.next + all).map(|index| index % all).find(is_free);
        let index = match near.or_else(|| if some { far() } else { None }) {
            Some(index) => index,
            None if all == MOST => return Ok(None),
            None => {
                let bytes = all * size_of::<Rendezvous>();
                let Ok(chunk) = member.heap.allocate(bytes) else { return Ok(None) };
                // SAFETY: the block has so many bytes, which nobody else knows yet.
                unsafe { chunk.pointer().write_bytes(0, bytes) };
                self.chunks.push(chunk);
                self.all_rendezvous.resize_with(2 * all, RendezvousState::default);
                all
            }
        };
        let taken = &mut self.all_rendezvous[index];
        self.busy += usize::from(!taken.busy);
        self.under_way += 1;
        (taken.busy, taken.handed) = (true, false);
        taken.number += 1;
        self.next = index + 1;
        Ok(Some(index))
    }

    /// The receiver is taking the last message of a rendezvous, and needs its sender no more.
    pub(super) fn hand_over_rendezvous(&mut self, index: usize) {
        self.all_rendezvous[index].handed = true;
        self.under_way -= 1;
    }

    /// A rendezvous is free again.
    pub(super) fn free_rendezvous(&mut self, index: usize) {
        self.under_way -= 1;
        self.all_rendezvous[index].busy = false;
        if index >= RENDEZVOUS {
            self.all_rendezvous[index].staging = None;
        }
        self.busy -= 1;
    }

    fn record(&self, position: u64) -> &Record {
        // SAFETY: a record header of atomics within the block, which lives as long as `self`.
        unsafe { &*record_at(self.base, position) }
    }

    /// Whether `need` more bytes fit.
    #[inline]
    fn fits(&mut self, member: &Member, receiver: usize, need: u64) -> Result<bool> {
        if self.position + need - self.head <= RING {
            return Ok(true);
        }
        self.look_for_room(member, receiver)?;
        Ok(self.position + need - self.head <= RING)
    }

    /// Looks how far the receiver has read, and how much it keeps.
    #[cold]
    fn look_for_room(&mut self, member: &Member, receiver: usize) -> Result<()> {
        let ack = member.world.memory.ack(receiver, member.rank);
        let head = ack.head.load(Acquire);
        if head < self.head || head > self.position {
            let what = "it says that it has read messages that do not exist";
            return Err(Error::corrupt(receiver, what));
        }
        self.head = head;
        self.full = ack.full.load(Relaxed) != 0;
        Ok(())
    }

    /// Whether the receiver keeps as much as its window allows, so that the next message is to be
    /// offered instead of sent. Looked up where the ring seemed full: between two looks a sender
    /// writes no more than a ring holds.
    #[inline]
    pub(super) fn window_is_full(&mut self, member: &Member, receiver: usize) -> Result<bool> {
        if self.full {
            self.look_for_room(member, receiver)?;
        }
        Ok(self.full)
    }

    /// Clears the stamps of the lines from here to there that are not yet.
    #[inline]
    fn clear(&mut self, from: u64, to: u64) {
        for line in (from.max(self.cleared)..to).step_by(LINE as usize) {
            self.record(line).stamp.store(0, Relaxed);
        }
        self.cleared = self.cleared.max(to);
    }

    /// Writes a record, if there is room: `None` if not, and the receiver knows that some is
    /// wanted. `pack` writes the data of an eager one.
    pub(super) fn write(
        &mut self,
        member: &Member,
        receiver: usize,
        envelope: &Envelope,
        rendezvous: Option<(usize, u64)>,
        pack: &mut dyn FnMut(*mut u8),
    ) -> Result<Option<()>> {
        let need = LINE + if rendezvous.is_some() { 0 } else { following(envelope.bytes as u64) };
        let to_end = RING - self.position % RING;
        let skip = if need > to_end { to_end } else { 0 };
        // Two lines more, whose stamps are cleared.
        if !self.fits(member, receiver, skip + need + 2 * LINE)? {
            member.world.ask_for_room(receiver);
            return Ok(None);
        }
        if skip > 0 {
            self.record(self.position + skip).stamp.store(0, Relaxed);
            let record = self.record(self.position);
            record.kind.store(SKIP_RECORD, Relaxed);
            record.tag.store(0, Relaxed);
            record.count.store(skip - LINE, Relaxed);
            record.stamp.store(self.position + 1, Release);
            self.position += skip;
        }
        let base = self.base;
        let record = self.record(self.position);
        let kind = match rendezvous {
            // SAFETY: the place has room for the data, in the record or behind it within the
            // ring: `need <= to_end` now.
            None => unsafe {
                pack(data_of(record_at(base, self.position), envelope.bytes as u64));
                EAGER_RECORD
            },
            Some((rendezvous, number)) => {
                let far = in_chunk(rendezvous);
                let far = far.map(|(chunk, _)| far_word(rendezvous, self.chunks[chunk].offset()));
                let record = self.record(self.position);
                record.data[0].store(number, Relaxed);
                record.data[1].store(far.unwrap_or(0), Relaxed);
                LARGE_RECORD | (if far.is_some() { 0 } else { rendezvous as u64 }) << 48
            }
        };
        let site = u64::from(envelope.file) << 32 | u64::from(envelope.line);
        record.kind.store(kind | site, Relaxed);
        record.context.store(envelope.context, Relaxed);
        record.tag.store(u64::from(envelope.size) << 32 | u64::from(envelope.tag), Relaxed);
        record.dtype.store(envelope.dtype, Relaxed);
        let count = envelope.count & COUNT;
        record.count.store(u64::from(envelope.dtype_text) << 48 | count, Relaxed);
        let end = self.position + need;
        self.clear(end, end + LINE);
        self.record(self.position).stamp.store(self.position + 1, Release);
        self.position = end;
        member.world.publish();
        member.world.bell(receiver).ring_after_fence();
        // If the next records are one line as well, their stamps need not wait until the receiver's
        // cache has given up the lines after them. Several at once: a receiver close behind takes
        // lines ahead of those that it reads, which must then be asked for once more.
        if need == LINE && self.cleared == end + LINE {
            let free = self.head + RING;
            self.clear(end + LINE, (end + AHEAD).min(free));
        }
        Ok(Some(()))
    }
}

/// The receiver's side of a ring.
pub(crate) struct RingReader {
    base: *mut u8,
    position: u64,
    /// How far the sender knows that this rank has read.
    told: u64,
    /// Where this rank says how far it has read.
    head: *const AtomicU64,
}

// SAFETY: the pointers lead into the arena, which is mapped for the whole process.
unsafe impl Send for RingReader {}

impl RingReader {
    /// Whether `source` has made its ring to this rank.
    #[inline]
    pub(super) fn is_there(member: &Member, source: usize) -> bool {
        member.world.memory.ring_place(source, member.rank).load(Relaxed) != 0
    }

    /// The ring from `source`, if that has made one.
    pub(super) fn find(member: &Member, source: usize) -> Result<Option<RingReader>> {
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
    pub(super) fn rendezvous<'a>(
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
    pub(super) fn has_next(&self) -> bool {
        // SAFETY: a header of atomics within the ring, checked to lie within the arena.
        let record = unsafe { &*record_at(self.base, self.position) };
        record.stamp.load(Acquire) == self.position + 1
    }

    /// The next message, if there is one; [`RingReader::pass`] comes after it. Its numbers may be
    /// anything: they are checked here.
    pub(super) fn next(&mut self, member: &Member, source: usize) -> Result<Option<RingMessage>> {
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
    pub(super) fn pass(&mut self, member: &Member, source: usize, end: u64) {
        self.position = end;
        if end - self.told >= TELL {
            self.acknowledge(member, source);
        }
    }

    /// Tells the sender how far this rank has read: it may write over that.
    pub(super) fn acknowledge(&mut self, member: &Member, source: usize) {
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

/// Looks at what `receiver` says of a rendezvous of the ring that `member` writes to it: `None` if
/// it has said nothing yet.
pub(super) fn with_ack<R>(
    member: &Member,
    receiver: usize,
    rendezvous: usize,
    look: impl FnOnce(&RendezvousAck) -> R,
) -> Option<R> {
    let memory = &member.world.memory;
    ack_of(memory, (receiver, member.rank), rendezvous).map(look)
}

/// What a receiver says of a rendezvous of a sender's ring to it.
fn ack_of(
    memory: &Memory,
    (receiver, sender): (usize, usize),
    rendezvous: usize,
) -> Option<&RendezvousAck> {
    let acks = memory.ack(receiver, sender);
    let Some((chunk, index)) = in_chunk(rendezvous) else {
        return acks.all_rendezvous.get(rendezvous);
    };
    let offset = acks.chunks[chunk].load(Acquire);
    let bytes = chunk_size(chunk) * size_of::<RendezvousAck>();
    let base = memory.heap(receiver, offset, bytes).filter(|_| offset != 0)?;
    let base = base.cast::<RendezvousAck>();
    // SAFETY: the chunk lies within the arena, as just checked, which is mapped as long as `memory`
    // lives, and the index within the chunk. What it holds are atomics, which have no invalid values.
    base.is_aligned().then(|| unsafe { &*base.add(index) })
}

/// Where `member` says how far it is with a large message, which it makes if it is not there: `kept`
/// keeps that.
///
/// Errors: there is no memory for it.
pub(super) fn own_ack<'a>(
    member: &'a Member,
    large: &RendezvousReceive,
    kept: &mut Vec<Block>,
) -> Result<&'a RendezvousAck> {
    let (memory, pair) = (&member.world.memory, (member.rank, large.source));
    if let Some((chunk, _)) = in_chunk(large.rendezvous) {
        let place = &memory.ack(member.rank, large.source).chunks[chunk];
        if place.load(Relaxed) == 0 {
            let bytes = chunk_size(chunk) * size_of::<RendezvousAck>();
            let block = member.heap.allocate(bytes)?;
            // SAFETY: the block has so many bytes, which nobody else knows yet.
            unsafe { block.pointer().write_bytes(0, bytes) };
            place.store(block.offset(), Release);
            kept.push(block);
        }
    }
    let nowhere = || Error::corrupt(large.source, "a message names no rendezvous");
    ack_of(memory, pair, large.rendezvous).ok_or_else(nowhere)
}

/// A message in a ring.
pub(super) struct RingMessage {
    pub(super) envelope: Envelope,
    pub(super) body: DataPlace,
    /// Where the next record begins.
    pub(super) end: u64,
}

/// Where its data are.
pub(super) enum DataPlace {
    /// The envelope's bytes, in the ring; any bytes, whatever the sender does to them meanwhile.
    Ring(*const u8),
    Rendezvous(RendezvousReceive),
}
