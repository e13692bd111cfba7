//! What lies where in a ring.

use std::sync::atomic::AtomicU64;

use crate::copy::copy_bytes;
use crate::transport::message::Envelope;

/// Places for large messages in a ring's head.
pub(crate) const RENDEZVOUS: usize = 64;

/// Bytes of data that travel in the ring itself at most.
pub(crate) const EAGER: usize = 8 * 1024;
pub(in super::super) const RING: u64 = 64 * 1024;
/// Bytes that a receiver reads before it says so.
pub(super) const TELL: u64 = RING / 16;
pub(super) const LINE: u64 = 64;
/// Bytes whose stamps a sender of short messages clears at once.
pub(super) const AHEAD: u64 = 4 * LINE;
// With what its receiver has not told of, a ring has room for the longest message, for what is
// skipped before it, the rest of a line among that, and for lines that are cleared.
const _: () = assert!(TELL + 2 * (LINE + EAGER as u64) + 3 * LINE <= RING);
/// Bytes of a rendezvous's staging area, and of one piece of it.
pub(in super::super) const STAGING: usize = 16 * PIECE;
pub(in super::super) const PIECE: usize = 16 * 1024;

/// Where in a rendezvous's staging area the bytes from `done` on of its message `number` go. Each
/// begins at another piece: lines that the receiver has just read take twice as long to write.
pub(in super::super) fn staged_at(number: u64, done: usize) -> usize {
    // An odd number of pieces, so that all of the 16 have their turn.
    (number as usize).wrapping_mul(5 * PIECE).wrapping_add(done) % STAGING
}

/// What the stamp of a place is more than its position: a record begins there, ..
pub(super) const RECORD: u64 = 1;
/// .. the next one begins on the next line, ..
pub(super) const NEXT_LINE: u64 = 2;
/// .. there is a [`Repeat`].
pub(super) const REPEAT: u64 = 3;

/// A message that is as the record before it says, but for its data.
#[repr(C, align(16))]
pub(super) struct Repeat {
    pub(super) stamp: AtomicU64,
    pub(super) data: AtomicU64,
}

/// Bytes that a repeat takes of the ring, and bytes of data that it holds at most.
pub(super) const REPEAT_BYTES: u64 = size_of::<Repeat>() as u64;
pub(super) const REPEATED: usize = size_of::<u64>();
const _: () = assert!(REPEAT < REPEAT_BYTES && LINE.is_multiple_of(REPEAT_BYTES));

/// Copies data of a repeat.
///
/// # Safety
/// As [`std::ptr::copy_nonoverlapping`].
#[inline]
pub(super) unsafe fn copy_short(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: this function's contract.
    unsafe {
        match bytes {
            // As most are, without a call.
            REPEATED => to.cast::<[u8; REPEATED]>().write(from.cast::<[u8; REPEATED]>().read()),
            bytes => copy_bytes(from, to, bytes),
        }
    }
}

pub(super) const EAGER_RECORD: u64 = 1 << 56;
pub(super) const LARGE_RECORD: u64 = 2 << 56;
pub(super) const SKIP_RECORD: u64 = 3 << 56;

/// A record's header, one cache line, with the data of the shortest messages.
#[repr(C, align(64))]
pub(in super::super) struct Record {
    pub(in super::super) stamp: AtomicU64,
    /// `kind << 56 | rendezvous << 48 | file << 32 | line`.
    pub(in super::super) kind: AtomicU64,
    pub(in super::super) context: AtomicU64,
    /// `size << 32 | tag`, the size that of one element in bytes.
    pub(in super::super) tag: AtomicU64,
    pub(in super::super) dtype: AtomicU64,
    /// `dtype_text << 48 | count`; of a record to be skipped, the bytes behind this line.
    pub(in super::super) count: AtomicU64,
    /// The data, if they fit; else they follow. Of a large message: its number in the rendezvous,
    /// and 0, or where that lies if it is not in the ring's head ([`far_word`]).
    pub(in super::super) data: [AtomicU64; 2],
}

/// The part of a word that is a count of elements; messages of more bytes do not exist.
pub(super) const COUNT: u64 = (1 << 48) - 1;

/// What the header of a record says of a message, in the order of its words.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(super) site: u64,
    pub(super) context: u64,
    pub(super) tag: u64,
    pub(super) dtype: u64,
    pub(super) count: u64,
}

impl Header {
    #[inline]
    pub(crate) fn of(envelope: &Envelope) -> Header {
        Header {
            site: u64::from(envelope.file) << 32 | u64::from(envelope.line),
            context: envelope.context,
            tag: u64::from(envelope.size) << 32 | u64::from(envelope.tag),
            dtype: envelope.dtype,
            count: u64::from(envelope.dtype_text) << 48 | envelope.count & COUNT,
        }
    }
}

/// Where the data of a large message are, as its sender shows it.
#[repr(C, align(64))]
pub(in super::super) struct Rendezvous {
    /// The message it is for.
    pub(in super::super) number: AtomicU64,
    /// Offset of the data in the sender's segment; 0: they come through the staging area.
    pub(in super::super) direct: AtomicU64,
    /// Offset of the staging area.
    pub(in super::super) staging: AtomicU64,
    /// Bytes put there so far.
    pub(in super::super) filled: AtomicU64,
    /// The data's address in the sender's process.
    pub(in super::super) address: AtomicU64,
    /// Not 0: nothing goes to the staging area before the receiver asks for it.
    pub(in super::super) waits: AtomicU64,
    /// The number of the last message that was taken back.
    pub(in super::super) withdrawn: crate::sync::atomic::AtomicU64,
}

/// How far a receiver is with the large message of one rendezvous.
#[repr(C)]
pub(crate) struct RendezvousAck {
    /// The number of the message that is being read, 0 for none.
    pub(crate) reading: crate::sync::atomic::AtomicU64,
    /// The number of the last one that has been read or refused.
    pub(crate) finished: AtomicU64,
    /// Bytes taken from the staging area of the one being read.
    pub(crate) drained: AtomicU64,
}

/// Chunks of rendezvous that a sender makes where those of the ring's head are all in use, each as
/// large as all before it together; and what the receiver says of them, in chunks as large.
pub(crate) const CHUNKS: usize = 14;

/// Large messages that one rank can have under way to another at a time.
pub(in super::super) const MOST: usize = RENDEZVOUS << CHUNKS;

/// The chunk of a rendezvous beyond those of the head, and its place there.
pub(in super::super) fn in_chunk(rendezvous: usize) -> Option<(usize, usize)> {
    let chunk = (rendezvous / RENDEZVOUS).checked_ilog2()? as usize;
    Some((chunk, rendezvous - (RENDEZVOUS << chunk)))
}

/// How many there are in a chunk.
pub(in super::super) fn chunk_size(chunk: usize) -> usize {
    RENDEZVOUS << chunk
}

/// A rendezvous beyond those of the head and where its chunk lies, as one word. Blocks of the heap
/// lie on lines.
pub(super) fn far_word(rendezvous: usize, chunk: u64) -> u64 {
    ((chunk / LINE) << FAR_BITS) | rendezvous as u64
}

/// The rendezvous and the offset of its chunk, of such a word; `None` of one that makes no sense.
pub(super) fn of_far_word(word: u64) -> Option<(usize, u64)> {
    let (rendezvous, chunk) = ((word & ((1 << FAR_BITS) - 1)) as usize, (word >> FAR_BITS) * LINE);
    (in_chunk(rendezvous).is_some() && chunk != 0).then_some((rendezvous, chunk))
}

const FAR_BITS: u32 = MOST.ilog2();

#[repr(C, align(4096))]
pub(super) struct RingHead {
    pub(super) all_rendezvous: [Rendezvous; RENDEZVOUS],
}

pub(super) const RING_OFFSET: usize = size_of::<RingHead>();
/// Bytes of a ring in the arena.
pub(in super::super) const RING_BYTES: usize = RING_OFFSET + RING as usize;

pub(super) fn record_at(base: *mut u8, position: u64) -> *mut Record {
    // SAFETY: the offset is below RING_BYTES, the size of the block behind `base`.
    unsafe { base.add(RING_OFFSET + (position % RING) as usize).cast() }
}

/// The place at a position that is a multiple of [`REPEAT_BYTES`].
pub(super) fn repeat_at(base: *mut u8, position: u64) -> *mut Repeat {
    record_at(base, position).cast()
}

/// Bytes that follow the header of a record with this many bytes of data.
pub(super) fn following(bytes: u64) -> u64 {
    if bytes <= size_of::<[u64; 2]>() as u64 { 0 } else { bytes.next_multiple_of(LINE) }
}

/// Where the data of an eager record are.
///
/// # Safety
/// The record is one of a ring, and [`following`] bytes after it are in the ring.
pub(super) unsafe fn data_of(record: *mut Record, bytes: u64) -> *mut u8 {
    if following(bytes) == 0 {
        // SAFETY: the record is one of a ring (this function's contract), so that its fields lie in
        // the ring's block; a place is computed, and nothing read.
        unsafe { (&raw mut (*record).data).cast() }
    } else {
        // SAFETY: `following` bytes, more than none, are in the ring after the record (this
        // function's contract), so that its end lies in the ring's block.
        unsafe { record.add(1).cast() }
    }
}
