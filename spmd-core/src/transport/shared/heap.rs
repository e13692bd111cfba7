//! The allocator of a rank's own heap in the arena: rings, staging areas, shared buffers, and
//! large allocations of a program that has [`SharedAlloc`](crate::SharedAlloc).

mod ranges;

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use ranges::Ranges;

use super::world::World;
use crate::error::{Error, Result};

/// On what a block begins: a page.
pub(crate) const ALIGN: usize = 4096;
/// Bytes of used memory that are kept for the next use at most: the system takes longer to make
/// pages than a message to be copied into them.
const KEPT: u64 = 64 << 20;

/// Blocks that were just freed, kept as they are ..
const RECENT: usize = 4;
/// .. if they are not longer than this.
const RECENT_BYTES: u64 = 1 << 20;

/// Best fit over the free ranges, in pages; its own records stay in private memory.
pub(crate) struct SegmentHeap {
    world: Arc<World>,
    rank: usize,
    /// Its part of the segment.
    part: Range<usize>,
    /// Of the standard library: waiting for it allocates nothing, as an allocator must not.
    ranges: Mutex<Free>,
}

struct Free {
    all: Ranges,
    /// Those of them whose memory may hold anything; the rest reads as zeros, and takes no memory.
    used: Ranges,
    /// Start and end of blocks that were freed last, and belong to both: whoever frees a block
    /// often asks for one of the same size next, which then costs no search.
    recent: [Option<(u64, u64)>; RECENT],
    /// The one that makes room for the next.
    oldest: usize,
}

impl Free {
    /// A block of this length from among the last ones.
    fn take_recent(&mut self, length: u64) -> Option<u64> {
        let fits =
            |it: &&mut Option<(u64, u64)>| it.is_some_and(|(start, end)| end - start == length);
        let block = self.recent.iter_mut().find(fits).and_then(Option::take);
        block.map(|(start, _)| start)
    }

    /// Notes the last ones with all others.
    fn insert_recent(&mut self) {
        for (start, end) in std::mem::take(&mut self.recent).into_iter().flatten() {
            self.insert(start, end);
        }
    }

    fn insert(&mut self, start: u64, end: u64) {
        self.all.insert(start, end);
        self.used.insert(start, end);
    }
}

/// A range of the heap, free again when dropped.
pub(crate) struct Block {
    heap: Arc<SegmentHeap>,
    offset: u64,
    bytes: usize,
}

/// What a new block holds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    Zeros,
    Anything,
}

impl SegmentHeap {
    /// A heap in this part of the segment, whole pages behind its records.
    pub(crate) fn new(world: Arc<World>, rank: usize, part: Range<usize>) -> SegmentHeap {
        let (start, end) = (part.start as u64, part.end as u64);
        let mut all = Ranges::searched();
        if start < end {
            all.insert(start, end);
        }
        let free = Free { all, used: Ranges::default(), recent: Default::default(), oldest: 0 };
        SegmentHeap { world, rank, part, ranges: Mutex::new(free) }
    }

    /// Zeroed memory of at least `bytes`, on a page boundary.
    pub(crate) fn allocate(self: &Arc<Self>, bytes: usize) -> Result<Block> {
        self.block(bytes, Content::Zeros)
    }

    /// Memory of at least `bytes`, on a page boundary.
    pub(crate) fn block(self: &Arc<Self>, bytes: usize, content: Content) -> Result<Block> {
        let Some(offset) = self.take(bytes, content) else {
            return Err(Error::unavailable(
                format!("{bytes} bytes of shared memory"),
                format!(
                    "this part of the arena of rank {} has {} bytes, and no free range is that long",
                    self.rank,
                    self.part.len()
                ),
                "share less at once".into(),
            ));
        };
        Ok(Block { heap: self.clone(), offset, bytes: pages(bytes) as usize })
    }

    /// The offset of a range of `bytes` in whole pages, if there is one.
    pub(crate) fn take(&self, bytes: usize, content: Content) -> Option<u64> {
        let need = pages(bytes);
        let mut free = self.ranges();
        let clear = |start: u64, end: u64| {
            if content == Content::Zeros {
                // SAFETY: the range lies in the block just taken, which nobody else uses.
                unsafe { std::ptr::write_bytes(self.pointer(start), 0, (end - start) as usize) };
            }
        };
        if let Some(start) = free.take_recent(need) {
            clear(start, start + need);
            return Some(start);
        }
        free.insert_recent();
        let start = free.all.best_of(need)?;
        free.all.remove(start, start + need, |_, _| {});
        free.used.remove(start, start + need, clear);
        Some(start)
    }

    /// Makes a block of `old` bytes at `offset` one of `new` bytes, if that is possible where it
    /// is. What it gains may hold anything.
    pub(crate) fn resize(&self, offset: u64, old: usize, new: usize) -> bool {
        let (old, new) = (offset + pages(old), offset + pages(new));
        if new < old {
            self.give(new, (old - new) as usize);
            return true;
        }
        let mut free = self.ranges();
        free.insert_recent();
        let fits = new == old || free.all.contains(old, new);
        if fits && new > old {
            free.all.remove(old, new, |_, _| {});
            free.used.remove(old, new, |_, _| {});
        }
        fits
    }

    /// Takes a range of `bytes` in whole pages back, which nobody uses any more.
    pub(crate) fn give(&self, offset: u64, bytes: usize) {
        let end = offset + pages(bytes);
        let mut free = self.ranges();
        if end - offset <= RECENT_BYTES {
            let place = free.oldest;
            free.oldest = (place + 1) % RECENT;
            let Some((start, end)) = free.recent[place].replace((offset, end)) else { return };
            free.insert(start, end);
        } else {
            free.insert(offset, end);
        }
        if free.used.total() > KEPT {
            for (start, end) in free.used.take_all() {
                self.clear(start, end);
            }
        }
    }

    /// Gives the pages of a free range back to the system; it reads as zeros then.
    fn clear(&self, start: u64, end: u64) {
        let (place, bytes) = (self.pointer(start), (end - start) as usize);
        #[cfg(target_os = "linux")]
        {
            // SAFETY: the range is free, and no one else can take it, the ranges being locked.
            let punched = unsafe {
                rustix::mm::madvise(place.cast(), bytes, rustix::mm::Advice::LinuxRemove)
            };
            if punched.is_ok() {
                return;
            }
        }
        // SAFETY: as above, and the owner may write its segment.
        unsafe { std::ptr::write_bytes(place, 0, bytes) };
    }

    /// The address of an offset in this heap.
    pub(crate) fn pointer(&self, offset: u64) -> *mut u8 {
        self.world.memory.heap(self.rank, offset, 0).expect("a range of this heap")
    }

    /// Addresses of the heap: the first, and that after the last.
    pub(crate) fn span(&self) -> (usize, usize) {
        let start = self.pointer(self.first()) as usize;
        (start, start + self.part.len())
    }

    /// The offset of the first address of [`SegmentHeap::span`].
    pub(crate) fn first(&self) -> u64 {
        self.part.start as u64
    }

    fn ranges(&self) -> MutexGuard<'_, Free> {
        self.ranges.lock().unwrap_or_else(|poison| poison.into_inner())
    }
}

/// What cannot be rounded up to pages fits nowhere either.
fn pages(bytes: usize) -> u64 {
    bytes.max(1).checked_next_multiple_of(ALIGN).unwrap_or(usize::MAX) as u64
}

impl Block {
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn pointer(&self) -> *mut u8 {
        self.heap.pointer(self.offset)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.heap.give(self.offset, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mode::Mode;
    use crate::transport::shared::layout::ArenaLayout;
    use crate::transport::shared::memory::Memory;
    use crate::tuning::Tuning;
    use crate::wait::Policy;

    const HEAP: usize = 512 << 20;

    fn heap() -> Arc<SegmentHeap> {
        let memory = Memory::anonymous(ArenaLayout::anonymous(1, HEAP)).unwrap();
        let policy = Policy::new(1, 0);
        let world = World::new(memory, Mode::Threads, policy, None, Tuning::default(), None, None);
        let part = world.memory.layout.heap();
        Arc::new(SegmentHeap::new(Arc::new(world), 0, part))
    }

    fn bytes_of(block: &mut Block) -> &mut [u8] {
        // SAFETY: the block is the test's own, as long as it is.
        unsafe { std::slice::from_raw_parts_mut(block.pointer(), block.bytes()) }
    }

    #[test]
    fn used_memory_serves_again_and_is_zeroed_where_that_is_asked_for() {
        let heap = heap();
        let mut first = heap.allocate(2 * ALIGN).unwrap();
        let place = first.offset();
        bytes_of(&mut first).fill(7);
        drop(first);
        let mut again = heap.block(ALIGN, Content::Anything).unwrap();
        assert_eq!((again.offset(), bytes_of(&mut again)[0]), (place, 7));
        let mut next = heap.allocate(2 * ALIGN).unwrap();
        assert_eq!(next.offset(), place + ALIGN as u64);
        assert!(bytes_of(&mut next).iter().all(|byte| *byte == 0));
    }

    #[test]
    fn what_is_kept_has_a_limit() {
        let heap = heap();
        let mut block = heap.allocate(KEPT as usize + ALIGN).unwrap();
        let place = block.offset();
        bytes_of(&mut block)[0] = 1;
        drop(block);
        let mut again = heap.block(1, Content::Anything).unwrap();
        assert_eq!((again.offset(), bytes_of(&mut again)[0]), (place, 0));
    }

    #[test]
    fn a_block_grows_into_what_is_free_behind_it() {
        let heap = heap();
        let first = heap.take(ALIGN, Content::Zeros).unwrap();
        let second = heap.take(ALIGN, Content::Zeros).unwrap();
        assert!(!heap.resize(first, ALIGN, 2 * ALIGN));
        assert!(heap.resize(second, ALIGN, 3 * ALIGN));
        assert!(heap.resize(second, 3 * ALIGN, ALIGN + 1));
        let third = heap.take(ALIGN, Content::Zeros).unwrap();
        assert_eq!(third, second + 2 * ALIGN as u64);
        heap.give(second, 2 * ALIGN);
        assert!(heap.resize(first, 1, 3 * ALIGN));
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        for bytes in [2 * HEAP, usize::MAX] {
            assert!(matches!(heap().allocate(bytes), Err(Error::Unavailable(_))));
        }
    }
}
