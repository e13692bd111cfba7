//! Blocks of elements at a fixed distance: a column of a matrix, every other sample.

use std::panic::Location;

use super::pattern::{Dim, Levels, Pattern};
use super::traits::{Buffer, BufferMut};
use super::view::View;
use super::view_mut::ViewMut;
use crate::element::Element;
use crate::error::{Error, Result};

/// `count` blocks of `block` elements, the starts of which are `stride` elements apart: a buffer
/// of `count × block` elements for sending.
///
/// Blocks may overlap, and `stride` may be 0. What follows the last block need not exist.
///
/// # Errors
///
/// [`Error::Argument`] if the slice ends before the last block does.
///
/// ```
/// use spmd::prelude::*;
///
/// let matrix = [1, 2, 3, 4, 5, 6]; // two rows of three
/// let column = strided(&matrix[1..], 2, 1, 3)?; // 2, 5
/// assert_eq!(column.erased().len(), 2);
/// # Ok::<(), Error>(())
/// ```
#[track_caller]
pub fn strided<T: Element>(
    slice: &[T],
    count: usize,
    block: usize,
    stride: usize,
) -> Result<Strided<'_, T>> {
    let layout = Layout::new("strided", slice, count, block, stride)?;
    Ok(Strided { slice, layout })
}

/// As [`strided`], for receiving too.
///
/// # Errors
///
/// [`Error::Argument`] if the slice ends before the last block does, or if blocks overlap: of two
/// or more blocks, `stride` must be at least `block`.
///
/// ```
/// use spmd::prelude::*;
///
/// // The last column of rank 0 becomes the first of rank 1.
/// let tiles = spmd(2, |ctx| {
///     let mut tile = [ctx.rank(); 6]; // two rows of three
///     if ctx.rank() == 0 {
///         ctx.send(&strided(&tile[2..], 2, 1, 3)?, 1, 0)?;
///     } else {
///         ctx.recv(&mut strided_mut(&mut tile, 2, 1, 3)?, 0, 0)?;
///     }
///     Ok(tile)
/// })?;
/// assert_eq!(tiles[1], [0, 1, 1, 0, 1, 1]);
/// # Ok::<(), Error>(())
/// ```
#[track_caller]
pub fn strided_mut<T: Element>(
    slice: &mut [T],
    count: usize,
    block: usize,
    stride: usize,
) -> Result<StridedMut<'_, T>> {
    if count > 1 && stride < block {
        let why = format!(
            "{count} blocks of {block} elements that start {stride} apart overlap; the stride must \
             be at least the block"
        );
        return Err(Error::misuse("strided_mut", Location::caller(), why));
    }
    let layout = Layout::new("strided_mut", slice, count, block, stride)?;
    Ok(StridedMut { slice, layout })
}

/// Blocks at a fixed distance in a slice, made by [`strided`].
///
/// ```
/// use spmd::prelude::*;
/// use spmd::buffer::Strided;
///
/// fn every_other<T: Element>(samples: &[T]) -> Result<Strided<'_, T>> {
///     strided(samples, samples.len().div_ceil(2), 1, 2)
/// }
/// assert_eq!(every_other(&[1, 2, 3, 4, 5])?.erased().len(), 3);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Strided<'a, T> {
    slice: &'a [T],
    layout: Layout,
}

/// Blocks at a fixed distance in a slice, made by [`strided_mut`].
///
/// ```
/// use spmd::prelude::*;
/// use spmd::buffer::StridedMut;
///
/// fn column<T: Element>(matrix: &mut [T], columns: usize) -> Result<StridedMut<'_, T>> {
///     strided_mut(matrix, matrix.len() / columns, 1, columns)
/// }
/// assert_eq!(column(&mut [0; 6], 3)?.erased().len(), 2);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct StridedMut<'a, T> {
    slice: &'a mut [T],
    layout: Layout,
}

// SAFETY: the elements are of type `T`.
unsafe impl<T: Element> Buffer for Strided<'_, T> {
    type Elem = T;

    fn erased(&self) -> View<'_> {
        // SAFETY: `Layout::new` has checked that the blocks lie within the slice.
        unsafe { View::with_pattern(self.slice.as_ptr(), self.layout.pattern()) }
    }
}

// SAFETY: the elements are of type `T`.
unsafe impl<T: Element> Buffer for StridedMut<'_, T> {
    type Elem = T;

    fn erased(&self) -> View<'_> {
        // SAFETY: `Layout::new` has checked that the blocks lie within the slice.
        unsafe { View::with_pattern(self.slice.as_ptr(), self.layout.pattern()) }
    }
}

// SAFETY: the same blocks of the same slice, which `strided_mut` has checked not to overlap.
unsafe impl<T: Element> BufferMut for StridedMut<'_, T> {
    fn erased_mut(&mut self) -> ViewMut<'_> {
        // SAFETY: the blocks lie within the slice, borrowed uniquely, and don't overlap.
        unsafe { ViewMut::with_pattern(self.slice.as_mut_ptr(), self.layout.pattern()) }
    }
}

/// Blocks in bytes; `dim` is missing where they are in one piece.
#[derive(Clone, Copy, Debug)]
struct Layout {
    run: usize,
    dim: Option<Dim>,
}

impl Layout {
    #[track_caller]
    fn new<T>(
        call: &str,
        slice: &[T],
        count: usize,
        block: usize,
        stride: usize,
    ) -> Result<Layout> {
        let site = Location::caller();
        let wrong = |why: String| Error::misuse(call, site, why);
        let size = size_of::<T>();
        if count == 0 || block == 0 {
            return Ok(Layout { run: 0, dim: None });
        }
        let needed = (count - 1).checked_mul(stride).and_then(|last| last.checked_add(block));
        if needed.is_none_or(|needed| needed > slice.len()) {
            return Err(wrong(format!(
                "{count} blocks of {block} elements that start {stride} apart need a slice of {} \
                 elements, and it has {}",
                needed.map_or("too many".to_owned(), |needed| needed.to_string()),
                slice.len(),
            )));
        }
        // Blocks that overlap can be more than the slice.
        let bytes = count.checked_mul(block).and_then(|elements| elements.checked_mul(size));
        let Some(bytes) = bytes.filter(|bytes| isize::try_from(*bytes).is_ok()) else {
            return Err(wrong(format!(
                "{count} blocks of {block} elements are more than fits into memory"
            )));
        };
        if count == 1 || stride == block {
            return Ok(Layout { run: bytes, dim: None });
        }
        // With the stride 0 the product of a stride and a size is 0; else it is within the slice.
        Ok(Layout { run: block * size, dim: Some(Dim { count, stride: stride * size }) })
    }

    fn pattern(&self) -> Pattern<'_> {
        Pattern { run: self.run, levels: Levels::Dims(self.dim.as_slice()) }
    }
}
