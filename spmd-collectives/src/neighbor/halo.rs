//! The exchange of halos: what each rank of a grid keeps of its neighbours' cells around its own.

use std::ops::Range;
use std::panic::Location;

use spmd_core::internal::{Call, Kind};
use spmd_core::{Element, Error, Result, subarray, subarray_mut};

use super::exchange_blocks;
use crate::cartesian::Cartesian;

impl Cartesian {
    /// Fills the halo of `field` with what the neighbours have beside it: cells of this rank in the
    /// middle, and `width` cells of others before and behind them along each axis of the grid. All
    /// ranks of the grid call it.
    ///
    /// `field` is in row-major order. `shape` gives its lengths with the halo, one for each axis of
    /// the grid; further ones, as the components of a cell, have no halo. Corners are filled, too: with
    /// cells of the diagonal neighbours. Where there is no neighbour, the halo stays as it was. Ranks may
    /// have fields of different lengths, as long as those of neighbours fit.
    ///
    /// Cost: two meetings for each axis, in which the cells beside both of its faces are sent.
    ///
    /// Errors: `field` has not as many elements as `shape`, which has less axes than the grid; a rank has
    /// less than `width` cells of its own along an axis; faces of two neighbours differ (an error on
    /// every rank); a rank has failed, left, or makes another call.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// // Four ranks in a row, each with three rows of two cells of its own.
    /// let fields = spmd(4, |ctx| {
    ///     let grid = ctx.cartesian(&[4, 1], &[false, true])?.expect("a place for each");
    ///     let mut field = vec![-1; 5 * 4];
    ///     for (row, column) in [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (3, 2)] {
    ///         field[4 * row + column] = 100 * ctx.rank() as i32 + 10 * row as i32 + column as i32;
    ///     }
    ///     grid.exchange_halo(&mut field, &[5, 4], 1)?;
    ///     Ok(field)
    /// })?;
    /// assert_eq!(fields[1][..4], [32, 31, 32, 31]); // of rank 0, around the ring of columns
    /// assert_eq!(fields[1][4..8], [112, 111, 112, 111]);
    /// assert_eq!(fields[0][..4], [-1; 4]); // nobody is above
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn exchange_halo<T: Element>(
        &self,
        field: &mut [T],
        shape: &[usize],
        width: usize,
    ) -> Result<()> {
        let site = Location::caller();
        let call = Call::new(Kind::ExchangeHalo, site).data(&T::DTYPE, Call::UNEQUAL);
        let axes = self.dims().len();
        if shape.len() < axes {
            let why = format!("`shape` has {} axes, the grid has {axes}", shape.len());
            return Err(Error::argument(format!("{call}: {why}")));
        }
        if let Some(axis) = (0..axes).find(|axis| shape[*axis] < width.saturating_mul(3)) {
            let (least, len) = (width.saturating_mul(3), shape[axis]);
            let why = format!(
                "axis {axis} has {len} cells: {width} of its own and {width} on each side are {least}"
            );
            return Err(Error::argument(format!("{call}: {why}")));
        }
        let _held = self.internals().hold(&call)?;
        let neighbors = self.neighbors();
        for axis in 0..axes {
            let len = shape[axis];
            let layer = |cells| layer(shape, (axis, axes), width, cells);
            let own = [layer(width..2 * width), layer(len - 2 * width..len - width)];
            let halo = [layer(0..width), layer(len - width..len)];
            let mut send = subarray(field, shape, &own[0])?.to_vec();
            let face = send.len();
            send.append(&mut subarray(field, shape, &own[1])?.to_vec());
            let mut recv = send.clone();
            let sides = &neighbors[2 * axis..][..2];
            exchange_blocks((self, sides), &call, &send, &mut recv, (&[face; 2], &[face; 2]))?;
            for side in [0, 1].into_iter().filter(|side| sides[*side].is_some()) {
                let came = &recv[side * face..][..face];
                subarray_mut(field, shape, &halo[side])?.copy_from(came)?;
            }
        }
        Ok(())
    }
}

/// These cells along an axis: of axes before it with the halo, which has come, of later ones of the
/// grid without.
fn layer(
    shape: &[usize],
    (axis, axes): (usize, usize),
    width: usize,
    cells: Range<usize>,
) -> Vec<Range<usize>> {
    let range = |(other, len): (usize, &usize)| match other {
        _ if other == axis => cells.clone(),
        _ if other < axis || other >= axes => 0..*len,
        _ => width..len - width,
    };
    shape.iter().enumerate().map(range).collect()
}
