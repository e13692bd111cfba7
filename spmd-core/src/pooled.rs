//! A count of references whose memory is used again: requests are made and dropped by the dozen,
//! more than the system's allocator keeps at hand.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::*};

/// As [`std::rc::Rc`], or, with a count that is [`Shared`], as [`std::sync::Arc`].
pub(crate) struct Pooled<T: ?Sized, C: Count = Local> {
    /// Behind a [`Header`].
    value: NonNull<T>,
    _count: PhantomData<C>,
}

#[repr(C, align(16))]
struct Header<C> {
    count: C,
}

/// How many references there are.
pub(crate) trait Count {
    fn one() -> Self;
    /// Counts one more. How many there were.
    fn add(&self) -> usize;
    /// Counts one less. Whether it was the last: what all others have done is seen then.
    fn drop_one(&self) -> bool;
}

/// That of one thread.
pub(crate) struct Local(Cell<usize>);

impl Count for Local {
    #[inline]
    fn one() -> Local {
        Local(Cell::new(1))
    }

    #[inline]
    fn add(&self) -> usize {
        let before = self.0.get();
        self.0.set(before.wrapping_add(1));
        before
    }

    #[inline]
    fn drop_one(&self) -> bool {
        self.0.set(self.0.get() - 1);
        self.0.get() == 0
    }
}

/// That of several threads.
pub(crate) struct Shared(AtomicUsize);

impl Count for Shared {
    #[inline]
    fn one() -> Shared {
        Shared(AtomicUsize::new(1))
    }

    #[inline]
    fn add(&self) -> usize {
        self.0.fetch_add(1, Relaxed)
    }

    #[inline]
    fn drop_one(&self) -> bool {
        // Not a fence for the last alone, as in `Arc`: ThreadSanitizer does not see fences.
        self.0.fetch_sub(1, AcqRel) == 1
    }
}

// SAFETY: references count themselves atomically, and give shared access alone; whoever drops the last
// one drops the value, having seen what all others have done (`Count::drop_one`). The block is the
// system allocator's, which takes it back from any thread.
unsafe impl<T: ?Sized + Send + Sync> Send for Pooled<T, Shared> {}

// SAFETY: as above.
unsafe impl<T: ?Sized + Send + Sync> Sync for Pooled<T, Shared> {}

const _: () = assert!(size_of::<Header<Local>>() == size_of::<Header<Shared>>());

/// What a block is a multiple of, with its header.
const STEP: usize = 64;
/// How many sizes of blocks are kept, from one step on.
const SIZES: usize = 16;
/// How many blocks of a size a thread keeps: none where a tool watches who uses memory that is free.
const KEPT: usize = if cfg!(sanitizer) { 0 } else { 256 };

impl<T, C: Count> Pooled<T, C> {
    pub(crate) fn new(value: T) -> Pooled<T, C> {
        let (layout, before) = layout(Layout::new::<T>());
        // SAFETY: the block is the caller's. `before` bytes, a multiple of what either is aligned to,
        // there is the place of the value, and right before that the one of a header.
        unsafe {
            let place = take(layout).add(before).cast::<T>();
            place.cast::<Header<C>>().sub(1).write(Header { count: C::one() });
            place.write(value);
            Pooled { value: place, _count: PhantomData }
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
    ) -> Pooled<U, C> {
        let value = unsize(self.value);
        std::mem::forget(self);
        Pooled { value, _count: PhantomData }
    }
}

impl<T: ?Sized, C: Count> Pooled<T, C> {
    #[inline]
    fn count(&self) -> &C {
        // SAFETY: `new` has put a header there, which lives as long as a reference.
        unsafe { &self.value.cast::<Header<C>>().sub(1).as_ref().count }
    }

    /// Where the value lies, which no other has as long as this lives.
    pub(crate) fn address(&self) -> usize {
        self.value.addr().get()
    }
}

impl<T: ?Sized, C: Count> Deref for Pooled<T, C> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the value lives as long as a reference, and nobody has it to change.
        unsafe { self.value.as_ref() }
    }
}

impl<T: ?Sized, C: Count> Clone for Pooled<T, C> {
    #[inline]
    fn clone(&self) -> Pooled<T, C> {
        // Forgotten ones count for ever: they may not be so many that the count begins anew.
        if self.count().add() > isize::MAX as usize {
            std::process::abort();
        }
        Pooled { value: self.value, _count: PhantomData }
    }
}

impl<T: ?Sized, C: Count> Drop for Pooled<T, C> {
    #[inline]
    fn drop(&mut self) {
        if self.count().drop_one() {
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
    let before = value.align().max(size_of::<Header<Local>>());
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
        let usual = layout.align() == align_of::<Header<Local>>();
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
            let layout = Layout::from_size_align((index + 1) * STEP, align_of::<Header<Local>>());
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

    struct Of<const BYTES: usize>(
        #[expect(dead_code, reason = "its end is seen")] Rc<()>,
        usize,
        [u8; BYTES],
    );

    impl<const BYTES: usize> Named for Of<BYTES> {
        fn name(&self) -> usize {
            self.1 + usize::from(self.2[BYTES - 1])
        }
    }

    fn named<const BYTES: usize>(alive: &Rc<()>, name: usize) -> Pooled<dyn Named> {
        let made = Pooled::<_>::new(Of(alive.clone(), name, [1; BYTES]));
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

    /// Whichever thread has the last reference ends the value.
    #[test]
    fn threads_share_values() {
        let alive = std::sync::Arc::new(());
        for name in 0..1_000 {
            let made = Pooled::<_, Shared>::new((alive.clone(), name));
            let theirs = made.clone();
            std::thread::scope(|scope| {
                let other = scope.spawn(move || theirs.1);
                assert_eq!(made.1, name);
                drop(made);
                assert_eq!(other.join().unwrap(), name);
            });
        }
        assert_eq!(std::sync::Arc::strong_count(&alive), 1);
    }

    /// The next one of its size lies where the last one lay.
    #[test]
    fn memory_is_used_again() {
        #[repr(align(256))]
        struct Aligned(u8);
        let aligned = [1, 2].map(|it| Pooled::<_>::new(Aligned(it)));
        assert!(aligned.iter().all(|it| it.address() % 256 == 0 && it.0 > 0));

        let first = Pooled::<_>::new([7u64; 10]);
        let address = first.address();
        assert_eq!(*first.clone(), [7; 10]);
        drop(first);
        let again = Pooled::<_>::new([8u64; 9]).address() == address;
        assert!(again || cfg!(sanitizer));
    }
}
