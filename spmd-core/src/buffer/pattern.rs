//! Where the elements of a view lie, and the copying between them and memory in one piece.

use std::ops::Range;

use crate::copy::copy_bytes;

/// One level of repetition: `count` times, `stride` apart. A stride that goes backwards is a negative
/// number as a word, and so are offsets made of it: they are added as words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dim {
    pub(super) count: usize,
    pub(super) stride: usize,
}

/// Runs of elements in one piece, repeated. All lengths are in bytes; `levels` go from the
/// slowest to the fastest and none is redundant, so without any all elements are in one piece.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pattern<'a> {
    pub(super) run: usize,
    pub(super) levels: Levels<'a>,
}

/// Levels of repetition, as whoever made the buffer keeps them.
#[derive(Clone, Copy, Debug)]
pub(super) enum Levels<'a> {
    Dims(&'a [Dim]),
    /// Counts, and strides in elements of this size, which may go backwards.
    #[cfg(feature = "ndarray")]
    Axes(&'a [usize], &'a [isize], usize),
}

impl Levels<'_> {
    pub(super) const NONE: Levels<'static> = Levels::Dims(&[]);

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    fn len(&self) -> usize {
        match self {
            Levels::Dims(dims) => dims.len(),
            #[cfg(feature = "ndarray")]
            Levels::Axes(counts, ..) => counts.len(),
        }
    }

    fn all(&self) -> impl DoubleEndedIterator<Item = Dim> {
        (0..self.len()).map(|level| match self {
            Levels::Dims(dims) => dims[level],
            #[cfg(feature = "ndarray")]
            Levels::Axes(counts, strides, size) => {
                let stride = strides[level].wrapping_mul(*size as isize) as usize;
                Dim { count: counts[level], stride }
            }
        })
    }
}

/// Rows of bytes on a device, which on the host lie without the gaps.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    /// The address of the first one.
    pub start: u64,
    /// How many.
    pub count: usize,
    /// Of each.
    pub bytes: usize,
    /// From one's start to the next one's.
    pub stride: usize,
}

impl Rows {
    /// Bytes in all.
    pub fn total(self) -> usize {
        self.count * self.bytes
    }
}

/// `count` pieces of memory of `size` bytes, `stride` bytes apart.
pub(super) struct Pieces {
    pub(super) offset: usize,
    pub(super) count: usize,
    pub(super) size: usize,
    pub(super) stride: usize,
}

impl Pattern<'_> {
    /// The bytes of all runs together.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.levels.all().fold(self.run, |bytes, dim| bytes * dim.count)
    }

    /// Where run `index` starts.
    fn offset(&self, index: usize) -> usize {
        let mut rest = index;
        let mut offset = 0usize;
        for dim in self.levels.all().rev() {
            offset = offset.wrapping_add((rest % dim.count).wrapping_mul(dim.stride));
            rest /= dim.count;
        }
        offset
    }

    /// The memory of the bytes `range` of all runs, in order: whole rows of runs as far as
    /// possible, single parts of a run at the ends.
    pub(super) fn pieces(&self, range: Range<usize>, mut each: impl FnMut(Pieces)) {
        let row = self.levels.all().next_back().unwrap_or(Dim { count: 1, stride: 0 });
        let mut at = range.start;
        while at < range.end {
            let (index, within) = (at / self.run, at % self.run);
            let left = range.end - at;
            let offset = self.offset(index).wrapping_add(within);
            let pieces = if within > 0 || left < self.run {
                let size = left.min(self.run - within);
                Pieces { offset, count: 1, size, stride: 0 }
            } else {
                let count = (row.count - index % row.count).min(left / self.run);
                Pieces { offset, count, size: self.run, stride: row.stride }
            };
            at += pieces.count * pieces.size;
            each(pieces);
        }
    }

    /// Copies the bytes `range` of all runs at `base` to `out`, in one piece.
    ///
    /// # Safety
    ///
    /// `range` lies within [`bytes`](Pattern::bytes); all runs at `base` are readable, `out` is
    /// writable for the length of `range`, and they don't overlap.
    pub(super) unsafe fn pack(&self, base: *const u8, range: Range<usize>, out: *mut u8) {
        if self.levels.is_empty() {
            // SAFETY: all runs are one, in which the range lies; `out` has room for it.
            return unsafe { copy_bytes(base.add(range.start), out, range.len()) };
        }
        let mut to = out;
        self.pieces(range, |from| {
            // SAFETY: the pieces lie within the runs, and `to` has advanced by the sizes of those
            // before, which sum up to the length of `range` at most.
            unsafe { copy(base.wrapping_add(from.offset), from.stride, to, from.size, &from) };
            to = to.wrapping_add(from.count * from.size);
        });
    }

    /// Copies from one piece at `from` to the bytes `range` of all runs at `base`.
    ///
    /// # Safety
    ///
    /// As [`pack`](Pattern::pack), with `from` readable and the runs at `base` writable.
    pub(super) unsafe fn unpack(&self, base: *mut u8, range: Range<usize>, from: *const u8) {
        let mut from = from;
        self.pieces(range, |to| {
            // SAFETY: as in `pack`.
            unsafe { copy(from, to.size, base.wrapping_add(to.offset), to.stride, &to) };
            from = from.wrapping_add(to.count * to.size);
        });
    }
}

/// Copies pieces from `from` to `to`, advancing each by its own stride.
///
/// # Safety
///
/// All pieces are readable at `from` and writable at `to`, and the two don't overlap.
unsafe fn copy(from: *const u8, from_stride: usize, to: *mut u8, to_stride: usize, of: &Pieces) {
    // SAFETY: this function's own contract.
    unsafe {
        match of.size {
            1 => copy_fixed::<1>(from, from_stride, to, to_stride, of.count),
            2 => copy_fixed::<2>(from, from_stride, to, to_stride, of.count),
            4 => copy_fixed::<4>(from, from_stride, to, to_stride, of.count),
            8 => copy_fixed::<8>(from, from_stride, to, to_stride, of.count),
            16 => copy_fixed::<16>(from, from_stride, to, to_stride, of.count),
            size => {
                for piece in 0..of.count {
                    let from = from.wrapping_add(piece.wrapping_mul(from_stride));
                    let to = to.wrapping_add(piece.wrapping_mul(to_stride));
                    from.copy_to_nonoverlapping(to, size);
                }
            }
        }
    }
}

/// [`copy`] for pieces whose size the compiler knows, so that each is a load and a store.
///
/// # Safety
///
/// As [`copy`].
unsafe fn copy_fixed<const SIZE: usize>(
    from: *const u8,
    from_stride: usize,
    to: *mut u8,
    to_stride: usize,
    count: usize,
) {
    for piece in 0..count {
        // SAFETY: piece `piece < count` is readable at `from` and writable at `to`; arrays of
        // bytes need no alignment.
        unsafe {
            let from = from.wrapping_add(piece.wrapping_mul(from_stride));
            let to = to.wrapping_add(piece.wrapping_mul(to_stride));
            to.cast::<[u8; SIZE]>().write(from.cast::<[u8; SIZE]>().read());
        }
    }
}
