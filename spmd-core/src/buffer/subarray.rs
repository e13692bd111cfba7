//! A rectangular part of an array of any number of axes: the face of a grid, a tile of a matrix.

use std::ops::Range;
use std::panic::Location;

use super::layout::SubarrayLayout;
use super::traits::{Buffer, BufferMut};
use super::view::View;
use super::view_mut::ViewMut;
use crate::element::Element;
use crate::error::Result;

/// The part of an array that lies within `ranges`, one for each axis: a buffer for sending.
///
/// `slice` holds the whole array of that `shape` in row-major order: the last axis is the fastest.
/// The elements of the buffer are in the same order.
///
/// # Errors
///
/// [`Error::Argument`](crate::Error::Argument) if `slice` has not as many elements as `shape`, if there is not one range
/// for each axis, or if one is not within the extent of its axis.
///
/// ```
/// use spmd::prelude::*;
///
/// let grid = [0.0; 4 * 5 * 6];
/// let face = subarray(&grid, &[4, 5, 6], &[0..4, 0..5, 5..6])?; // the last plane of the last axis
/// assert_eq!(face.erased().len(), 20);
/// # Ok::<(), Error>(())
/// ```
#[track_caller]
pub fn subarray<'a, T: Element>(
    slice: &'a [T],
    shape: &[usize],
    ranges: &[Range<usize>],
) -> Result<Subarray<'a, T>> {
    let layout = SubarrayLayout::new(
        ("subarray", Location::caller()),
        &T::DTYPE,
        slice.len(),
        shape,
        ranges,
    )?;
    Ok(Subarray { slice, layout })
}

/// As [`subarray`], for receiving too.
///
/// # Errors
///
/// As [`subarray`].
///
/// ```
/// use spmd::prelude::*;
///
/// let grids = spmd(2, |ctx| {
///     let mut grid = [0; 12]; // three rows of four
///     if ctx.rank() == 0 {
///         ctx.send(&[1, 2, 3, 4], 1, 0)?;
///     } else {
///         ctx.recv(&mut subarray_mut(&mut grid, &[3, 4], &[1..3, 2..4])?, 0, 0)?;
///     }
///     Ok(grid)
/// })?;
/// assert_eq!(grids[1], [0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 3, 4]);
/// # Ok::<(), Error>(())
/// ```
#[track_caller]
pub fn subarray_mut<'a, T: Element>(
    slice: &'a mut [T],
    shape: &[usize],
    ranges: &[Range<usize>],
) -> Result<SubarrayMut<'a, T>> {
    let layout = SubarrayLayout::new(
        ("subarray_mut", Location::caller()),
        &T::DTYPE,
        slice.len(),
        shape,
        ranges,
    )?;
    Ok(SubarrayMut { slice, layout })
}

/// A rectangular part of an array, made by [`subarray`].
///
/// ```
/// use spmd::prelude::*;
/// use spmd::buffer::Subarray;
///
/// fn inner(grid: &[f64], [rows, columns]: [usize; 2]) -> Result<Subarray<'_, f64>> {
///     subarray(grid, &[rows, columns], &[1..rows - 1, 1..columns - 1])
/// }
/// assert_eq!(inner(&[0.0; 20], [4, 5])?.erased().len(), 6);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Subarray<'a, T> {
    slice: &'a [T],
    layout: SubarrayLayout,
}

/// A rectangular part of an array, made by [`subarray_mut`].
///
/// ```
/// use spmd::prelude::*;
/// use spmd::buffer::SubarrayMut;
///
/// fn top(grid: &mut [f64], [rows, columns]: [usize; 2]) -> Result<SubarrayMut<'_, f64>> {
///     subarray_mut(grid, &[rows, columns], &[0..1, 0..columns])
/// }
/// assert_eq!(top(&mut [0.0; 20], [4, 5])?.erased().len(), 5);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct SubarrayMut<'a, T> {
    slice: &'a mut [T],
    layout: SubarrayLayout,
}

// SAFETY: the elements are of type `T`.
unsafe impl<T: Element> Buffer for Subarray<'_, T> {
    type Elem = T;

    fn erased(&self) -> View<'_> {
        let part = &self.slice[self.layout.start..];
        // SAFETY: `SubarrayLayout::new` has checked that the part lies within the slice.
        unsafe { View::with_pattern(part.as_ptr(), self.layout.pattern()) }
    }
}

// SAFETY: the elements are of type `T`.
unsafe impl<T: Element> Buffer for SubarrayMut<'_, T> {
    type Elem = T;

    fn erased(&self) -> View<'_> {
        let part = &self.slice[self.layout.start..];
        // SAFETY: `SubarrayLayout::new` has checked that the part lies within the slice.
        unsafe { View::with_pattern(part.as_ptr(), self.layout.pattern()) }
    }
}

// SAFETY: the same part of the same slice; each element is in a rectangular part once.
unsafe impl<T: Element> BufferMut for SubarrayMut<'_, T> {
    fn erased_mut(&mut self) -> ViewMut<'_> {
        let part = &mut self.slice[self.layout.start..];
        // SAFETY: the part lies within the slice, borrowed uniquely, and has no element twice.
        unsafe { ViewMut::with_pattern(part.as_mut_ptr(), self.layout.pattern()) }
    }
}
