//! The elements of a buffer, erased.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use super::layout::SubarrayLayout;
use super::pattern::{Levels, Pattern, Pieces, Rows};
use super::place::Place;
use crate::element::{DType, Element};

/// The elements of a [`Buffer`](super::Buffer), without their type.
///
/// ```
/// use spmd::prelude::*;
/// use spmd::buffer::View;
///
/// let data = [1u32, 2];
/// let view: View<'_> = data.erased();
/// assert_eq!((view.len(), view.bytes(), view.dtype().name), (2, 8, "u32"));
/// ```
#[derive(Clone, Copy)]
pub struct View<'a> {
    pub(super) base: *const u8,
    pub(super) place: Place,
    pub(super) dtype: &'static DType,
    pub(super) pattern: Pattern<'a>,
    pub(super) borrow: PhantomData<&'a [u8]>,
}

// SAFETY: it is a shared borrow of elements, which are `Sync`.
unsafe impl Send for View<'_> {}

// SAFETY: as for `Send`.
unsafe impl Sync for View<'_> {}

impl fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        describe(f, "View", (self.len(), self.dtype, self.place))
    }
}

impl<'a> View<'a> {
    /// The view of a slice.
    ///
    /// ```
    /// use spmd::prelude::*;
    /// use spmd::buffer::View;
    ///
    /// assert_eq!(View::new(&[1.0, 2.0]).len(), 2);
    /// ```
    #[inline]
    #[must_use]
    pub fn new<T: Element>(slice: &'a [T]) -> View<'a> {
        let pattern = Pattern { run: size_of_val(slice), levels: Levels::NONE };
        // SAFETY: the one run is the slice.
        unsafe { View::with_pattern::<T>(slice.as_ptr(), pattern) }
    }

    /// The view of `len` elements on a device, one after another.
    ///
    /// # Safety
    ///
    /// The device holds that many values of `T` at `base`, borrowed for `'a`.
    #[doc(hidden)]
    pub unsafe fn on_device<T: Element>(device: u32, base: *const T, len: usize) -> View<'a> {
        let pattern = Pattern { run: len * size_of::<T>(), levels: Levels::NONE };
        // SAFETY: nothing on the host reads what is elsewhere.
        let view = unsafe { View::with_pattern(base, pattern) };
        View { place: Place::Device(device), ..view }
    }

    /// Where the first elements are, as many as `count`, on whatever device: rows, in order.
    pub(super) fn rows(&self, count: usize) -> Vec<Rows> {
        let (mut rows, bytes) = (Vec::new(), count * self.dtype.size as usize);
        assert!(bytes <= self.bytes());
        self.pattern.pieces(0..bytes, |Pieces { offset, count, size, stride }| {
            let start = self.base.wrapping_add(offset) as u64;
            rows.push(Rows { start, count, bytes: size, stride });
        });
        rows
    }

    /// A part of an array of which this view has all elements, one after another. As that part lies within
    /// an array of as many of the same elements, these are borrowed as the view is.
    #[doc(hidden)]
    #[must_use]
    pub fn part<'b>(&self, part: &'b SubarrayLayout) -> View<'b>
    where
        'a: 'b,
    {
        assert!(self.contiguous().is_some() && part.is_of(self.dtype, self.len()));
        let base = self.base.wrapping_add(part.start_byte());
        View { base, pattern: part.pattern(), ..*self }
    }

    /// Some of the elements, which lie one after another; they are borrowed as the view is.
    pub(crate) fn range(&self, range: Range<usize>) -> View<'a> {
        assert!(self.contiguous().is_some() && range.start <= range.end && range.end <= self.len());
        let size = self.dtype.size as usize;
        let pattern = Pattern { run: range.len() * size, levels: Levels::NONE };
        View { base: self.base.wrapping_add(range.start * size), pattern, ..*self }
    }

    /// Elements of this type on the host, one after another, of so many bytes in all.
    ///
    /// # Safety
    ///
    /// They are there as long as the result lives, at an address of any alignment.
    pub(super) unsafe fn of_bytes(dtype: &'static DType, base: *const u8, run: usize) -> View<'a> {
        let pattern = Pattern { run, levels: Levels::NONE };
        View { base, place: Place::Host, dtype, pattern, borrow: PhantomData }
    }

    /// # Safety
    ///
    /// The runs of `pattern` at `base` are elements of type `T`, borrowed for `'a`.
    #[inline]
    pub(super) unsafe fn with_pattern<T: Element>(
        base: *const T,
        pattern: Pattern<'a>,
    ) -> View<'a> {
        View {
            base: base.cast(),
            place: Place::Host,
            dtype: &T::DTYPE,
            pattern,
            borrow: PhantomData,
        }
    }

    /// The type of the elements.
    ///
    /// ```
    /// use spmd::prelude::*;
    /// use spmd::DType;
    ///
    /// let dtype: &DType = [1u32, 2].erased().dtype();
    /// assert_eq!(*dtype, u32::DTYPE);
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
    /// assert_eq!([1u32, 2].erased().place(), Place::Host);
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
    /// assert_eq!([1u32, 2].erased().len(), 2);
    /// ```
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes() / self.dtype.size as usize
    }

    /// Whether there are no elements.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// assert!([1u32; 0].erased().is_empty());
    /// ```
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes() == 0
    }

    /// The bytes of all elements, without gaps.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// assert_eq!(strided(&[1u32, 2, 3], 2, 1, 2)?.erased().bytes(), 8);
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.pattern.bytes()
    }

    /// Where the elements start, if they lie in one piece and in order; a view without elements
    /// does, and the pointer is then of no use.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let data = [1u32, 2, 3];
    /// assert_eq!(data.erased().contiguous(), Some(data.as_ptr().cast()));
    /// assert_eq!(strided(&data, 2, 1, 2)?.erased().contiguous(), None);
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn contiguous(&self) -> Option<*const u8> {
        self.pattern.levels.is_empty().then_some(self.base)
    }

    /// Copies all elements to `out`, in one piece.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let (data, mut out) = ([1u32, 2, 3], [0u32; 2]);
    /// let ends = strided(&data, 2, 1, 2)?;
    /// // SAFETY: `out` is as long as the view, 8 bytes, and apart from `data`.
    /// unsafe { ends.erased().pack(out.as_mut_ptr().cast()) };
    /// assert_eq!(out, [1, 3]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Safety
    ///
    /// `out` is writable for [`bytes`](View::bytes) bytes and overlaps no element.
    pub unsafe fn pack(&self, out: *mut u8) {
        // SAFETY: the same contract, for all elements.
        unsafe { self.pack_range(0, self.len(), out) }
    }

    /// Copies `count` elements from element `first` on to `out`, in one piece.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let (data, mut out) = ([1u32, 2, 3], [0u32; 2]);
    /// // SAFETY: 1 + 2 is the length of the view; `out` has room for two elements and is apart
    /// // from `data`.
    /// unsafe { data.erased().pack_range(1, 2, out.as_mut_ptr().cast()) };
    /// assert_eq!(out, [2, 3]);
    /// ```
    ///
    /// # Safety
    ///
    /// `first + count` is at most [`len`](View::len); `out` is writable for `count` elements and
    /// overlaps no element of the view.
    pub unsafe fn pack_range(&self, first: usize, count: usize, out: *mut u8) {
        debug_assert!(first + count <= self.len());
        let size = self.dtype.size as usize;
        // SAFETY: the range lies within the runs, which the view borrows; `out` is the caller's
        // to vouch for.
        unsafe { self.pattern.pack(self.base, first * size..(first + count) * size, out) }
    }
}

/// Says what a view is of: not its elements, which may lie on a device.
pub(super) fn describe(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    (len, dtype, place): (usize, &DType, Place),
) -> fmt::Result {
    let mut fields = f.debug_struct(name);
    fields.field("len", &len).field("dtype", &dtype.name).field("place", &place);
    fields.finish_non_exhaustive()
}
