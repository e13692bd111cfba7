//! The parts of a window, as one process reaches them.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering::*};

use parking_lot::Mutex;

use super::lock::{Lock, LockKind, Node};
use super::region::{self, Key, Region};
use super::words::WordSize;
use crate::error::{Error, Result};
use crate::group::Group;
use crate::transport::shared::heap::Block;
use crate::transport::shared::layout::PAGE;
use crate::transport::shared::world::World;

/// What a part begins with. Zeros are one of which nothing is used.
#[repr(C, align(128))]
pub(crate) struct Head {
    /// Of rank 0 alone: by those who lock all parts, or by those who lock single ones exclusively.
    pub(crate) window: Lock,
    /// Of this part.
    pub(crate) part: Lock,
    /// Of those who change elements of several words.
    pub(crate) update: Lock,
    /// The owner's place in whatever queue it is.
    pub(crate) node: Node,
}

/// One of the locks with which a part begins.
pub(crate) fn lock_of(head: &Head, kind: LockKind) -> &Lock {
    match kind {
        LockKind::Window => &head.window,
        LockKind::Part => &head.part,
        LockKind::Update => &head.update,
    }
}

/// Where the elements begin in a part that is in one piece.
const HEAD: usize = size_of::<Head>();

/// Bytes of a part in one piece, if that is a number that an allocation can have.
pub(crate) fn bytes_of(len: u64, size: usize) -> Option<usize> {
    let bytes = usize::try_from(len).ok()?.checked_mul(size)?.checked_add(HEAD)?;
    Layout::from_size_align(bytes, align_of::<Head>()).ok().map(|_| bytes)
}

/// One rank's part.
pub(crate) struct Part {
    /// Its head, null while it has not been opened for writing, and of a part that lives in a process
    /// without a common arena.
    head: AtomicPtr<Head>,
    /// Its first element, null while it has not been opened for writing.
    elements: AtomicPtr<u8>,
    /// Its elements.
    pub(crate) len: usize,
    /// Where it is in the segment of its rank, a process.
    offset: u64,
}

/// What a rank says of its part, and whether there is memory for it already.
#[derive(Clone, Copy)]
pub(crate) struct Announced {
    pub(crate) len: u64,
    pub(crate) offset: u64,
    pub(crate) exists: bool,
}

/// All parts of a window.
pub(crate) struct Parts {
    parts: Box<[Part]>,
    /// Bytes of an element.
    size: usize,
    /// What lies on the ordinary heap.
    allocations: Vec<(*mut u8, Layout)>,
    /// What is shared with processes without a common arena: the one of this process, and those of
    /// others, once they are opened.
    regions: Mutex<Vec<Region>>,
    /// A rank for whose part there is no memory.
    pub(crate) lacking: Option<usize>,
}

// SAFETY: parts are accessed by atomics alone, and the allocations are used to free them.
unsafe impl Send for Parts {}
// SAFETY: as above.
unsafe impl Sync for Parts {}

impl Parts {
    /// Parts of ranks of one address space, which are made here, but for those that exist
    /// elsewhere. If they are `shared`, processes of this host may open them, where the system lets
    /// them.
    pub(crate) fn here(
        said: impl ExactSizeIterator<Item = Announced> + Clone,
        size: usize,
        shared: bool,
    ) -> Parts {
        let lens = said.clone().filter(|part| !part.exists).map(|part| part.len);
        let region = if shared { room_of(lens, size).and_then(Region::create) } else { None };
        let mut room = region.as_ref().map(Region::room);
        let (mut parts, mut lacking, mut allocations) = (Vec::new(), None, Vec::new());
        parts.reserve_exact(said.len());
        for (rank, part) in said.enumerate() {
            let bytes = bytes_of(part.len, size);
            let mut made = (null_mut(), null_mut());
            if let Some(bytes) = bytes.filter(|_| !part.exists) {
                let own = if room.is_some() { HEAD } else { bytes };
                if let Some(start) = allocate(own, &mut allocations) {
                    let elements = room.unwrap_or(start.wrapping_add(HEAD));
                    made = (start, elements);
                }
                room = room.map(|it| it.wrapping_add(place_of(bytes - HEAD)));
            }
            if bytes.is_none() || (made.0.is_null() && !part.exists) {
                lacking = lacking.or(Some(rank));
            }
            parts.push(Part {
                head: AtomicPtr::new(made.0.cast()),
                elements: AtomicPtr::new(made.1),
                len: part.len as usize,
                offset: 0,
            });
        }
        let regions = Mutex::new(region.into_iter().collect());
        Parts { parts: parts.into(), size, allocations, regions, lacking }
    }

    /// Parts of processes, each in its rank's heap; that of rank `me` starts at `own`.
    pub(crate) fn apart(
        said: impl Iterator<Item = Announced>,
        size: usize,
        (me, own): (usize, *mut u8),
    ) -> Parts {
        let mut lacking = None;
        let part = |(rank, part): (usize, Announced)| {
            if !part.exists {
                lacking = lacking.or(Some(rank));
            }
            let new = Part {
                head: AtomicPtr::default(),
                elements: AtomicPtr::default(),
                len: part.len as usize,
                offset: part.offset,
            };
            if rank == me {
                new.starts_at(own);
            }
            new
        };
        let parts = said.enumerate().map(part).collect();
        let (allocations, regions) = Default::default();
        Parts { parts, size, allocations, regions, lacking }
    }

    /// The words that elements consist of.
    pub(crate) fn word(&self) -> WordSize {
        WordSize::of(self.size)
    }

    /// How many words an element has.
    pub(crate) fn words_each(&self) -> usize {
        self.size / self.word().bytes()
    }

    /// How many words a part has that lies in this process.
    pub(crate) fn words(&self, part: &Part) -> usize {
        part.len * self.words_each()
    }

    /// How many there are.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.parts.len()
    }

    /// The part of a rank.
    #[inline]
    pub(crate) fn get(&self, rank: usize) -> Option<&Part> {
        self.parts.get(rank)
    }

    /// Makes the part of a rank, a process with this number in the world, writable here.
    ///
    /// Errors: the system refuses it; what the rank has said of its part cannot be.
    #[cold]
    pub(crate) fn open(&self, rank: usize, in_world: usize, world: &World) -> Result<()> {
        let part = &self.parts[rank];
        let bytes = bytes_of(part.len as u64, self.size);
        let lies = || Error::corrupt(in_world, "its part of a window lies outside its arena");
        let offset = Some(part.offset).filter(|offset| offset.is_multiple_of(PAGE as u64));
        let start = bytes.zip(offset);
        let start = start.and_then(|(bytes, at)| world.memory.heap(in_world, at, bytes));
        let (start, bytes) = start.zip(bytes).ok_or_else(lies)?;
        world.memory.share_pages(start, bytes, true)?;
        part.starts_at(start);
        Ok(())
    }

    /// Takes back that a part is writable here. That the system refuses it is no harm: nobody writes
    /// there any more.
    pub(crate) fn close(&self, rank: usize, world: &World) {
        let part = &self.parts[rank];
        part.elements.store(null_mut(), Relaxed);
        let start = part.head.swap(null_mut(), Relaxed).cast::<u8>();
        if let Some(bytes) = bytes_of(part.len as u64, self.size).filter(|_| !start.is_null()) {
            let _ = world.memory.share_pages(start, bytes, false);
        }
    }

    /// What processes of this host find the elements of the parts by that live here.
    pub(crate) fn key(&self) -> Key {
        self.regions.lock().iter().find_map(Region::key).unwrap_or(region::NONE)
    }

    /// Opens the parts of these ranks, which are all that live in one other process, ascending: there
    /// their elements lie in the region with this key. Whether they could be.
    pub(crate) fn open_region(&self, key: Key, ranks: impl Iterator<Item = usize> + Clone) -> bool {
        let parts = || ranks.clone().filter_map(|rank| self.parts.get(rank));
        let room = room_of(parts().map(|part| part.len as u64), self.size);
        let Some(region) = room.and_then(|room| Region::open(key, room)) else { return false };
        let mut place = region.room();
        // Before anybody reads an address in it.
        self.regions.lock().push(region);
        for part in parts() {
            part.elements.store(place, Release);
            place = place.wrapping_add(place_of(part.len * self.size));
        }
        true
    }
}

/// Bytes that so many bytes of elements take in a region.
fn place_of(bytes: usize) -> usize {
    bytes.next_multiple_of(region::ALIGN)
}

/// Bytes of the elements of parts of these lengths in a region, if that is a number that an allocation
/// can have.
fn room_of(lens: impl Iterator<Item = u64>, size: usize) -> Option<usize> {
    let mut all = 0usize;
    for len in lens {
        all = all.checked_add(place_of(bytes_of(len, size)? - HEAD))?;
    }
    isize::try_from(all).ok().map(|_| all)
}

/// Zeroed memory, aligned as a [`Head`]. Large blocks come from the system as zeros where no more than
/// the usual alignment is asked for, and are touched first by those who use them.
fn allocate(bytes: usize, all: &mut Vec<(*mut u8, Layout)>) -> Option<*mut u8> {
    const USUAL: usize = 16;
    let layout = Layout::from_size_align(bytes.checked_add(align_of::<Head>())?, USUAL).ok()?;
    // SAFETY: the size is not zero.
    let start = unsafe { alloc_zeroed(layout) };
    if start.is_null() {
        return None;
    }
    all.push((start, layout));
    Some(start.wrapping_add(start.align_offset(align_of::<Head>())))
}

impl Part {
    /// It begins here, in one piece.
    fn starts_at(&self, start: *mut u8) {
        self.head.store(start.cast(), Relaxed);
        self.elements.store(start.wrapping_add(HEAD), Relaxed);
    }

    /// Its head, if it is writable here: aligned, in memory that was zeroed, stays mapped as long as the
    /// parts and is accessed by atomics alone.
    #[inline]
    pub(crate) fn head(&self) -> Option<*mut Head> {
        let head = self.head.load(Relaxed);
        (!head.is_null()).then_some(head)
    }

    /// Its first element, if they are writable here: memory that stays mapped as long as the parts.
    #[inline]
    pub(crate) fn elements(&self) -> Option<*mut u8> {
        let elements = self.elements.load(Acquire);
        (!elements.is_null()).then_some(elements)
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        for (start, layout) in self.allocations.drain(..) {
            // SAFETY: allocated with this layout in `allocate`, and freed once. No rank has the
            // window any more, as each holds this as long as it has.
            unsafe { dealloc(start, layout) };
        }
    }
}

/// The part of a process rank whose window is gone here, while others may still write it: they do
/// not once the communicator of the window, which each drops with it, is gone from their pages.
pub(crate) struct Retired {
    _part: Block,
    context: u64,
    area: usize,
    members: Group,
    /// Members before this one are known to have dropped the window.
    next: usize,
}

impl Retired {
    pub(crate) fn new(part: Block, context: u64, area: usize, members: Group) -> Retired {
        Retired { _part: part, context, area, members, next: 0 }
    }

    /// Whether the others may still write it.
    pub(crate) fn is_used(&mut self, me: usize, world: &World) -> bool {
        let has = |rank: usize| {
            let shown = world.memory.area(rank, self.area).context.0.load(Acquire);
            rank != me && shown == self.context && !world.is_dead(rank)
        };
        while self.next < self.members.len() && !has(self.members.world(self.next)) {
            self.next += 1;
        }
        self.next < self.members.len()
    }
}
