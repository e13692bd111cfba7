//! A tile of a matrix, and what is done with tiles: kernels of `faer`, each on one core.

use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::cholesky::llt::factor::{cholesky_in_place, cholesky_in_place_scratch};
use faer::linalg::matmul::triangular::{self, BlockStructure};
use faer::linalg::{matmul::matmul, triangular_solve::solve_lower_triangular_in_place};
use faer::{Accum, MatMut, MatRef, Par};
use spmd::prelude::*;

/// A tile, column after column.
#[derive(Clone, Default, PartialEq)]
pub struct Tile {
    pub rows: usize,
    pub values: Vec<f64>,
}

impl Tile {
    /// A tile of so many rows and columns with these values.
    pub fn new([rows, columns]: [usize; 2], value: impl Fn(usize, usize) -> f64) -> Tile {
        let places = (0..columns).flat_map(|j| (0..rows).map(move |i| (i, j)));
        Tile { rows, values: places.map(|(i, j)| value(i, j)).collect() }
    }

    pub fn columns(&self) -> usize {
        self.values.len() / self.rows
    }

    pub fn get(&self) -> MatRef<'_, f64> {
        MatRef::from_column_major_slice(&self.values, self.rows, self.columns())
    }

    pub fn get_mut(&mut self) -> MatMut<'_, f64> {
        let columns = self.columns();
        MatMut::from_column_major_slice_mut(&mut self.values, self.rows, columns)
    }

    /// Becomes the same as another one, in the memory that it has.
    pub fn copy_from(&mut self, other: &Tile) {
        self.rows = other.rows;
        self.values.clone_from(&other.values);
    }
}

/// A becomes L of A = L Lᵀ, in its lower triangle.
pub fn potrf(a: &mut Tile) -> Result<()> {
    let parameters = Default::default();
    let scratch = cholesky_in_place_scratch::<f64>(a.rows, Par::Seq, parameters);
    let (mut memory, regularization) = (MemBuffer::new(scratch), Default::default());
    let stack = MemStack::new(&mut memory);
    cholesky_in_place(a.get_mut(), regularization, Par::Seq, stack, parameters)
        .map(drop)
        .map_err(|error| format!("the matrix is not positive definite: {error}").into())
}

/// A becomes A L⁻ᵀ, where L is the lower triangle of `l`.
pub fn trsm(l: &Tile, a: &mut Tile) -> Result<()> {
    solve_lower_triangular_in_place(l.get(), a.get_mut().transpose_mut(), Par::Seq);
    Ok(())
}

/// C becomes C − A Aᵀ, in its lower triangle.
pub fn syrk(a: &Tile, c: &mut Tile) -> Result<()> {
    use BlockStructure::{Rectangular, TriangularLower};
    let (left, right) = (a.get(), a.get().transpose());
    let c = c.get_mut();
    triangular::matmul(
        c,
        TriangularLower,
        Accum::Add,
        left,
        Rectangular,
        right,
        Rectangular,
        -1.0,
        Par::Seq,
    );
    Ok(())
}

/// C becomes C − A Bᵀ.
pub fn gemm(a: &Tile, b: &Tile, c: &mut Tile) -> Result<()> {
    matmul(c.get_mut(), Accum::Add, a.get(), b.get().transpose(), -1.0, Par::Seq);
    Ok(())
}
