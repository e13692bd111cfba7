//! The exchange of halos: what each rank of a grid keeps of its neighbours' cells around its own.

use std::ops::Range;
use std::panic::Location;

use spmd_core::internal::{
    Call, Kind, Room, SubarrayLayout, View, ViewMut, by_host, in_one_piece, on_host,
};
use spmd_core::{BufferMut, Element, Error, Result};

use super::exchange_blocks;
use crate::cartesian::Cartesian;

impl Cartesian {
    /// Fills the halo of `field` with what the neighbours have beside it: cells of this rank in the
    /// middle, and `width` cells of others before and behind them along each axis of the grid. All
    /// ranks of the grid call it.
    ///
    /// `field` may be on a device; what is sent and received goes by way of the host, nothing else. One
    /// with gaps is copied as a whole. It is in row-major order. `shape` gives its lengths with the halo,
    /// one for each axis of the grid; further ones, as the components of a cell, have no halo. Corners are
    /// filled, too: with cells of the diagonal neighbours. Where there is no neighbour, the halo stays as it
    /// was. Ranks may have fields of different lengths, as long as those of neighbours fit.
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
    pub fn exchange_halo<B: BufferMut + ?Sized>(
        &self,
        field: &mut B,
        shape: &[usize],
        width: usize,
    ) -> Result<()> {
        let call = Call::new(Kind::ExchangeHalo, Location::caller());
        let call = call.data(&B::Elem::DTYPE, Call::UNEQUAL);
        self.fill_halo(&call, field.erased_mut(), shape, width)
    }

    fn fill_halo(
        &self,
        call: &Call<'_>,
        field: ViewMut<'_>,
        shape: &[usize],
        width: usize,
    ) -> Result<()> {
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
        let _held = self.internals().hold(call)?;
        let neighbors = self.neighbors();
        in_one_piece(field, |mut field| {
            (0..axes).try_for_each(|axis| {
                let sides = &neighbors[2 * axis..][..2];
                self.fill_axis(call, &mut field, sides, (shape, axis, width))
            })
        })
    }

    /// Fills both faces of an axis, from the neighbours on both sides.
    fn fill_axis(
        &self,
        call: &Call<'_>,
        field: &mut ViewMut<'_>,
        sides: &[Option<usize>],
        (shape, axis, width): (&[usize], usize, usize),
    ) -> Result<()> {
        let unknown = || Error::out_of_reach(call, &[]);
        let (len, dtype, cells) = (shape[axis], field.dtype(), field.len());
        let layer = |cells_of| layer(shape, (axis, self.dims().len()), width, cells_of);
        let made = ("exchange_halo", call.site);
        let part = |along| SubarrayLayout::new(made, dtype, cells, shape, &layer(along));
        let own = [part(width..2 * width)?, part(len - 2 * width..len - width)?];
        let halo = [part(0..width)?, part(len - width..len)?];

        let face = field.as_view().part(&own[0]).len();
        let (mut send, mut recv) = (Room::new(dtype, 2 * face)?, Room::new(dtype, 2 * face)?);
        for (side, own) in own.iter().enumerate() {
            let mut stage = None;
            let cells = on_host(field.as_view().part(own), &mut stage, &unknown)?;
            // SAFETY: there is room for two faces, each of which is as long, apart from the field. Nobody reads
            // what is not written yet.
            unsafe { cells.pack(start_of(&mut send.erased_mut(), side * face)) };
        }
        // SAFETY: both faces have come there.
        let sent: View<'_> = unsafe { send.erased() };
        let blocks = [face; 2];
        // SAFETY: the exchange writes there, and does not read.
        let room = unsafe { recv.erased_mut() };
        exchange_blocks((self, sides), call, sent, room, (&blocks, &blocks))?;
        for (side, halo) in halo.iter().enumerate().filter(|(side, _)| sides[*side].is_some()) {
            // SAFETY: what is read there has come.
            let came = start_of(&mut unsafe { recv.erased_mut() }, side * face);
            let copy = |mut cells: ViewMut<'_>| {
                // SAFETY: a neighbour's cells have come there, as many as a face has, or the exchange would have
                // given an error (`learn` compares the counts); they are apart from the field.
                unsafe { cells.unpack(came) };
                Ok(())
            };
            // SAFETY: all of them are written.
            unsafe { by_host(field.part(halo), &unknown, copy, |()| face)? };
        }
        Ok(())
    }
}

/// Where an element of this number is, of elements that lie one after another.
fn start_of(room: &mut ViewMut<'_>, element: usize) -> *mut u8 {
    let start = room.contiguous_mut().expect("they lie one after another");
    start.wrapping_add(element * room.dtype().size as usize)
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
