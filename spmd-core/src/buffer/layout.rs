//! Where a rectangular part of an array lies.

use std::ops::Range;
use std::panic::Location;

use super::pattern::{Dim, Levels, Pattern};
use crate::element::DType;
use crate::error::{Error, Result};

/// Where the part lies: its first element, and from there its runs in bytes.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct SubarrayLayout {
    /// The array's elements.
    dtype: &'static DType,
    len: usize,
    /// In elements.
    pub(super) start: usize,
    run: usize,
    dims: Vec<Dim>,
}

impl SubarrayLayout {
    /// That of a part of an array of so many elements, as of `subarray`, for a call of this name, made there.
    ///
    /// Errors: as those of `subarray`.
    pub fn new(
        (call, site): (&str, &'static Location<'static>),
        dtype: &'static DType,
        len: usize,
        shape: &[usize],
        ranges: &[Range<usize>],
    ) -> Result<SubarrayLayout> {
        let wrong = |why: String| Error::misuse(call, site, why);
        let elements =
            shape.iter().try_fold(1, |product: usize, extent| product.checked_mul(*extent));
        if elements != Some(len) {
            return Err(wrong(format!(
                "an array of shape {shape:?} has {} elements, and the slice has {len}",
                elements.map_or("too many".to_owned(), |elements| elements.to_string()),
            )));
        }
        if ranges.len() != shape.len() {
            return Err(wrong(format!(
                "the shape {shape:?} has {} axes, and {} ranges are given",
                shape.len(),
                ranges.len(),
            )));
        }
        for (axis, (range, extent)) in ranges.iter().zip(shape).enumerate() {
            if range.start > range.end || range.end > *extent {
                return Err(wrong(format!(
                    "the range {range:?} of axis {axis} is not within its extent, 0..{extent}"
                )));
            }
        }
        if ranges.iter().any(Range::is_empty) {
            return Ok(SubarrayLayout { dtype, len, start: 0, run: 0, dims: Vec::new() });
        }
        Ok(SubarrayLayout::within(dtype, shape, ranges))
    }

    /// The layout of a part that has elements. An axis that continues the runs or the steps of the
    /// faster ones becomes part of them.
    fn within(dtype: &'static DType, shape: &[usize], ranges: &[Range<usize>]) -> SubarrayLayout {
        let size = dtype.size as usize;
        let (mut start, mut run, mut dims) = (0, size, Vec::<Dim>::new());
        let mut stride = 1;
        for (range, extent) in ranges.iter().zip(shape).rev() {
            start += range.start * stride;
            let (count, bytes) = (range.len(), stride * size);
            match dims.last_mut() {
                _ if count == 1 => {}
                None if bytes == run => run *= count,
                Some(faster) if bytes == faster.count * faster.stride => faster.count *= count,
                _ => dims.push(Dim { count, stride: bytes }),
            }
            stride *= extent;
        }
        dims.reverse();
        SubarrayLayout { dtype, len: stride, start, run, dims }
    }

    /// Whether it is that of an array of so many of these elements.
    pub(super) fn is_of(&self, dtype: &DType, len: usize) -> bool {
        *self.dtype == *dtype && self.len == len
    }

    /// How far into the array it begins.
    pub(super) fn start_byte(&self) -> usize {
        self.start * self.dtype.size as usize
    }

    pub(super) fn pattern(&self) -> Pattern<'_> {
        Pattern { run: self.run, levels: Levels::Dims(&self.dims) }
    }
}
