//! What a hostile peer may write where this rank reads: any bytes in its ring, its records of calls
//! and its texts. For the fuzzer in `fuzz/`, and for a test that tries some.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use super::format::{MOST, RECORD, REPEAT, RING, RING_BYTES, RING_OFFSET, repeat_at};
use super::reader::{DataPlace, RingReader};
use crate::mode::Mode;
use crate::text::TABLE_BYTES;
use crate::transport::shared::layout::ArenaLayout;
use crate::transport::shared::memory::Memory;
use crate::transport::shared::record::CallRecord;
use crate::transport::shared::{Endpoint, World};
use crate::tuning::Tuning;
use crate::wait::Policy;

/// The end of a rank that reads what it has written itself.
fn endpoint() -> &'static Endpoint {
    static END: OnceLock<Endpoint> = OnceLock::new();
    END.get_or_init(|| {
        let memory = Memory::anonymous(ArenaLayout::anonymous(1, 1 << 20)).expect("a megabyte");
        let policy = Policy::new(1, 0);
        let world = World::new(memory, Mode::Threads, policy, None, Tuning::default(), None, None);
        Endpoint::new(Arc::new(world), 0)
    })
}

/// Reads the messages of a ring of these bytes, each of which its sender calls complete, a record or
/// what may come between.
pub(crate) fn read(bytes: &[u8]) {
    let endpoint = endpoint();
    let block = endpoint.heap.allocate(RING_BYTES).expect("room for one ring");
    let (base, head) = (block.pointer(), AtomicU64::new(0));
    // SAFETY: the block has room for so many bytes behind the head of a ring, and is this one's.
    unsafe {
        let length = bytes.len().min(RING as usize);
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), base.add(RING_OFFSET), length);
    }
    let mut reader = RingReader { base, position: 0, last: None, told: 0, head: &raw const head };
    for turn in 0..64 {
        let start = reader.position;
        let stamp = match bytes.get(turn) {
            Some(byte) if byte % 2 == 1 => RECORD + u64::from(byte / 2) % REPEAT,
            _ => RECORD,
        };
        // SAFETY: two atomics in the block.
        unsafe { &*repeat_at(base, start) }.stamp.store(start + stamp, Relaxed);
        let Ok(found) = reader.next(endpoint, 0) else { return };
        // A record that was to be skipped.
        let Some(message) = found else { continue };
        match message.body {
            DataPlace::Rendezvous(large) => assert!(large.rendezvous < MOST),
            DataPlace::Ring(from) => {
                let (at, length) = (from as usize - base as usize, message.envelope.bytes);
                assert!(at >= RING_OFFSET && at + length <= RING_BYTES);
            }
        }
        assert!(message.end > reader.position);
        reader.pass(endpoint, 0, message.end);
    }
}

/// Describes a call whose record, and behind it the table of texts, hold these bytes.
pub(crate) fn describe(bytes: &[u8]) {
    const WORDS: usize = size_of::<CallRecord>() / 8;
    let (words, texts) = bytes.as_chunks::<8>().0.split_at(bytes.len().min(8 * WORDS) / 8);
    let mut record = [0u64; WORDS];
    record.iter_mut().zip(words).for_each(|(word, bytes)| *word = u64::from_le_bytes(*bytes));
    let (world, texts) = (&endpoint().world, texts.as_flattened());
    // SAFETY: a record is as many atomic words; the table is one of atomics, in memory that this
    // one alone uses.
    let record: CallRecord = unsafe {
        let table = std::ptr::from_ref(world.memory.text(0)).cast_mut().cast::<u8>();
        table.write_bytes(0, TABLE_BYTES);
        table.copy_from_nonoverlapping(texts.as_ptr(), texts.len().min(TABLE_BYTES));
        std::mem::transmute(record)
    };
    let text = world.describe(0, &record);
    assert!(!text.is_empty() && text.len() < 4 * 4 * TABLE_BYTES);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_peer_writes_does_harm() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..3000 {
            // Words that are often small, or all but that.
            let length = random.usize(..300);
            let words = (0..length).flat_map(|_| {
                let word = random.u64(..);
                match random.u8(..4) {
                    0 => word,
                    1 => word % 9000,
                    2 => ((1 + word % 3) << 56) | (word % 70_000),
                    _ => u64::MAX - word % 9000,
                }
                .to_le_bytes()
            });
            let bytes: Vec<u8> = words.collect();
            read(&bytes);
            describe(&bytes);
        }
    }
}
