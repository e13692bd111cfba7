//! The allocator of a rank's own heap in the arena: rings, staging areas, shared buffers.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::World;
use crate::error::{Error, Result};

/// On what a block begins: a page.
pub(crate) const ALIGN: usize = 4096;

/// First fit over the free ranges, in pages; its own records stay in private memory.
pub(crate) struct SegmentHeap {
    world: Arc<World>,
    rank: usize,
    /// Free ranges: start to end, never adjacent.
    free: Mutex<BTreeMap<u64, u64>>,
}

/// A range of the heap, free again when dropped.
pub(crate) struct Block {
    heap: Arc<SegmentHeap>,
    offset: u64,
    bytes: usize,
}

impl SegmentHeap {
    pub(crate) fn new(world: Arc<World>, rank: usize) -> SegmentHeap {
        let layout = world.memory.layout;
        let mut free = BTreeMap::new();
        if layout.heap_offset() < layout.segment_bytes {
            free.insert(layout.heap_offset() as u64, layout.segment_bytes as u64);
        }
        SegmentHeap { world, rank, free: Mutex::new(free) }
    }

    /// Zeroed memory of at least `bytes`, on a page boundary.
    pub(crate) fn allocate(self: &Arc<Self>, bytes: usize) -> Result<Block> {
        // What cannot be rounded up to pages does not fit either.
        let need = bytes.max(1).checked_next_multiple_of(ALIGN).unwrap_or(usize::MAX) as u64;
        let mut free = self.free.lock();
        let found = free.iter().find(|(start, end)| *end - *start >= need);
        let Some((start, end)) = found.map(|(start, end)| (*start, *end)) else {
            return Err(Error::Unavailable {
                what: format!("{bytes} bytes of shared memory"),
                reason: format!(
                    "the arena of rank {} has {} bytes, and no free range is that long",
                    self.rank, self.world.memory.layout.segment_bytes
                ),
                remedy: "share less at once".into(),
            });
        };
        free.remove(&start);
        if start + need < end {
            free.insert(start + need, end);
        }
        Ok(Block { heap: self.clone(), offset: start, bytes: need as usize })
    }
}

impl Block {
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn pointer(&self) -> *mut u8 {
        let heap = &self.heap;
        heap.world.memory.heap(heap.rank, self.offset, self.bytes).expect("it was allocated there")
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        #[cfg(target_os = "linux")]
        {
            // The pages go back to the system, and the range reads as zeros when it is used
            // again. Where that is refused, zeros are written.
            // SAFETY: the range is this block's own, which nobody uses any more.
            let punched = unsafe {
                rustix::mm::madvise(
                    self.pointer().cast(),
                    self.bytes,
                    rustix::mm::Advice::LinuxRemove,
                )
            };
            if punched.is_err() {
                // SAFETY: as above, and the owner may write its segment.
                unsafe { std::ptr::write_bytes(self.pointer(), 0, self.bytes) };
            }
        }
        let mut free = self.heap.free.lock();
        let (mut start, mut end) = (self.offset, self.offset + self.bytes as u64);
        if let Some((&before, &before_end)) = free.range(..start).next_back()
            && before_end == start
        {
            free.remove(&before);
            start = before;
        }
        if let Some(&after_end) = free.get(&end) {
            free.remove(&end);
            end = after_end;
        }
        free.insert(start, end);
    }
}
