//! An allocator that puts large allocations of a process rank where its peers can read them.

#[cfg(target_os = "linux")]
mod children;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering::*};

use crate::transport::shared::heap::{ALIGN, Content, SegmentHeap};

/// Allocations of at least this many bytes come from the arena.
const LEAST: usize = 16 << 10;

/// An allocator with which collectives and large messages between process ranks need no copy
/// through shared memory: large `Vec`s, boxes and strings of a rank come from its own part of the
/// arena, which its peers have mapped and read in place, while a call that is given them is under
/// way and at no other time. What XPMEM needs a kernel module for takes one line:
///
/// ```
/// #[global_allocator]
/// static ALLOCATOR: spmd::SharedAlloc = spmd::SharedAlloc;
///
/// # fn main() -> spmd::Result<()> {
/// spmd::run(|ctx| {
///     let field = vec![ctx.rank() as f64; 1 << 20]; // reachable for the other ranks
///     # assert_eq!(field[1], 0.0);
///     Ok(())
/// })?;
/// # Ok(())
/// # }
/// ```
///
/// Small allocations (below 16 KiB), those made before [`run`](crate::run) enters the world, and
/// all of a program without process ranks are the system allocator's. A rank has 32 GiB of address
/// space for large ones, less in a job of more than 256 ranks; what does not fit is the system
/// allocator's as well. Freed memory is kept for later allocations; when it gets more than 64 MiB,
/// all of it goes back to the system.
///
/// A process that `fork` makes sees the large allocations of its parent, and gets a copy of each
/// page that it writes: [`std::process::Command`] can be given large arguments. A child that goes
/// on without `exec` sees in the other pages what the parent writes later, so it must not use what
/// the parent changes or frees. What the child allocates is the system allocator's.
#[derive(Clone, Copy, Debug, Default)]
pub struct SharedAlloc;

/// The heap of this process's rank. Never freed: allocations may outlive everything.
static ARENA: AtomicPtr<Arena> = AtomicPtr::new(std::ptr::null_mut());

struct Arena {
    heap: Arc<SegmentHeap>,
    start: usize,
    end: usize,
}

/// Lets large allocations come from this heap from now on. The process keeps it mapped for ever;
/// `file` is the arena, in which the segment of the heap begins at `segment`.
#[cfg(target_os = "linux")]
pub(crate) fn attach(heap: Arc<SegmentHeap>, file: std::os::fd::OwnedFd, segment: usize) {
    let (start, end) = heap.span();
    let offset = segment + heap.first() as usize;
    ARENA.store(Box::into_raw(Box::new(Arena { heap, start, end })), Release);
    // Whether the program has this allocator is seen by what it gives.
    let probe = std::hint::black_box(Box::<[u8]>::new_uninit_slice(LEAST));
    if (start..end).contains(&probe.as_ptr().addr()) {
        children::show(start, end - start, file, offset);
    }
}

#[cfg(target_os = "linux")]
use children::is_forked;

/// Without process ranks nothing lies in an arena.
#[cfg(not(target_os = "linux"))]
fn is_forked() -> bool {
    false
}

#[inline]
fn arena() -> Option<&'static Arena> {
    // SAFETY: null, or a box that was leaked whole and is never written again; what is stored with
    // release and loaded with acquire is initialised.
    unsafe { ARENA.load(Acquire).as_ref() }
}

/// The arena for an allocation of this layout.
#[inline]
fn arena_for(layout: Layout) -> Option<&'static Arena> {
    let small = layout.size() < LEAST || layout.align() > ALIGN;
    if small || is_forked() { None } else { arena() }
}

impl Arena {
    #[cold]
    fn allocate(&self, layout: Layout, content: Content) -> Option<*mut u8> {
        self.heap.take(layout.size(), content).map(|offset| self.heap.pointer(offset))
    }

    /// The offset of an allocation, if it is one of the arena's.
    #[inline]
    fn offset(&self, ptr: *mut u8) -> Option<u64> {
        let address = ptr.addr();
        let inside = self.start <= address && address < self.end;
        inside.then(|| self.heap.first() + (address - self.start) as u64)
    }
}

// SAFETY: a block of the arena is one that nobody else has: the heap gives out disjoint ranges of
// a mapping that stays for ever, in whole pages, so that it is aligned to ALIGN, which is as much
// as it is used for, and as long as it was asked for; peers never write it. It is freed and
// reallocated by its address, with the size of the layout that it was allocated with, which is
// what its pages are computed from. All else is passed on to the system allocator, with the
// caller's promises. Nothing here unwinds; what the heap allocates, a record at a time, is
// smaller than LEAST, so that it comes from the system allocator, and its lock allocates nothing.
// A forked child takes nothing from the heap and gives nothing back to it.
unsafe impl GlobalAlloc for SharedAlloc {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let shared = arena_for(layout).and_then(|it| it.allocate(layout, Content::Anything));
        // SAFETY: the caller's promises on the layout are passed on.
        shared.unwrap_or_else(|| unsafe { System.alloc(layout) })
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let shared = arena_for(layout).and_then(|it| it.allocate(layout, Content::Zeros));
        // SAFETY: the caller's promises on the layout are passed on.
        shared.unwrap_or_else(|| unsafe { System.alloc_zeroed(layout) })
    }

    #[inline]
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        match arena().and_then(|it| Some((it, it.offset(ptr)?))) {
            Some(_) if is_forked() => {}
            Some((arena, offset)) => arena.heap.give(offset, layout.size()),
            // SAFETY: the block is the system's, and the caller's promises are passed on.
            None => unsafe { System.dealloc(ptr, layout) },
        }
    }

    #[inline]
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let shared = arena().and_then(|it| Some((it, it.offset(ptr)?)));
        if let Some((arena, offset)) = shared
            && !is_forked()
            && arena.heap.resize(offset, layout.size(), new_size)
        {
            return ptr;
        }
        // SAFETY: the alignment is that of a layout, a power of two, and `new_size`, rounded up to
        // it, is at most `isize::MAX` (contract of `GlobalAlloc::realloc`).
        let wanted = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        if shared.is_none() && arena_for(wanted).is_none() {
            // SAFETY: the block is the system's, and the caller's promises are passed on.
            return unsafe { System.realloc(ptr, layout, new_size) };
        }
        // SAFETY: `wanted` is a layout, of a size above 0, and `ptr` a block that this allocator
        // has given for `layout` (contract of `GlobalAlloc::realloc`). It has `layout.size()`
        // bytes, the new one, which is apart from it, `new_size`: both hold the lesser. If there is
        // a new one, the caller uses the old one no more.
        unsafe {
            let new = self.alloc(wanted);
            if !new.is_null() {
                std::ptr::copy_nonoverlapping(ptr, new, layout.size().min(new_size));
                self.dealloc(ptr, layout);
            }
            new
        }
    }
}
