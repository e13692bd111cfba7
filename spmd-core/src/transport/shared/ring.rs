//! Messages between processes or threads: a byte ring from each sender to each receiver that it has written
//! to, in the sender's segment, made at the first message.
//!
//! A record is a header line and its data, on 64-byte boundaries. The header's first word, its
//! stamp, is the record's position plus one, written last; before that, the stamp of the next
//! record is cleared, so that old data there are never taken for one. The receiver says in its
//! own segment ([`super::layout::Ack`]) how far it has read: after each sixteenth of the ring, and
//! where the sender asks.
//!
//! Data above [`EAGER`] do not go through the ring: the record names one of some *lanes*, in
//! which the sender shows where the data are (in its segment, or in the memory of the same
//! process: read there; in private memory: through a staging area, piece after piece, or by
//! `process_vm_readv`).

#[cfg(any(fuzzing, test))]
pub(crate) mod hostile;

use std::sync::atomic::{AtomicU64, Ordering::*};

use super::Endpoint;
use super::heap::Block;
use super::layout::LANES;
use crate::error::{Error, Result};
use crate::transport::message::Envelope;

/// Bytes of data that travel in the ring itself at most.
pub(crate) const EAGER: usize = 8 * 1024;
pub(super) const RING: u64 = 64 * 1024;
/// Bytes that a receiver reads before it says so.
const TELL: u64 = RING / 16;
const LINE: u64 = 64;
// With what its receiver has not told of, a ring has room for the longest message, for what is skipped
// before it, and for lines that are cleared.
const _: () = assert!(TELL + 2 * (LINE + EAGER as u64) + 2 * LINE <= RING);
/// Bytes of a lane's staging area, and of one piece of it.
pub(super) const STAGING: usize = 16 * PIECE;
pub(super) const PIECE: usize = 16 * 1024;

/// Where in a lane's staging area the bytes from `done` on of its message `number` go. Each begins
/// at another piece: lines that the receiver has just read take twice as long to write.
pub(super) fn staged_at(number: u64, done: usize) -> usize {
    // An odd number of pieces, so that all of the 16 have their turn.
    (number as usize).wrapping_mul(5 * PIECE).wrapping_add(done) % STAGING
}

const EAGER_RECORD: u64 = 1 << 56;
const LARGE_RECORD: u64 = 2 << 56;
const SKIP_RECORD: u64 = 3 << 56;

/// A record's header, one cache line, with the data of the shortest messages.
#[repr(C, align(64))]
struct Record {
    stamp: AtomicU64,
    /// `kind << 56 | lane << 48 | file << 32 | line`.
    kind: AtomicU64,
    context: AtomicU64,
    /// `size << 32 | tag`, the size that of one element in bytes.
    tag: AtomicU64,
    dtype: AtomicU64,
    /// `dtype_text << 48 | count`; of a record to be skipped, the bytes behind this line.
    count: AtomicU64,
    /// The data, if they fit; else they follow. Of a large message: its number in the lane.
    data: [AtomicU64; 2],
}

/// The part of a word that is a count of elements; messages of more bytes do not exist.
const COUNT: u64 = (1 << 48) - 1;

/// Where the data of a large message are, as its sender shows it.
#[repr(C, align(64))]
pub(super) struct Lane {
    /// The message it is for.
    pub(super) number: AtomicU64,
    /// Offset of the data in the sender's segment; 0: they come through the staging area.
    pub(super) direct: AtomicU64,
    /// Offset of the staging area.
    pub(super) staging: AtomicU64,
    /// Bytes put there so far.
    pub(super) filled: AtomicU64,
    /// The data's address in the sender's process.
    pub(super) address: AtomicU64,
    /// The number of the last message that was taken back.
    pub(super) withdrawn: crate::sync::atomic::AtomicU64,
}

#[repr(C, align(4096))]
struct RingHead {
    lanes: [Lane; LANES],
}

const RING_OFFSET: usize = size_of::<RingHead>();
/// Bytes of a ring in the arena.
pub(super) const RING_BYTES: usize = RING_OFFSET + RING as usize;

/// The sender's side of a ring.
pub(super) struct RingWriter {
    block: Block,
    position: u64,
    /// What the receiver is known to have read.
    head: u64,
    /// Whether the receiver then kept as much as its window allows.
    full: bool,
    /// A line whose stamp is cleared already: the one behind the next, after a record of one line.
    cleared: u64,
    pub(super) lanes: [LaneState; LANES],
}

/// What the sender keeps of a lane for itself.
#[derive(Default)]
pub(super) struct LaneState {
    pub(super) busy: bool,
    /// Busy only until the receiver has taken the last message from the staging area.
    pub(super) handed: bool,
    pub(super) number: u64,
    pub(super) staging: Option<Block>,
}

/// A large message, as the receiver has it in hand.
#[derive(Clone, Copy)]
pub(crate) struct Large {
    pub(super) source: usize,
    pub(super) lane: usize,
    pub(super) number: u64,
}

fn record_at(base: *mut u8, position: u64) -> *mut Record {
    // SAFETY: the offset is below RING_BYTES, the size of the block behind `base`.
    unsafe { base.add(RING_OFFSET + (position % RING) as usize).cast() }
}

/// Bytes that follow the header of a record with this many bytes of data.
fn following(bytes: u64) -> u64 {
    if bytes <= size_of::<[u64; 2]>() as u64 { 0 } else { bytes.next_multiple_of(LINE) }
}

/// Where the data of an eager record are.
///
/// # Safety
/// The record is one of a ring, and [`following`] bytes after it are in the ring.
unsafe fn data_of(record: *mut Record, bytes: u64) -> *mut u8 {
    if following(bytes) == 0 {
        // SAFETY: the record is valid, as the caller promises.
        unsafe { (&raw mut (*record).data).cast() }
    } else {
        // SAFETY: the caller promises that what follows is in the ring.
        unsafe { record.add(1).cast() }
    }
}

impl RingWriter {
    pub(super) fn new(endpoint: &Endpoint, receiver: usize) -> Result<RingWriter> {
        let block = endpoint.heap.allocate(RING_BYTES)?;
        let place = endpoint.world.memory.ring_place(endpoint.rank, receiver);
        place.store(block.offset(), Release);
        Ok(RingWriter {
            block,
            position: 0,
            head: 0,
            full: false,
            cleared: 0,
            lanes: std::array::from_fn(|_| LaneState::default()),
        })
    }

    pub(super) fn lane(&self, lane: usize) -> &Lane {
        // SAFETY: the block begins with a RingHead of atomics, and lives as long as `self`.
        unsafe { &(&*self.block.pointer().cast::<RingHead>()).lanes[lane] }
    }

    fn record(&self, position: u64) -> &Record {
        // SAFETY: a record header of atomics within the block, which lives as long as `self`.
        unsafe { &*record_at(self.block.pointer(), position) }
    }

    /// Whether `need` more bytes fit.
    #[inline]
    fn fits(&mut self, endpoint: &Endpoint, receiver: usize, need: u64) -> Result<bool> {
        if self.position + need - self.head <= RING {
            return Ok(true);
        }
        self.look_for_room(endpoint, receiver)?;
        Ok(self.position + need - self.head <= RING)
    }

    /// Looks how far the receiver has read, and how much it keeps.
    #[cold]
    fn look_for_room(&mut self, endpoint: &Endpoint, receiver: usize) -> Result<()> {
        let ack = endpoint.world.memory.ack(receiver, endpoint.rank);
        let head = ack.head.load(Acquire);
        if head < self.head || head > self.position {
            let what = "it says that it has read messages that do not exist";
            return Err(Error::Corrupt { rank: receiver, what });
        }
        self.head = head;
        self.full = ack.full.load(Relaxed) != 0;
        Ok(())
    }

    /// Whether the receiver keeps as much as its window allows, so that the next message is to be
    /// offered instead of sent. Looked up where the ring seemed full: between two looks a sender
    /// writes no more than a ring holds.
    #[inline]
    pub(super) fn window_is_full(&mut self, endpoint: &Endpoint, receiver: usize) -> Result<bool> {
        if self.full {
            self.look_for_room(endpoint, receiver)?;
        }
        Ok(self.full)
    }

    /// Writes a record, if there is room: `None` if not, and the receiver knows that some is wanted.
    /// `pack` writes the data of an eager one.
    pub(super) fn write(
        &mut self,
        endpoint: &Endpoint,
        receiver: usize,
        envelope: &Envelope,
        lane: Option<(usize, u64)>,
        pack: &mut dyn FnMut(*mut u8),
    ) -> Result<Option<()>> {
        let need = LINE + if lane.is_some() { 0 } else { following(envelope.bytes as u64) };
        let to_end = RING - self.position % RING;
        let skip = if need > to_end { to_end } else { 0 };
        // Two lines more, whose stamps are cleared.
        if !self.fits(endpoint, receiver, skip + need + 2 * LINE)? {
            endpoint.world.ask_for_room(receiver);
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
        let base = self.block.pointer();
        let record = self.record(self.position);
        let kind = match lane {
            // SAFETY: the place has room for the data, in the record or behind it within the
            // ring: `need <= to_end` now.
            None => unsafe {
                pack(data_of(record_at(base, self.position), envelope.bytes as u64));
                EAGER_RECORD
            },
            Some((lane, number)) => {
                record.data[0].store(number, Relaxed);
                LARGE_RECORD | (lane as u64) << 48
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
        if end != self.cleared {
            self.record(end).stamp.store(0, Relaxed);
        }
        record.stamp.store(self.position + 1, Release);
        self.position = end;
        endpoint.world.publish();
        endpoint.world.bell(receiver).ring_after_fence();
        // If the next record is one line as well, its stamp need not wait until the receiver's
        // cache has given up the line after it.
        if need == LINE {
            self.cleared = end + LINE;
            self.record(self.cleared).stamp.store(0, Relaxed);
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
    pub(super) fn is_there(endpoint: &Endpoint, source: usize) -> bool {
        endpoint.world.memory.ring_place(source, endpoint.rank).load(Relaxed) != 0
    }

    /// The ring from `source`, if that has made one.
    pub(super) fn find(endpoint: &Endpoint, source: usize) -> Result<Option<RingReader>> {
        let memory = &endpoint.world.memory;
        let place = memory.ring_place(source, endpoint.rank).load(Acquire);
        if place == 0 {
            return Ok(None);
        }
        match memory.heap(source, place, RING_BYTES) {
            Some(base) if place.is_multiple_of(4096) => {
                let head = &raw const memory.ack(endpoint.rank, source).head;
                Ok(Some(RingReader { base, position: 0, told: 0, head }))
            }
            _ => Err(Error::Corrupt { rank: source, what: "its ring lies outside its arena" }),
        }
    }

    /// The lane of a large message of this source.
    pub(super) fn lane(&self, lane: usize) -> &Lane {
        // SAFETY: the ring, checked to lie within the arena, begins with a RingHead of atomics;
        // the arena is mapped as long as the endpoint that owns this reader.
        unsafe { &(&*self.base.cast::<RingHead>()).lanes[lane] }
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
    pub(super) fn next(&mut self, endpoint: &Endpoint, source: usize) -> Result<Option<Letter>> {
        let corrupt = |what| Err(Error::Corrupt { rank: source, what });
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
                    self.pass(endpoint, source, self.position + LINE + count);
                    continue;
                }
                EAGER_RECORD if bytes <= EAGER as u64 && following(bytes) <= to_end => {
                    // SAFETY: what follows is in the ring, as just checked.
                    (Place::Ring(unsafe { data_of(place, bytes) }), following(bytes))
                }
                LARGE_RECORD => {
                    let lane = (kind >> 48 & 0xff) as usize;
                    if lane >= LANES {
                        return corrupt("a message names a lane that does not exist");
                    }
                    let number = record.data[0].load(Relaxed);
                    (Place::Lane(Large { source, lane, number }), 0)
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
            return Ok(Some(Letter { envelope, body, end: self.position + LINE + used }));
        }
    }

    /// Goes on to the record at `end`. The sender is told of each [`TELL`] bytes: a line that it has just
    /// looked at is expensive to write, and what is left of the ring is room for any message.
    #[inline]
    pub(super) fn pass(&mut self, endpoint: &Endpoint, source: usize, end: u64) {
        self.position = end;
        if end - self.told >= TELL {
            self.tell(endpoint, source);
        }
    }

    /// Tells the sender how far this rank has read: it may write over that.
    pub(super) fn tell(&mut self, endpoint: &Endpoint, source: usize) {
        if self.told == self.position {
            return;
        }
        self.told = self.position;
        // SAFETY: it lies in the arena, mapped as long as the endpoint that owns this reader.
        unsafe { &*self.head }.store(self.told, Release);
        endpoint.world.publish();
        endpoint.world.bell(source).ring_after_fence();
    }
}

/// A message in a ring.
pub(super) struct Letter {
    pub(super) envelope: Envelope,
    pub(super) body: Place,
    /// Where the next record begins.
    pub(super) end: u64,
}

/// Where its data are.
pub(super) enum Place {
    /// The envelope's bytes, in the ring; any bytes, whatever the sender does to them meanwhile.
    Ring(*const u8),
    Lane(Large),
}
