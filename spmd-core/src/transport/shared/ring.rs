//! Messages between processes: a byte ring from each sender to each receiver that it has written
//! to, in the sender's segment, made at the first message.
//!
//! A record is a header line and its data, on 64-byte boundaries. The header's first word, its
//! stamp, is the record's position plus one, written last; before that, the stamp of the next
//! record is cleared, so that old data there are never taken for one. The receiver says in its
//! own segment ([`super::layout::Ack`]) how far it has read.
//!
//! Data above [`EAGER`] do not go through the ring: the record names one of some *lanes*, in
//! which the sender shows where the data are (in its segment: read there; in private memory:
//! through a staging area, piece after piece, or by `process_vm_readv`).

use std::sync::atomic::{AtomicU64, Ordering::*};

use super::Endpoint;
use super::heap::Block;
use super::layout::LANES;
use crate::error::{Error, Result};
use crate::transport::message::{Arrived, Body, Envelope};

/// Bytes of data that travel in the ring itself at most.
pub(crate) const EAGER: usize = 8 * 1024;
const RING: u64 = 64 * 1024;
const LINE: u64 = 64;
/// Bytes of a lane's staging area, and of one piece of it.
pub(super) const STAGING: usize = 4 * PIECE;
pub(super) const PIECE: usize = 64 * 1024;

const EAGER_RECORD: u64 = 1;
const LARGE_RECORD: u64 = 2;
const SKIP_RECORD: u64 = 3;

/// A record's header, one cache line.
#[repr(C, align(64))]
struct Record {
    stamp: AtomicU64,
    /// `kind << 56 | lane << 48 | line`.
    kind: AtomicU64,
    context: AtomicU64,
    /// `dtype << 32 | tag`.
    tag: AtomicU64,
    /// `dtype_text << 32 | file`.
    texts: AtomicU64,
    count: AtomicU64,
    bytes: AtomicU64,
    /// Of a large message: its number in the lane.
    number: AtomicU64,
}

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

/// The sender's side of a ring.
pub(super) struct RingWriter {
    block: Block,
    position: u64,
    /// What the receiver is known to have read.
    head: u64,
    pub(super) lanes: [LaneState; LANES],
}

/// What the sender keeps of a lane for itself.
#[derive(Default)]
pub(super) struct LaneState {
    pub(super) busy: bool,
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
    // SAFETY: the offset is below RING_OFFSET + RING, the size of the block behind `base`.
    unsafe { base.add(RING_OFFSET + (position % RING) as usize).cast() }
}

impl RingWriter {
    pub(super) fn new(endpoint: &Endpoint, receiver: usize) -> Result<RingWriter> {
        let block = endpoint.heap.allocate(RING_OFFSET + RING as usize)?;
        let place = endpoint.world.memory.ring_place(endpoint.rank, receiver);
        place.store(block.offset(), Release);
        Ok(RingWriter {
            block,
            position: 0,
            head: 0,
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
    fn fits(&mut self, endpoint: &Endpoint, receiver: usize, need: u64) -> Result<bool> {
        if self.position + need - self.head <= RING {
            return Ok(true);
        }
        let head = endpoint.world.memory.ack(receiver, endpoint.rank).head.load(Acquire);
        if head < self.head || head > self.position {
            let what = "it says that it has read messages that do not exist";
            return Err(Error::Corrupt { rank: receiver, what });
        }
        self.head = head;
        Ok(self.position + need - head <= RING)
    }

    /// Writes a record, if there is room: `None` if not. `pack` writes the data of an eager one.
    pub(super) fn write(
        &mut self,
        endpoint: &Endpoint,
        receiver: usize,
        envelope: &Envelope,
        lane: Option<(usize, u64)>,
        pack: &mut dyn FnMut(*mut u8),
    ) -> Result<Option<()>> {
        let data = if lane.is_some() { 0 } else { envelope.bytes as u64 };
        let need = LINE + data.next_multiple_of(LINE);
        let to_end = RING - self.position % RING;
        let skip = if need > to_end { to_end } else { 0 };
        // One line more, whose stamp is cleared.
        if !self.fits(endpoint, receiver, skip + need + LINE)? {
            return Ok(None);
        }
        if skip > 0 {
            self.record(self.position + skip).stamp.store(0, Relaxed);
            let record = self.record(self.position);
            record.kind.store(SKIP_RECORD << 56, Relaxed);
            record.bytes.store(skip - LINE, Relaxed);
            record.stamp.store(self.position + 1, Release);
            self.position += skip;
        }
        let base = self.block.pointer();
        let record = self.record(self.position);
        let (kind, lane, number) = match lane {
            None => (EAGER_RECORD, 0, 0),
            Some((lane, number)) => (LARGE_RECORD, lane as u64, number),
        };
        record.kind.store(kind << 56 | lane << 48 | u64::from(envelope.line), Relaxed);
        record.context.store(envelope.context, Relaxed);
        record.tag.store(u64::from(envelope.dtype) << 32 | u64::from(envelope.tag), Relaxed);
        let texts = u64::from(envelope.dtype_text) << 32 | u64::from(envelope.file);
        record.texts.store(texts, Relaxed);
        record.count.store(envelope.count, Relaxed);
        record.bytes.store(envelope.bytes as u64, Relaxed);
        record.number.store(number, Relaxed);
        if data > 0 {
            // SAFETY: the record's data follow its header within the ring: `need <= to_end` now.
            pack(unsafe { record_at(base, self.position).cast::<u8>().add(LINE as usize) });
        }
        self.record(self.position + need).stamp.store(0, Relaxed);
        record.stamp.store(self.position + 1, Release);
        self.position += need;
        endpoint.world.publish();
        endpoint.world.bell(receiver).ring_after_fence();
        Ok(Some(()))
    }
}

/// The receiver's side of a ring.
pub(crate) struct RingReader {
    base: *mut u8,
    position: u64,
}

// SAFETY: the pointer leads into the arena, which is mapped for the whole process.
unsafe impl Send for RingReader {}

impl RingReader {
    /// The ring from `source`, if that has made one.
    pub(super) fn find(endpoint: &Endpoint, source: usize) -> Result<Option<RingReader>> {
        let memory = &endpoint.world.memory;
        let place = memory.ring_place(source, endpoint.rank).load(Acquire);
        if place == 0 {
            return Ok(None);
        }
        match memory.heap(source, place, RING_OFFSET + RING as usize) {
            Some(base) if place.is_multiple_of(4096) => Ok(Some(RingReader { base, position: 0 })),
            _ => Err(Error::Corrupt { rank: source, what: "its ring lies outside its arena" }),
        }
    }

    /// The lane of a large message of this source.
    pub(super) fn lane(&self, lane: usize) -> &Lane {
        // SAFETY: the ring, checked to lie within the arena, begins with a RingHead of atomics;
        // the arena is mapped as long as the endpoint that owns this reader.
        unsafe { &(&*self.base.cast::<RingHead>()).lanes[lane] }
    }

    /// The next record, if there is one. Its numbers may be anything: they are checked here.
    pub(super) fn next(&mut self, endpoint: &Endpoint, source: usize) -> Result<Option<Arrived>> {
        let ack = endpoint.world.memory.ack(endpoint.rank, source);
        let corrupt = |what| Err(Error::Corrupt { rank: source, what });
        loop {
            // SAFETY: a header of atomics within the ring, checked to lie within the arena.
            let record = unsafe { &*record_at(self.base, self.position) };
            let stamp = record.stamp.load(Acquire);
            if stamp != self.position + 1 {
                return Ok(None);
            }
            let kind = record.kind.load(Relaxed);
            let bytes = record.bytes.load(Relaxed);
            let to_end = RING - self.position % RING - LINE;
            let (tag, texts) = (record.tag.load(Relaxed), record.texts.load(Relaxed));
            let envelope = Envelope {
                context: record.context.load(Relaxed),
                source: source as u32,
                tag: tag as u32,
                dtype: (tag >> 32) as u32,
                dtype_text: (texts >> 32) as u16,
                file: texts as u16,
                line: kind as u32,
                count: record.count.load(Relaxed),
                bytes: bytes as usize,
            };
            let (body, used) = match kind >> 56 {
                SKIP_RECORD if bytes == to_end => (None, bytes),
                EAGER_RECORD if bytes <= to_end && bytes <= EAGER as u64 => {
                    let mut data = vec![0u8; bytes as usize];
                    // SAFETY: the data lie behind the header within the ring, as just checked;
                    // they are bytes, so whatever the sender does to them meanwhile, the copy is
                    // some bytes.
                    unsafe {
                        let from = record_at(self.base, self.position).cast::<u8>();
                        let from = from.add(LINE as usize);
                        std::ptr::copy_nonoverlapping(from, data.as_mut_ptr(), data.len());
                    }
                    (Some(Body::Here(data)), bytes.next_multiple_of(LINE))
                }
                LARGE_RECORD => {
                    let lane = (kind >> 48 & 0xff) as usize;
                    if lane >= LANES {
                        return corrupt("a message names a lane that does not exist");
                    }
                    let number = record.number.load(Relaxed);
                    (Some(Body::There(Box::new(Large { source, lane, number }))), 0)
                }
                _ => return corrupt("a message has an impossible header"),
            };
            self.position += LINE + used;
            ack.head.store(self.position, Release);
            endpoint.world.publish();
            endpoint.world.bell(source).ring_after_fence();
            if let Some(body) = body {
                return Ok(Some(Arrived { envelope, body }));
            }
        }
    }
}
