//! The same by kernels of `faer`.

use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::cholesky::llt::factor::{cholesky_in_place, cholesky_in_place_scratch};
use faer::linalg::matmul::triangular::{self, BlockStructure};
use faer::linalg::{matmul::matmul, triangular_solve::solve_lower_triangular_in_place};
use faer::{Accum, MatMut, MatRef, Par};
use spmd::prelude::*;

use crate::tile::Tile;

fn of(tile: &Tile) -> MatRef<'_, f64> {
    MatRef::from_column_major_slice(&tile.values, tile.rows, tile.columns())
}

fn of_mut(tile: &mut Tile) -> MatMut<'_, f64> {
    let (rows, columns) = (tile.rows, tile.columns());
    MatMut::from_column_major_slice_mut(&mut tile.values, rows, columns)
}

/// A becomes L of A = L Lᵀ, in its lower triangle.
pub fn potrf(a: &mut Tile) -> Result<()> {
    let parameters = Default::default();
    let scratch = cholesky_in_place_scratch::<f64>(a.rows, Par::Seq, parameters);
    let (mut memory, regularization) = (MemBuffer::new(scratch), Default::default());
    let stack = MemStack::new(&mut memory);
    cholesky_in_place(of_mut(a), regularization, Par::Seq, stack, parameters)
        .map(drop)
        .map_err(|error| format!("the matrix is not positive definite: {error}").into())
}

/// A becomes A L⁻ᵀ, where L is the lower triangle of `l`.
pub fn trsm(l: &Tile, a: &mut Tile) -> Result<()> {
    solve_lower_triangular_in_place(of(l), of_mut(a).transpose_mut(), Par::Seq);
    Ok(())
}

/// C becomes C − A Aᵀ, in its lower triangle.
pub fn syrk(a: &Tile, c: &mut Tile) -> Result<()> {
    use BlockStructure::{Rectangular, TriangularLower};
    let (left, right) = (of(a), of(a).transpose());
    let c = of_mut(c);
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
    matmul(of_mut(c), Accum::Add, of(a), of(b).transpose(), -1.0, Par::Seq);
    Ok(())
}
