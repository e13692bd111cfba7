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

/// A block that is kept for the next use, because the system takes longer to make pages than a
/// message to be copied into them.
#[derive(Default)]
pub(super) struct Spare(Mutex<Option<Block>>);

impl Spare {
    /// Bytes that are kept at most.
    const MOST: usize = 8 << 20;

    /// Memory of at least `bytes`, which may hold anything: the kept block, or a new one.
    pub(super) fn take(&self, heap: &Arc<SegmentHeap>, bytes: usize) -> Result<Block> {
        let kept = self.0.lock().take_if(|block| block.bytes() >= bytes);
        kept.map_or_else(|| heap.allocate(bytes), Ok)
    }

    /// Keeps the block, if it is not too large, and larger than the one that is kept.
    pub(super) fn put(&self, block: Block) {
        let mut kept = self.0.lock();
        let larger = kept.as_ref().is_none_or(|kept| kept.bytes() < block.bytes());
        if larger && block.bytes() <= Self::MOST {
            *kept = Some(block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::shared::layout::Layout;
    use crate::transport::shared::memory::Memory;
    use crate::transport::shared::{Mode, Tuning};
    use crate::wait::Policy;

    fn heap() -> Arc<SegmentHeap> {
        let memory = Memory::anonymous(Layout::anonymous(1, 64 << 20)).unwrap();
        let policy = Policy::new(1, 0);
        let world = World::new(memory, Mode::Threads, policy, None, Tuning::default(), None);
        Arc::new(SegmentHeap::new(Arc::new(world), 0))
    }

    #[test]
    fn a_spare_block_serves_again_if_it_is_large_enough() {
        let (heap, spare) = (heap(), Spare::default());
        let first = spare.take(&heap, 2 * ALIGN).unwrap();
        let place = first.offset();
        spare.put(first);
        let smaller = spare.take(&heap, ALIGN).unwrap();
        assert_eq!((smaller.offset(), smaller.bytes()), (place, 2 * ALIGN));
        spare.put(smaller);
        let larger = spare.take(&heap, 3 * ALIGN).unwrap();
        assert_eq!((larger.offset(), larger.bytes()), (place + 2 * ALIGN as u64, 3 * ALIGN));
    }

    #[test]
    fn the_larger_block_is_kept_and_none_that_is_huge() {
        let (heap, spare) = (heap(), Spare::default());
        let sizes = [ALIGN, 3 * ALIGN, 2 * ALIGN, Spare::MOST + ALIGN];
        let blocks = sizes.map(|bytes| heap.allocate(bytes).unwrap());
        blocks.into_iter().for_each(|block| spare.put(block));
        assert_eq!(spare.take(&heap, 1).unwrap().bytes(), 3 * ALIGN);
        assert_eq!(spare.take(&heap, 1).unwrap().bytes(), ALIGN);
    }
}
