//! Cartesian grids of ranks (MPI 5.0 section 8.5).

use std::ops::Deref;
use std::panic::Location;

use spmd_core::internal::{Call, Kind};
use spmd_core::{Comm, Error, Result};

use crate::sealed::Sealed;
use crate::split::{said, split};

/// Making communicators whose ranks have neighbours (MPI 5.0 section 8.5).
///
/// ```
/// use spmd::prelude::*;
///
/// let places = spmd(3, |ctx| Ok(ctx.cartesian(&[2], &[true])?.is_some()))?;
/// assert_eq!(places, [true, true, false]);
/// # Ok::<(), Error>(())
/// ```
pub trait Topology: Sealed {
    /// Makes a communicator whose ranks form a grid of these lengths, in row-major order; along
    /// an axis that is `periodic`, the last is the neighbour of the first. Ranks that are not
    /// needed for the grid get none. All ranks call it, with equal arguments.
    ///
    /// Errors: the grid has more places than there are ranks; an axis has length 0 or no entry
    /// in `periodic`; those of [`Split::split`](crate::Split::split).
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(7, |ctx| {
    ///     let grid = ctx.cartesian(&[2, 3], &[false, true])?;
    ///     assert_eq!(grid.is_some(), ctx.rank() < 6);
    ///     if let Some(grid) = grid {
    ///         assert_eq!(grid.coords(), [grid.rank() / 3, grid.rank() % 3]);
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn cartesian(&self, dims: &[usize], periodic: &[bool]) -> Result<Option<Cartesian>>;
}

impl Topology for Comm {
    fn cartesian(&self, dims: &[usize], periodic: &[bool]) -> Result<Option<Cartesian>> {
        let call = Call::new(Kind::Cartesian, Location::caller());
        let refuse = |why: String| Err(misuse("cartesian", call.site, &why));
        if dims.len() != periodic.len() {
            let (axes, given) = (dims.len(), periodic.len());
            return refuse(format!("{given} entries of `periodic` for {axes} axes"));
        }
        if dims.contains(&0) {
            return refuse("an axis has the length 0".into());
        }
        let places = dims.iter().try_fold(1usize, |places, dim| places.checked_mul(*dim));
        let Some(places) = places.filter(|places| *places <= self.size()) else {
            return refuse(format!("a grid of {dims:?} needs more than {} ranks", self.size()));
        };
        let color = (self.rank() < places).then_some(0);
        let comm = split(self, &call, said(color, 0, digest(dims, periodic)), true)?;
        Ok(comm.map(|comm| Cartesian { comm, dims: dims.into(), periodic: periodic.into() }))
    }
}

fn misuse(call: &str, site: &Location<'_>, why: &str) -> Error {
    Error::argument(format!("{call} at {}:{}: {why}", site.file(), site.line()))
}

/// A number that differs, but for chance, between grids (FNV-1a, by words).
fn digest(dims: &[usize], periodic: &[bool]) -> u64 {
    let wraps = periodic.iter().map(|periodic| usize::from(*periodic));
    dims.iter().copied().chain(wraps).fold(0xcbf2_9ce4_8422_2325, |hash: u64, word| {
        (hash ^ word as u64).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// A communicator whose ranks form a grid, made by [`Topology::cartesian`]. It derefs to [`Comm`].
///
/// Its exchanges with neighbours are [`Neighbor`](crate::Neighbor).
///
/// ```
/// use spmd::prelude::*;
///
/// spmd(6, |ctx| {
///     let grid = ctx.cartesian(&[2, 3], &[false, true])?.expect("six places");
///     assert_eq!((grid.dims(), grid.periodic()), (&[2, 3][..], &[false, true][..]));
///     assert_eq!(grid.coords(), grid.coords_of(grid.rank())?);
///     if grid.rank() == 0 {
///         // Nobody above, (1, 0) below; (0, 2) on the left, over the edge, and (0, 1).
///         assert_eq!(grid.neighbors(), [None, Some(3), Some(2), Some(1)]);
///     }
///     Ok(())
/// })?;
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct Cartesian {
    comm: Comm,
    dims: Box<[usize]>,
    periodic: Box<[bool]>,
}

impl Sealed for Cartesian {}

impl Deref for Cartesian {
    type Target = Comm;

    fn deref(&self) -> &Comm {
        &self.comm
    }
}

impl Cartesian {
    /// The lengths of the axes.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let dims = spmd(2, |ctx| {
    ///     let grid = ctx.cartesian(&[2, 1], &[false; 2])?.expect("a place for each rank");
    ///     Ok(grid.dims().to_vec())
    /// })?;
    /// assert_eq!(dims, [[2, 1], [2, 1]]);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// Which axes close to a ring.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let periodic = spmd(2, |ctx| {
    ///     let grid = ctx.cartesian(&[2, 1], &[true, false])?.expect("a place for each rank");
    ///     Ok(grid.periodic().to_vec())
    /// })?;
    /// assert_eq!(periodic, [[true, false], [true, false]]);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn periodic(&self) -> &[bool] {
        &self.periodic
    }

    /// Where this rank is.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let coords = spmd(4, |ctx| {
    ///     let grid = ctx.cartesian(&[2, 2], &[false; 2])?.expect("a place for each rank");
    ///     Ok(grid.coords())
    /// })?;
    /// assert_eq!(coords, [[0, 0], [0, 1], [1, 0], [1, 1]]);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn coords(&self) -> Vec<usize> {
        self.place(self.rank())
    }

    /// Where a rank is.
    ///
    /// Errors: `rank` is outside the communicator.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let coords_of = spmd(4, |ctx| {
    ///     let grid = ctx.cartesian(&[2, 2], &[false; 2])?.expect("a place for each rank");
    ///     assert!(grid.coords_of(4).is_err());
    ///     grid.coords_of(2)
    /// })?;
    /// assert_eq!(coords_of, vec![[1, 0]; 4]);
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn coords_of(&self, rank: usize) -> Result<Vec<usize>> {
        if rank < self.size() {
            return Ok(self.place(rank));
        }
        let last = self.size() - 1;
        let why = format!("rank {rank} is outside the grid, whose ranks are 0 to {last}");
        Err(misuse("coords_of", Location::caller(), &why))
    }

    /// The coordinates of a rank of the grid.
    fn place(&self, mut rank: usize) -> Vec<usize> {
        let mut coords = vec![0; self.dims.len()];
        for (coord, dim) in coords.iter_mut().zip(&self.dims).rev() {
            *coord = rank % dim;
            rank /= dim;
        }
        coords
    }

    /// The rank at these coordinates.
    ///
    /// Errors: there is not one for each axis, or one is not less than its axis' length.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(6, |ctx| {
    ///     let grid = ctx.cartesian(&[2, 3], &[false; 2])?.expect("six places");
    ///     assert_eq!(grid.rank_of(&[1, 1])?, 4);
    ///     assert!(grid.rank_of(&[2, 0]).is_err());
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn rank_of(&self, coords: &[usize]) -> Result<usize> {
        let within = coords.iter().zip(&self.dims).all(|(coord, dim)| coord < dim);
        if coords.len() != self.dims.len() || !within {
            let why = format!("{coords:?} is not a place in a grid of {:?}", self.dims);
            return Err(misuse("rank_of", Location::caller(), &why));
        }
        Ok(coords.iter().zip(&self.dims).fold(0, |rank, (coord, dim)| rank * dim + coord))
    }

    /// The ranks to receive from and to send to when everybody sends `displacement` places along
    /// `axis`: (source, destination). `None` beyond the end of an axis that is not periodic.
    ///
    /// Errors: there is no such axis.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let line = ctx.cartesian(&[3], &[false])?.expect("three places");
    ///     let around = [(None, Some(1)), (Some(0), Some(2)), (Some(1), None)];
    ///     assert_eq!(line.shift(0, 1)?, around[line.rank()]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn shift(
        &self,
        axis: usize,
        displacement: isize,
    ) -> Result<(Option<usize>, Option<usize>)> {
        if axis >= self.dims.len() {
            let why = format!("there is no axis {axis} in a grid of {:?}", self.dims);
            return Err(misuse("shift", Location::caller(), &why));
        }
        let by = displacement as i128;
        Ok((self.along(axis, -by), self.along(axis, by)))
    }

    /// The rank so many places further along an axis.
    fn along(&self, axis: usize, by: i128) -> Option<usize> {
        let dim = self.dims[axis];
        let stride: usize = self.dims[axis + 1..].iter().product();
        let here = self.rank() / stride % dim;
        let there = here as i128 + by;
        let there = match self.periodic[axis] {
            true => there.rem_euclid(dim as i128) as usize,
            false => usize::try_from(there).ok().filter(|there| *there < dim)?,
        };
        Some(self.rank() - here * stride + there * stride)
    }

    /// The ranks one place away: for each axis first the one before, then the one behind, as in
    /// MPI. `None` beyond the end of an axis that is not periodic.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let neighbors = spmd(3, |ctx| {
    ///     let grid = ctx.cartesian(&[3], &[false])?.expect("a place for each rank");
    ///     Ok(grid.neighbors())
    /// })?;
    /// assert_eq!(neighbors, [[None, Some(1)], [Some(0), Some(2)], [Some(1), None]]);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn neighbors(&self) -> Vec<Option<usize>> {
        (0..self.dims.len()).flat_map(|axis| [self.along(axis, -1), self.along(axis, 1)]).collect()
    }
}

/// Divides `size` ranks into a grid with `ndims` axes, as close to equally long as can be, the
/// longest first (MPI 5.0 section 8.5.2).
///
/// ```
/// use spmd::prelude::*;
///
/// assert_eq!(dims_create(12, 2), [4, 3]);
/// assert_eq!(dims_create(7, 2), [7, 1]);
/// assert_eq!(dims_create(64, 3), [4, 4, 4]);
/// ```
///
/// # Panics
/// If `size` or `ndims` is 0.
#[must_use]
pub fn dims_create(size: usize, ndims: usize) -> Vec<usize> {
    assert!(size > 0 && ndims > 0, "a grid of {size} ranks with {ndims} axes");
    let mut factors = Vec::new();
    let (mut rest, mut factor) = (size, 2);
    while factor <= rest / factor {
        if rest % factor == 0 {
            factors.push(factor);
            rest /= factor;
        } else {
            factor += 1;
        }
    }
    if rest > 1 {
        factors.push(rest);
    }
    let mut best = vec![1; ndims];
    best[0] = size;
    factors.reverse();
    balance(&factors, &mut vec![1; ndims], &mut best);
    best
}

/// Tries all ways to put the prime factors on the axes, and keeps the one whose longest axis is
/// shortest, then its next one, and so on.
fn balance(factors: &[usize], dims: &mut Vec<usize>, best: &mut Vec<usize>) {
    let Some((factor, rest)) = factors.split_first() else {
        let mut sorted = dims.clone();
        sorted.sort_unstable_by(|a, b| b.cmp(a));
        if sorted < *best {
            *best = sorted;
        }
        return;
    };
    for axis in 0..dims.len() {
        // Axes of equal length are alike; one that is too long already leads to nothing better.
        if dims[..axis].contains(&dims[axis]) || dims[axis] * factor > best[0] {
            continue;
        }
        dims[axis] *= factor;
        balance(rest, dims, best);
        dims[axis] /= factor;
    }
}
