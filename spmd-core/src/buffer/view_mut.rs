//! The elements of a buffer that can be received into, erased.

use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;

use super::layout::SubarrayLayout;
use super::pattern::{Levels, Pattern};
use super::place::Place;
use super::view::{View, describe};
use crate::element::{DType, Element};

/// The elements of a [`BufferMut`](super::BufferMut), without their type, for writing.
///
/// ```
/// use spmd::prelude::*;
/// use spmd::buffer::ViewMut;
///
/// let mut data = [1u32, 2];
/// let view: ViewMut<'_> = data.erased_mut();
/// assert_eq!((view.len(), view.bytes(), view.dtype().name), (2, 8, "u32"));
/// ```
pub struct ViewMut<'a> {
    base: *mut u8,
    place: Place,
    dtype: &'static DType,
    pattern: Pattern<'a>,
    borrow: PhantomData<&'a mut [u8]>,
}

// SAFETY: it is a unique borrow of elements, which are `Send`.
unsafe impl Send for ViewMut<'_> {}

// SAFETY: a shared `ViewMut` only reads elements, which are `Sync`.
unsafe impl Sync for ViewMut<'_> {}

impl fmt::Debug for ViewMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        describe(f, "ViewMut", (self.len(), self.dtype, self.place))
    }
}

impl<'a> ViewMut<'a> {
    /// The view of a slice.
    ///
    /// ```
    /// use spmd::prelude::*;
    /// use spmd::buffer::ViewMut;
    ///
    /// assert_eq!(ViewMut::new(&mut [1.0, 2.0]).len(), 2);
    /// ```
    #[inline]
    #[must_use]
    pub fn new<T: Element>(slice: &'a mut [T]) -> ViewMut<'a> {
        let pattern = Pattern { run: size_of_val(slice), levels: Levels::NONE };
        // SAFETY: the one run is the slice.
        unsafe { ViewMut::with_pattern::<T>(slice.as_mut_ptr(), pattern) }
    }

    /// The view of one element that is yet to be written.
    ///
    /// # Safety
    ///
    /// Nobody reads it by the view before that.
    #[inline]
    pub(crate) unsafe fn of_room<T: Element>(room: &'a mut MaybeUninit<T>) -> ViewMut<'a> {
        let pattern = Pattern { run: size_of::<T>(), levels: Levels::NONE };
        // SAFETY: the one run is the element, which is not looked at (this function's contract).
        unsafe { ViewMut::with_pattern::<T>(room.as_mut_ptr(), pattern) }
    }

    /// The view of `len` elements on a device, one after another.
    ///
    /// # Safety
    ///
    /// The device holds that many values of `T` at `base`, borrowed uniquely for `'a`.
    #[doc(hidden)]
    pub unsafe fn on_device<T: Element>(device: u32, base: *mut T, len: usize) -> ViewMut<'a> {
        let pattern = Pattern { run: len * size_of::<T>(), levels: Levels::NONE };
        // SAFETY: nothing on the host reads or writes what is elsewhere.
        let view = unsafe { ViewMut::with_pattern(base, pattern) };
        ViewMut { place: Place::Device(device), ..view }
    }

    /// A part of an array of which this view has all elements, one after another. As that part lies within
    /// an array of as many of the same elements, and has none twice, these are borrowed as the view is.
    #[doc(hidden)]
    pub fn part<'b>(&'b mut self, part: &'b SubarrayLayout) -> ViewMut<'b> {
        let View { base, place, dtype, pattern, .. } = self.as_view().part(part);
        ViewMut { base: base.cast_mut(), place, dtype, pattern, borrow: PhantomData }
    }

    /// Some of the elements, which lie one after another; they are borrowed as the view is.
    pub(crate) fn range(&mut self, range: Range<usize>) -> ViewMut<'_> {
        let View { base, place, dtype, pattern, .. } = self.as_view().range(range);
        ViewMut { base: base.cast_mut(), place, dtype, pattern, borrow: PhantomData }
    }

    /// Some of the elements, which lie one after another, to be read, and others to be written; `None` if
    /// both have one. As they have not, each is borrowed as its view is.
    pub(crate) fn apart(
        &mut self,
        read: Range<usize>,
        write: Range<usize>,
    ) -> Option<(View<'_>, ViewMut<'_>)> {
        if read.end > write.start && write.end > read.start {
            return None;
        }
        let View { base, place, dtype, pattern: Pattern { run, .. }, .. } =
            self.as_view().range(read);
        let pattern = Pattern { run, levels: Levels::NONE };
        Some((View { base, place, dtype, pattern, borrow: PhantomData }, self.range(write)))
    }

    /// Room for elements of this type on the host, one after another, of so many bytes in all.
    ///
    /// # Safety
    ///
    /// It is there, and nobody else uses it, as long as the result lives, at an address of any
    /// alignment.
    pub(super) unsafe fn of_bytes(dtype: &'static DType, base: *mut u8, run: usize) -> ViewMut<'a> {
        let pattern = Pattern { run, levels: Levels::NONE };
        ViewMut { base, place: Place::Host, dtype, pattern, borrow: PhantomData }
    }

    /// # Safety
    ///
    /// The runs of `pattern` at `base` are elements of type `T`, borrowed uniquely for `'a`, and
    /// don't overlap.
    #[inline]
    pub(super) unsafe fn with_pattern<T: Element>(
        base: *mut T,
        pattern: Pattern<'a>,
    ) -> ViewMut<'a> {
        ViewMut {
            base: base.cast(),
            place: Place::Host,
            dtype: &T::DTYPE,
            pattern,
            borrow: PhantomData,
        }
    }

    /// The same elements for reading.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let mut data = [1u32, 2];
    /// assert_eq!(data.erased_mut().as_view().len(), 2);
    /// ```
    #[inline]
    #[must_use]
    pub fn as_view(&self) -> View<'_> {
        let ViewMut { base, place, dtype, pattern, .. } = *self;
        View { base, place, dtype, pattern, borrow: PhantomData }
    }

    /// The type of the elements.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// assert_eq!(*[1u32, 2].erased_mut().dtype(), u32::DTYPE);
    /// ```
    #[inline]
    #[must_use]
    pub fn dtype(&self) -> &'static DType {
        self.dtype
    }

    /// Where the elements are.
    ///
    /// ```
    /// use spmd::prelude::*;
    /// use spmd::buffer::Place;
    ///
    /// assert_eq!([1u32, 2].erased_mut().place(), Place::Host);
    /// ```
    #[inline]
    #[must_use]
    pub fn place(&self) -> Place {
        self.place
    }

    /// The number of elements.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// assert_eq!([1u32, 2].erased_mut().len(), 2);
    /// ```
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.as_view().len()
    }

    /// Whether there are no elements.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// assert!([1u32; 0].erased_mut().is_empty());
    /// ```
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.as_view().is_empty()
    }

    /// The bytes of all elements, without gaps.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// assert_eq!([1u32, 2].erased_mut().bytes(), 8);
    /// ```
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.as_view().bytes()
    }

    /// As [`View::contiguous`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let mut data = [1u32, 2];
    /// let start = data.as_ptr().cast();
    /// assert_eq!(data.erased_mut().contiguous(), Some(start));
    /// ```
    #[inline]
    #[must_use]
    pub fn contiguous(&self) -> Option<*const u8> {
        self.as_view().contiguous()
    }

    /// As [`View::contiguous`], for writing.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let mut data = [1u32, 2, 3];
    /// assert!(data.erased_mut().contiguous_mut().is_some());
    /// assert!(strided_mut(&mut data, 2, 1, 2)?.erased_mut().contiguous_mut().is_none());
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn contiguous_mut(&mut self) -> Option<*mut u8> {
        self.pattern.levels.is_empty().then_some(self.base)
    }

    /// As [`View::pack`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let (mut data, mut out) = ([1u32, 2], [0u32; 2]);
    /// // SAFETY: `out` is as long as the view, 8 bytes, and apart from `data`.
    /// unsafe { data.erased_mut().pack(out.as_mut_ptr().cast()) };
    /// assert_eq!(out, [1, 2]);
    /// ```
    ///
    /// # Safety
    ///
    /// As [`View::pack`].
    pub unsafe fn pack(&self, out: *mut u8) {
        // SAFETY: the same contract.
        unsafe { self.as_view().pack(out) }
    }

    /// As [`View::pack_range`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let (mut data, mut out) = ([1u32, 2, 3], [0u32; 2]);
    /// // SAFETY: 1 + 2 is the length of the view; `out` has room for two elements and is apart
    /// // from `data`.
    /// unsafe { data.erased_mut().pack_range(1, 2, out.as_mut_ptr().cast()) };
    /// assert_eq!(out, [2, 3]);
    /// ```
    ///
    /// # Safety
    ///
    /// As [`View::pack_range`].
    pub unsafe fn pack_range(&self, first: usize, count: usize, out: *mut u8) {
        // SAFETY: the same contract.
        unsafe { self.as_view().pack_range(first, count, out) }
    }

    /// Overwrites all elements with those in one piece at `from`.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let (mut data, from) = ([1u32, 2, 3], [7u32, 9]);
    /// let mut ends = strided_mut(&mut data, 2, 1, 2)?;
    /// // SAFETY: `from` is as long as the view, 8 bytes, which are `u32` too, and is apart from
    /// // `data`.
    /// unsafe { ends.erased_mut().unpack(from.as_ptr().cast()) };
    /// assert_eq!(data, [7, 2, 9]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Safety
    ///
    /// `from` is readable for [`bytes`](ViewMut::bytes) bytes, which are values of the element
    /// type ([`DType::all_valid`]), and overlaps no element.
    pub unsafe fn unpack(&mut self, from: *const u8) {
        // SAFETY: the same contract, for all elements.
        unsafe { self.unpack_range(0, self.len(), from) }
    }

    /// Overwrites `count` elements from element `first` on with those in one piece at `from`.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let (mut data, from) = ([1u32, 2, 3], [8u32, 9]);
    /// // SAFETY: 1 + 2 is the length of the view; `from` holds two elements, `u32` too, and is
    /// // apart from `data`.
    /// unsafe { data.erased_mut().unpack_range(1, 2, from.as_ptr().cast()) };
    /// assert_eq!(data, [1, 8, 9]);
    /// ```
    ///
    /// # Safety
    ///
    /// `first + count` is at most [`len`](ViewMut::len); `from` is readable for `count` elements,
    /// which are values of the element type ([`DType::all_valid`]), and overlaps no element of
    /// the view.
    pub unsafe fn unpack_range(&mut self, first: usize, count: usize, from: *const u8) {
        debug_assert!(first + count <= self.len());
        let size = self.dtype.size as usize;
        // SAFETY: the range lies within the runs, which the view borrows uniquely; `from` is the
        // caller's to vouch for.
        unsafe { self.pattern.unpack(self.base, first * size..(first + count) * size, from) }
    }
}
