//! Arrays of the crate `ndarray`, as buffers: of any number of axes, and views of them with whatever
//! strides. The elements are in the order in which `iter` gives them, the last axis the fastest, wherever
//! they lie: an array that is stored by columns, transposed or reversed is one with gaps.

use ndarray::{ArrayBase, Data, DataMut, Dimension};

use super::pattern::{Levels, Pattern};
use super::traits::{Buffer, BufferMut};
use super::view::View;
use super::view_mut::ViewMut;
use crate::element::Element;

/// Where the elements lie. The fastest axes that are in one piece are one run.
fn pattern<'a, T>(shape: &'a [usize], strides: &'a [isize]) -> Pattern<'a> {
    if shape.contains(&0) {
        return Pattern { run: 0, levels: Levels::NONE };
    }
    let size = size_of::<T>();
    // A view may repeat its elements more often than memory has bytes.
    let bytes = shape.iter().try_fold(size, |bytes, len| bytes.checked_mul(*len));
    assert!(
        bytes.is_some_and(|bytes| isize::try_from(bytes).is_ok()),
        "an array of shape {shape:?} has more bytes than memory: it cannot be sent"
    );
    let (mut run, mut levels) = (1, shape.len());
    while let Some(axis) = levels.checked_sub(1)
        && (shape[axis] == 1 || strides[axis] == run as isize)
    {
        run *= shape[axis];
        levels = axis;
    }
    let axes = Levels::Axes(&shape[..levels], &strides[..levels], size);
    Pattern { run: run * size, levels: axes }
}

/// With the feature `ndarray`.
///
/// # Panics
///
/// If a view repeats elements (`broadcast`) so often that all have more bytes than memory.
// SAFETY: the elements are of type `T`.
unsafe impl<S, D, T> Buffer for ArrayBase<S, D>
where
    S: Data<Elem = T>,
    D: Dimension,
    T: Element,
{
    type Elem = T;

    fn erased(&self) -> View<'_> {
        // SAFETY: an array has its elements, which it borrows or owns, at these distances from the
        // first, to which the pointer points.
        unsafe { View::with_pattern(self.as_ptr(), pattern::<T>(self.shape(), self.strides())) }
    }
}

/// With the feature `ndarray`.
// SAFETY: the same elements. No two of an array that can be written overlap.
unsafe impl<S, D, T> BufferMut for ArrayBase<S, D>
where
    S: DataMut<Elem = T>,
    D: Dimension,
    T: Element,
{
    fn erased_mut(&mut self) -> ViewMut<'_> {
        // One that shares its elements has some of its own from here on.
        let first = self.as_mut_ptr();
        // SAFETY: as in `view`; the array is borrowed uniquely, and no two of its elements overlap.
        unsafe { ViewMut::with_pattern(first, pattern::<T>(self.shape(), self.strides())) }
    }
}
