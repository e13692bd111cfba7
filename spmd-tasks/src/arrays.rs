//! Arrays whose parts tasks read and write.

use std::cell::Cell;
use std::fmt;
use std::ops::{Bound, Range, RangeBounds};

use parking_lot::Mutex;
use spmd_core::{Error, Result};

use crate::place::{Mode, Place, Use};
use crate::region::Region;
use crate::regions::Regions;
use crate::view::sealed::{Lends, View};

/// A slice of which tasks read and write ranges: see [`DataDeps`](crate::DataDeps). Ranges may overlap:
/// tasks that name some of the same elements follow each other as they do by [`Data`](crate::Data), others
/// run at the same time.
///
/// A task that is spawned is compared with all that are not over and use a part of the slice.
///
/// ```
/// use spmd::prelude::*;
/// use spmd::tasks::DataSlice;
///
/// spmd(1, |ctx| {
///     let mut numbers = [1, 2, 3, 4, 5, 6];
///     let data = DataSlice::new(&mut numbers);
///     ctx.datadeps(|d| {
///         d.spawn((d.write(data.range(..3)),), |x: &mut [i32]| Ok(x.reverse()));
///         d.spawn((d.write(data.range(4..)),), |x| Ok(x.fill(0)));
///         // After both.
///         let middle = d.spawn((d.read(data.range(2..5)),), |x: &[i32]| Ok(x.to_vec()));
///         assert_eq!(middle.take()?, [1, 4, 0]);
///         Ok(())
///     })?;
///     assert_eq!(numbers, [3, 2, 1, 4, 0, 0]);
///     Ok(())
/// })?;
/// # Ok::<(), Error>(())
/// ```
pub struct DataSlice<'v, T> {
    elements: Elements<'v, T>,
    order: Mutex<Regions>,
}

/// A matrix, row after row, of which tasks read and write tiles: see [`DataDeps`](crate::DataDeps). Tiles
/// may overlap, as ranges of a [`DataSlice`] may.
///
/// A task gets a tile as a `Vec` of its rows, each of which is a slice.
///
/// ```
/// use spmd::prelude::*;
/// use spmd::tasks::DataMatrix;
///
/// spmd(1, |ctx| {
///     let mut numbers = vec![0; 12];
///     let matrix = DataMatrix::new(&mut numbers, 4)?;
///     ctx.datadeps(|d| {
///         d.spawn((d.write(matrix.tile(.., ..2)),), |left: Vec<&mut [i32]>| {
///             left.into_iter().for_each(|row| row.fill(1));
///             Ok(())
///         });
///         d.spawn((d.write(matrix.tile(1..2, 1..)),), |mut tile| Ok(tile[0][0] += 1));
///         Ok(())
///     })?;
///     assert_eq!(numbers, [1, 1, 0, 0, 1, 2, 0, 0, 1, 1, 0, 0]);
///     Ok(())
/// })?;
/// # Ok::<(), Error>(())
/// ```
pub struct DataMatrix<'v, T> {
    elements: Elements<'v, T>,
    columns: usize,
    order: Mutex<Regions>,
}

/// Elements that tasks use, and nobody else.
struct Elements<'d, T>(&'d [Cell<T>]);

// SAFETY: an element is used by one task that writes it, which may be on another thread (`Send`), or by
// several that read it (`Sync`), as `Regions` has it; by `get` and `get_mut` alone.
unsafe impl<T: Send + Sync> Sync for Elements<'_, T> {}

impl<'d, T> Elements<'d, T> {
    fn new(slice: &'d mut [T]) -> Elements<'d, T> {
        Elements(Cell::from_mut(slice).as_slice_of_cells())
    }

    /// Those in this range, as one who reads them has them.
    ///
    /// # Safety
    /// Nobody writes one of them as long as what this gives is used.
    unsafe fn get(&self, range: Range<usize>) -> &'d [T] {
        let cells = &self.0[range];
        // SAFETY: a cell is as what is in it, and the elements lie there for `'d`. Nobody writes them
        // (this function's contract).
        unsafe { std::slice::from_raw_parts(cells.as_ptr().cast(), cells.len()) }
    }

    /// The same, as one who writes them has them.
    ///
    /// # Safety
    /// Nobody else uses one of them as long as what this gives is used.
    unsafe fn get_mut(&self, range: Range<usize>) -> &'d mut [T] {
        let cells = &self.0[range];
        // SAFETY: as above; they may be written, as they are in cells, and nobody else uses them (this
        // function's contract).
        unsafe {
            std::slice::from_raw_parts_mut(cells.as_ptr().cast::<T>().cast_mut(), cells.len())
        }
    }
}

impl<'v, T> DataSlice<'v, T> {
    /// A slice of which tasks use ranges, until this is dropped.
    pub fn new(slice: &'v mut [T]) -> DataSlice<'v, T> {
        DataSlice { elements: Elements::new(slice), order: Mutex::new(Regions::new()) }
    }

    /// The elements in this range, for [`DataDeps::read`](crate::DataDeps::read) and its like: a task gets
    /// a `&[T]` or a `&mut [T]`.
    ///
    /// A task that names elements that are not there fails.
    pub fn range(&self, range: impl RangeBounds<usize>) -> DataRange<'_, T> {
        let (range, wrong) = within(range, self.elements.0.len(), "elements");
        DataRange { elements: &self.elements, order: &self.order, range, wrong }
    }
}

impl<'v, T> DataMatrix<'v, T> {
    /// A matrix with rows of so many elements, of which tasks use tiles, until this is dropped.
    ///
    /// Errors: the elements make no whole number of rows.
    pub fn new(slice: &'v mut [T], columns: usize) -> Result<DataMatrix<'v, T>> {
        let len = slice.len();
        if columns == 0 || !len.is_multiple_of(columns) {
            let why = format!("DataMatrix: {len} elements are no rows of {columns}");
            return Err(Error::argument(why));
        }
        let order = Mutex::new(Regions::new());
        Ok(DataMatrix { elements: Elements::new(slice), columns, order })
    }

    /// How many rows it has.
    pub fn rows(&self) -> usize {
        self.elements.0.len() / self.columns
    }

    /// How many columns it has.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// What lies in these rows and columns, for [`DataDeps::read`](crate::DataDeps::read) and its like: a
    /// task gets a `Vec<&[T]>` or a `Vec<&mut [T]>` of its rows.
    ///
    /// A task that names rows or columns that are not there fails.
    pub fn tile(
        &self,
        rows: impl RangeBounds<usize>,
        columns: impl RangeBounds<usize>,
    ) -> DataTile<'_, T> {
        let (rows, wrong_rows) = within(rows, self.rows(), "rows");
        let (columns, wrong_columns) = within(columns, self.columns, "columns");
        let (region, wrong) = (Region { rows, columns }, wrong_rows.or(wrong_columns));
        let stride = self.columns;
        DataTile { elements: &self.elements, order: &self.order, stride, region, wrong }
    }
}

/// A range of so many, or an empty one and what is wrong.
fn within(
    range: impl RangeBounds<usize>,
    len: usize,
    what: &str,
) -> (Range<usize>, Option<String>) {
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(last) => last.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => len,
    };
    if start <= end && end <= len {
        return (start..end, None);
    }
    (0..0, Some(format!("names {what} {start}..{end} where there are {len}")))
}

/// Some elements of a [`DataSlice`].
pub struct DataRange<'d, T> {
    elements: &'d Elements<'d, T>,
    order: &'d Mutex<Regions>,
    /// They are there.
    range: Range<usize>,
    wrong: Option<String>,
}

/// Some rows and columns of a [`DataMatrix`].
pub struct DataTile<'d, T> {
    elements: &'d Elements<'d, T>,
    order: &'d Mutex<Regions>,
    stride: usize,
    /// It is there.
    region: Region,
    wrong: Option<String>,
}

impl<'d, T: Send + Sync> View<'d> for DataRange<'d, T> {
    fn place(&self, mode: Mode) -> Place<'d> {
        let region = Region { rows: self.range.clone(), columns: 0..1 };
        let how = Use { mode, region };
        Place { order: self.order, how, fold: None, wrong: self.wrong.clone(), home: None }
    }
}

impl<'a, T> Lends<'a> for DataRange<'_, T> {
    type Shared = &'a [T];
    type Exclusive = &'a mut [T];

    unsafe fn shared(&'a self) -> &'a [T] {
        // SAFETY: this function's contract, of the elements that `place` names.
        unsafe { self.elements.get(self.range.clone()) }
    }

    unsafe fn exclusive(&'a self) -> &'a mut [T] {
        // SAFETY: as above.
        unsafe { self.elements.get_mut(self.range.clone()) }
    }
}

impl<T> DataTile<'_, T> {
    /// Where each of its rows lies.
    fn rows(&self) -> impl Iterator<Item = Range<usize>> {
        let Region { rows, columns } = self.region.clone();
        let stride = self.stride;
        rows.map(move |row| row * stride + columns.start..row * stride + columns.end)
    }
}

impl<'d, T: Send + Sync> View<'d> for DataTile<'d, T> {
    fn place(&self, mode: Mode) -> Place<'d> {
        let how = Use { mode, region: self.region.clone() };
        Place { order: self.order, how, fold: None, wrong: self.wrong.clone(), home: None }
    }
}

impl<'a, T> Lends<'a> for DataTile<'_, T> {
    type Shared = Vec<&'a [T]>;
    type Exclusive = Vec<&'a mut [T]>;

    unsafe fn shared(&'a self) -> Vec<&'a [T]> {
        // SAFETY: this function's contract, of the elements that `place` names: a row of the tile holds
        // no others.
        self.rows().map(|row| unsafe { self.elements.get(row) }).collect()
    }

    unsafe fn exclusive(&'a self) -> Vec<&'a mut [T]> {
        // SAFETY: as above; no two rows have an element in common, as columns are fewer than a stride.
        self.rows().map(|row| unsafe { self.elements.get_mut(row) }).collect()
    }
}

macro_rules! debug {
    ($($name:ident)*) => {
        $(impl<T> fmt::Debug for $name<'_, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        })*
    };
}

debug!(DataSlice DataMatrix DataRange DataTile);
