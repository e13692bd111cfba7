//! The mapping behind an arena: anonymous memory of one process, or a sealed memfd.

use std::ptr::NonNull;
use std::sync::Arc;

use super::layout::*;
use crate::error::{Error, Result};
use crate::text::Table;

/// An arena as one process has mapped it.
pub(crate) struct Memory {
    base: NonNull<u8>,
    pub(crate) layout: ArenaLayout,
    backing: Backing,
    /// What others see as long as this mapping lives.
    _lease: Option<Arc<()>>,
}

/// Which parts of an arena a process may write.
#[cfg(target_os = "linux")]
pub(crate) enum Writable {
    /// Bells and faults.
    Control,
    /// Those, this rank's segment, and its shares of the others'.
    Segment(usize),
    /// Everything: all ranks are in this process.
    All,
}

enum Backing {
    #[cfg(target_os = "linux")]
    Mapped,
    #[cfg(not(target_os = "linux"))]
    Allocated,
}

// SAFETY: a mapping belongs to the process, not to a thread; all access goes through atomics or
// through raw pointers whose users argue for themselves.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Zeroed memory for ranks that share this address space.
    #[cfg(target_os = "linux")]
    pub(crate) fn anonymous(layout: ArenaLayout) -> Result<Memory> {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no existing one.
        let base = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                layout.total_bytes(),
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        };
        let base = base.map_err(|e| {
            Error::system(
                format!("reserving memory for {} ranks (fewer may help)", layout.ranks),
                e,
            )
        })?;
        let base = NonNull::new(base.cast()).expect("the kernel maps nothing at address 0");
        Ok(Memory { base, layout, backing: Backing::Mapped, _lease: None })
    }

    /// Zeroed memory for ranks that share this address space.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn anonymous(layout: ArenaLayout) -> Result<Memory> {
        let shape = std::alloc::Layout::from_size_align(layout.total_bytes(), 4096)
            .map_err(|_| Error::argument(format!("too many ranks: {}", layout.ranks)))?;
        // SAFETY: the size is not zero, the header alone being a page.
        let base = unsafe { std::alloc::alloc_zeroed(shape) };
        let Some(base) = NonNull::new(base) else { std::alloc::handle_alloc_error(shape) };
        Ok(Memory { base, layout, backing: Backing::Allocated, _lease: None })
    }

    /// Maps the arena behind `fd`. What is not `writable` can only be read. A child that this
    /// process forks does not get the mapping: it is no rank, and writes into no rank's memory.
    #[cfg(target_os = "linux")]
    pub(crate) fn map(
        fd: rustix::fd::BorrowedFd<'_>,
        layout: ArenaLayout,
        writable: Writable,
    ) -> Result<Memory> {
        use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap, mprotect};
        let system = |e| {
            let what = format!(
                "mapping the arena of the job, {} bytes of addresses (where ulimit -v, or a tool such as \
                 valgrind, allows fewer, {} makes it smaller)",
                layout.total_bytes(),
                crate::environment::variables::ARENA_SIZE
            );
            Error::system(what, e)
        };
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no existing one.
        // The file is sealed against shrinking, so no access within its length can fault.
        let base = unsafe {
            mmap(
                std::ptr::null_mut(),
                layout.total_bytes(),
                ProtFlags::READ,
                MapFlags::SHARED | MapFlags::NORESERVE,
                fd,
                0,
            )
        }
        .map_err(system)?;
        let base: NonNull<u8> = NonNull::new(base.cast()).expect("nothing is mapped at address 0");
        let memory = Memory { base, layout, backing: Backing::Mapped, _lease: None };
        let all = layout.total_bytes();
        // SAFETY: the range is the mapping just made. The advice takes nothing from this process.
        unsafe { madvise(memory.at(0).cast(), all, Advice::LinuxDontFork) }.map_err(system)?;
        let parts = match writable {
            Writable::All => vec![(0, all)],
            Writable::Control => vec![(0, layout.control_bytes)],
            Writable::Segment(rank) => {
                let own = (layout.segment_offset(rank), layout.segment_bytes);
                let share = |peer| {
                    let offset = layout.segment_offset(peer) + layout.share_offset(rank);
                    (offset, layout.share_bytes)
                };
                let shares = (0..layout.ranks).filter(|peer| *peer != rank).map(share);
                let shares = shares.filter(|(_, bytes)| *bytes > 0);
                [(0, layout.control_bytes), own].into_iter().chain(shares).collect()
            }
        };
        let writable = MprotectFlags::READ | MprotectFlags::WRITE;
        for (offset, bytes) in parts {
            // SAFETY: the range lies within the mapping just made, which nothing else refers to.
            unsafe { mprotect(memory.at(offset).cast(), bytes, writable) }.map_err(system)?;
        }
        Ok(memory)
    }

    /// Keeps `lease` as long as this mapping lives.
    #[cfg(target_os = "linux")]
    pub(crate) fn hold(&mut self, lease: Arc<()>) {
        self._lease = Some(lease);
    }

    /// Gives all memory of a mapped arena back to the system; it reads as zeros.
    #[cfg(target_os = "linux")]
    pub(crate) fn clear(&self) -> Result<()> {
        let all = self.layout.total_bytes();
        // SAFETY: the range is this mapping, to which no reference but atomics exists.
        unsafe { rustix::mm::madvise(self.at(0).cast(), all, rustix::mm::Advice::LinuxRemove) }
            .map_err(|e| Error::system("clearing the arena", e))
    }

    /// The address at `offset`, which must lie within the arena.
    #[cfg(target_os = "linux")]
    fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset < self.layout.total_bytes());
        // SAFETY: the offset lies within the mapping.
        unsafe { self.base.as_ptr().add(offset) }
    }

    /// A structure of atomics at `offset`.
    #[inline]
    fn part<T>(&self, offset: usize) -> &T {
        debug_assert!(offset + size_of::<T>() <= self.layout.total_bytes());
        debug_assert_eq!(offset % align_of::<T>(), 0);
        // SAFETY: this is private to this file, whose callers pass offsets of the layout: within
        // the mapping, aligned, and of structures that consist of atomic integers, for which
        // every bit pattern is a value and which may change at any time.
        unsafe { &*self.base.as_ptr().add(offset).cast::<T>() }
    }

    pub(crate) fn header(&self) -> &Header {
        self.part(0)
    }

    #[inline]
    pub(crate) fn bell(&self, rank: usize) -> &BellLine {
        assert!(rank < self.layout.ranks);
        self.part(self.layout.bells_offset() + rank * size_of::<BellLine>())
    }

    /// Where the death of a rank is told, and after the last rank's, what stops everything.
    pub(crate) fn death(&self, place: usize) -> &FaultPlace {
        assert!(place < self.layout.deaths());
        self.part(self.layout.deaths_offset() + place * size_of::<FaultPlace>())
    }

    /// Where the fault of this number is announced.
    pub(crate) fn notice(&self, number: u32) -> &crate::sync::atomic::AtomicU64 {
        let place = number as usize % self.layout.notices();
        self.part(self.layout.notices_offset() + place * 8)
    }

    /// Where a rank tells how it has failed in a block.
    pub(crate) fn failure(&self, rank: usize, block: u32) -> &FaultPlace {
        self.in_segment(rank, self.layout.failure_offset(block as usize % FAILURES))
    }

    /// Where a rank tells others that they wait in a cycle.
    pub(crate) fn verdict(&self, rank: usize) -> &FaultPlace {
        self.in_segment(rank, self.layout.verdict_offset())
    }

    #[inline]
    fn in_segment<T>(&self, rank: usize, offset: usize) -> &T {
        assert!(rank < self.layout.ranks);
        self.part(self.layout.records_offset(rank) + offset)
    }

    pub(crate) fn head(&self, rank: usize) -> &Head {
        self.in_segment(rank, 0)
    }

    pub(crate) fn text(&self, rank: usize) -> &Table {
        self.in_segment(rank, self.layout.text_offset())
    }

    #[inline]
    pub(crate) fn area(&self, rank: usize, area: usize) -> &CollectivePage {
        assert!(area < self.layout.all_areas());
        self.in_segment(rank, self.layout.area_offset(area))
    }

    /// What `receiver` tells `sender`.
    pub(crate) fn ack(&self, receiver: usize, sender: usize) -> &Ack {
        assert!(
            sender < self.layout.ranks && self.layout.heap_offset() > self.layout.acks_offset()
        );
        self.in_segment(receiver, self.layout.acks_offset() + sender * size_of::<Ack>())
    }

    /// The place of the ring from `sender` to `receiver`.
    pub(crate) fn ring_place(
        &self,
        sender: usize,
        receiver: usize,
    ) -> &std::sync::atomic::AtomicU64 {
        assert!(
            receiver < self.layout.ranks
                && self.layout.heap_offset() > self.layout.ring_table_offset()
        );
        self.in_segment(sender, self.layout.ring_table_offset() + receiver * 8)
    }

    /// What `owner` has that `peer` may write as well, and how much, if there is any.
    pub(crate) fn share(&self, owner: usize, peer: usize) -> Option<(*mut u8, usize)> {
        let layout = &self.layout;
        assert!(owner < layout.ranks && peer < layout.ranks);
        let offset = layout.segment_offset(owner) + layout.share_offset(peer);
        // SAFETY: the share lies within the owner's segment, which lies within the mapping.
        let start = unsafe { self.base.as_ptr().add(offset) };
        (layout.share_bytes > 0).then_some((start, layout.share_bytes))
    }

    /// The bytes `offset..offset + len` of a rank's segment, if that is within its heap. A peer
    /// may have written both numbers.
    pub(crate) fn heap(&self, rank: usize, offset: u64, len: usize) -> Option<*mut u8> {
        let offset = usize::try_from(offset).ok()?;
        let end = offset.checked_add(len)?;
        let inside = offset >= self.layout.heap_offset() && end <= self.layout.segment_bytes;
        (inside && rank < self.layout.ranks).then(|| {
            // SAFETY: the range was just checked to lie within the rank's segment, which lies
            // within the mapping.
            unsafe { self.base.as_ptr().add(self.layout.segment_offset(rank) + offset) }
        })
    }

    /// Lets this process write the pages of a block of a peer's heap, or no more. The block must be
    /// one that its owner has for that.
    #[cfg(target_os = "linux")]
    pub(crate) fn share_pages(&self, start: *mut u8, bytes: usize, writable: bool) -> Result<()> {
        use rustix::mm::{MprotectFlags, mprotect};
        let offset = (start as usize).wrapping_sub(self.base.as_ptr() as usize);
        let bytes = bytes.next_multiple_of(PAGE);
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= self.layout.total_bytes());
        if !inside || !offset.is_multiple_of(PAGE) {
            return Err(Error::argument("no block of the arena".into()));
        }
        let write = if writable { MprotectFlags::WRITE } else { MprotectFlags::empty() };
        // SAFETY: the pages lie within this mapping, to which no references but to atomics exist, and
        // stay readable.
        unsafe { mprotect(start.cast(), bytes, MprotectFlags::READ | write) }
            .map_err(|e| Error::system("making a part of a window writable", e))
    }

    /// Elsewhere there are no process ranks.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn share_pages(&self, _: *mut u8, _: usize, _: bool) -> Result<()> {
        Ok(())
    }

    /// The offset of an address in the heap of `rank`'s segment, if it lies there whole.
    pub(crate) fn offset_in_heap(
        &self,
        rank: usize,
        address: *const u8,
        len: usize,
    ) -> Option<u64> {
        let start = self.base.as_ptr() as usize + self.layout.segment_offset(rank);
        let offset = (address as usize).checked_sub(start)?;
        self.heap(rank, offset as u64, len).map(|_| offset as u64)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        match self.backing {
            #[cfg(target_os = "linux")]
            Backing::Mapped => {
                // SAFETY: this is the whole mapping made at the start, and with `self` the last
                // reference into it goes.
                let _ = unsafe {
                    rustix::mm::munmap(self.base.as_ptr().cast(), self.layout.total_bytes())
                };
            }
            #[cfg(not(target_os = "linux"))]
            Backing::Allocated => {
                let shape = std::alloc::Layout::from_size_align(self.layout.total_bytes(), 4096)
                    .expect("it was allocated with this layout");
                // SAFETY: allocated in `anonymous` with this layout, and freed once.
                unsafe { std::alloc::dealloc(self.base.as_ptr(), shape) }
            }
        }
    }
}
