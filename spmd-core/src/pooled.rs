//! A count of references whose memory is used again: requests are made and dropped by the dozen,
//! more than the system's allocator keeps at hand.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::ptr::NonNull;

/// As [`std::rc::Rc`].
pub(crate) struct Pooled<T: ?Sized> {
    /// Behind a [`Header`].
    value: NonNull<T>,
}

#[repr(C, align(16))]
struct Header {
    /// How many references there are.
    count: Cell<usize>,
}

/// What a block is a multiple of, with its header.
const STEP: usize = 64;
/// How many sizes of blocks are kept, from one step on.
const SIZES: usize = 16;
/// How many blocks of a size a thread keeps.
const KEPT: usize = 256;

impl<T> Pooled<T> {
    pub(crate) fn new(value: T) -> Pooled<T> {
        let (layout, before) = layout(Layout::new::<T>());
        // SAFETY: the block is the caller's. `before` bytes, a multiple of what either is aligned to,
        // there is the place of the value, and right before that the one of a header.
        unsafe {
            let place = take(layout).add(before).cast::<T>();
            place.cast::<Header>().sub(1).write(Header { count: Cell::new(1) });
            place.write(value);
            Pooled { value: place }
        }
    }

    /// The same, of a type without a size.
    ///
    /// # Safety
    /// `unsize` gives the pointer that it gets, as one to what the value is as well.
    #[inline]
    pub(crate) unsafe fn unsize<U: ?Sized>(
        self,
        unsize: impl FnOnce(NonNull<T>) -> NonNull<U>,
    ) -> Pooled<U> {
        let value = unsize(self.value);
        std::mem::forget(self);
        Pooled { value }
    }
}

impl<T: ?Sized> Pooled<T> {
    #[inline]
    fn count(&self) -> &Cell<usize> {
        // SAFETY: `new` has put a header there, which lives as long as a reference.
        unsafe { &self.value.cast::<Header>().sub(1).as_ref().count }
    }

    /// Where the value lies, which no other has as long as this lives.
    pub(crate) fn address(&self) -> usize {
        self.value.addr().get()
    }
}

impl<T: ?Sized> Deref for Pooled<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the value lives as long as a reference, and nobody has it to change.
        unsafe { self.value.as_ref() }
    }
}

impl<T: ?Sized> Clone for Pooled<T> {
    #[inline]
    fn clone(&self) -> Pooled<T> {
        // Forgotten ones count for ever: they may not be so many that the count begins anew.
        let count = self.count().get().checked_add(1).unwrap_or_else(|| std::process::abort());
        self.count().set(count);
        Pooled { value: self.value }
    }
}

impl<T: ?Sized> Drop for Pooled<T> {
    #[inline]
    fn drop(&mut self) {
        let left = self.count().get() - 1;
        self.count().set(left);
        if left == 0 {
            let (layout, before) = layout(Layout::for_value(&**self));
            // SAFETY: this was the last reference, so nobody uses the value any more; `new` has made
            // the block, with what follows from the value's layout. Where the value's end panics, the
            // block is never used again.
            unsafe {
                self.value.drop_in_place();
                give_back(self.value.cast::<u8>().sub(before), layout);
            }
        }
    }
}

/// That of a block for such a value, and how many bytes of it lie before the value.
#[inline]
fn layout(value: Layout) -> (Layout, usize) {
    let before = value.align().max(size_of::<Header>());
    let size = (before + value.size()).next_multiple_of(STEP);
    (Layout::from_size_align(size, before).expect("a value has a size"), before)
}

/// Blocks of one size, each of which says where the next one lies.
#[derive(Clone, Copy)]
struct Blocks {
    first: Option<NonNull<Option<NonNull<u8>>>>,
    len: usize,
}

/// Those that a thread keeps, by size.
struct Spare([Blocks; SIZES]);

thread_local! {
    static SPARE: RefCell<Spare> =
        const { RefCell::new(Spare([Blocks { first: None, len: 0 }; SIZES])) };
}

/// A block of that layout, which is the caller's.
#[inline]
fn take(layout: Layout) -> NonNull<u8> {
    let kept = SPARE.try_with(|spare| spare.borrow_mut().of(layout)?.pop());
    kept.ok().flatten().unwrap_or_else(|| {
        // SAFETY: no layout of a block is empty.
        let block = unsafe { alloc(layout) };
        NonNull::new(block).unwrap_or_else(|| handle_alloc_error(layout))
    })
}

/// # Safety
/// `take` has given the block, for this layout, and nobody uses it any more.
#[inline]
unsafe fn give_back(block: NonNull<u8>, layout: Layout) {
    // SAFETY: the block is nobody's (this function's contract).
    let kept = SPARE.try_with(|spare| unsafe {
        spare.borrow_mut().of(layout).is_some_and(|blocks| blocks.push(block))
    });
    if !kept.unwrap_or(false) {
        // SAFETY: it was allocated with this layout, and is nobody's (this function's contract).
        unsafe { dealloc(block.as_ptr(), layout) };
    }
}

impl Spare {
    /// Those of this layout, if such are kept.
    #[inline]
    fn of(&mut self, layout: Layout) -> Option<&mut Blocks> {
        let usual = layout.align() == align_of::<Header>();
        self.0.get_mut(layout.size() / STEP - 1).filter(|_| usual)
    }
}

impl Blocks {
    #[inline]
    fn pop(&mut self) -> Option<NonNull<u8>> {
        let block = self.first?;
        // SAFETY: `push` has written it there, and the block has been nobody else's since.
        self.first = unsafe { block.read() }.map(NonNull::cast);
        self.len -= 1;
        Some(block.cast())
    }

    /// Keeps a block, unless there are enough.
    ///
    /// # Safety
    /// It is nobody's, and has room for a pointer, which it is aligned for.
    #[inline]
    unsafe fn push(&mut self, block: NonNull<u8>) -> bool {
        if self.len == KEPT {
            return false;
        }
        let place = block.cast::<Option<NonNull<u8>>>();
        // SAFETY: this function's contract.
        unsafe { place.write(self.first.map(NonNull::cast)) };
        self.first = Some(place);
        self.len += 1;
        true
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        for (index, blocks) in self.0.iter_mut().enumerate() {
            let layout = Layout::from_size_align((index + 1) * STEP, align_of::<Header>());
            while let (Some(block), Ok(layout)) = (blocks.pop(), &layout) {
                // SAFETY: blocks of this place have this layout, and what is kept is nobody's.
                unsafe { dealloc(block.as_ptr(), *layout) };
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::rc::Rc;

    use super::*;

    trait Named {
        fn name(&self) -> usize;
    }

    struct Of<const BYTES: usize>(Rc<()>, usize, [u8; BYTES]);

    impl<const BYTES: usize> Named for Of<BYTES> {
        fn name(&self) -> usize {
            self.1 + usize::from(self.2[BYTES - 1])
        }
    }

    fn named<const BYTES: usize>(alive: &Rc<()>, name: usize) -> Pooled<dyn Named> {
        let made = Pooled::new(Of(alive.clone(), name, [1; BYTES]));
        // SAFETY: the same pointer.
        unsafe { made.unsize(|it| it as NonNull<dyn Named>) }
    }

    /// Of any size, more than are kept: each is there until its last reference is gone.
    #[test]
    fn values_live_as_long_as_references() {
        let (alive, mut random) = (Rc::new(()), fastrand::Rng::with_seed(3));
        let mut all: Vec<(usize, Pooled<dyn Named>)> = Vec::new();
        for name in 0..4_000 {
            let made = match random.u8(0..4) {
                0 => named::<1>(&alive, name),
                1 => named::<100>(&alive, name),
                2 => named::<900>(&alive, name),
                _ => named::<5_000>(&alive, name),
            };
            all.extend([(name, made.clone()), (name, made)]);
            while all.len() > random.usize(0..3_000) {
                let (name, one) = all.swap_remove(random.usize(0..all.len()));
                assert_eq!(one.name(), name + 1);
            }
        }
        assert!(Rc::strong_count(&alive) > 1);
        all.clear();
        assert_eq!(Rc::strong_count(&alive), 1);
    }

    /// The next one of its size lies where the last one lay.
    #[test]
    fn memory_is_used_again() {
        #[repr(align(256))]
        struct Aligned(u8);
        let aligned = [1, 2].map(|it| Pooled::new(Aligned(it)));
        assert!(aligned.iter().all(|it| it.address() % 256 == 0 && it.0 > 0));

        let first = Pooled::new([7u64; 10]);
        let address = first.address();
        assert_eq!(*first.clone(), [7; 10]);
        drop(first);
        assert_eq!(Pooled::new([8u64; 9]).address(), address);
    }
}
