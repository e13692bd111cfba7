//! What is done with tiles, each on one core. Most of it is products of blocks, which `ndarray` multiplies.

use ndarray::linalg::general_mat_mul;
use ndarray::{ArrayView2, ArrayViewMut2, Axis, ShapeBuilder, s};
use spmd::prelude::*;

use crate::tile::Tile;

fn of_mut(tile: &mut Tile) -> ArrayViewMut2<'_, f64> {
    let shape = (tile.rows, tile.columns()).f();
    ArrayViewMut2::from_shape(shape, &mut tile.values).expect("columns are whole")
}

/// A becomes L of A = L Lᵀ, in its lower triangle.
pub fn potrf(a: &mut Tile) -> Result<()> {
    factor(of_mut(a))
}

/// A becomes A L⁻ᵀ, where L is the lower triangle of `l`.
pub fn trsm(l: &Tile, a: &mut Tile) -> Result<()> {
    solve(l.get(), of_mut(a));
    Ok(())
}

/// C becomes C − A Aᵀ, in its lower triangle.
pub fn syrk(a: &Tile, c: &mut Tile) -> Result<()> {
    subtract_square(a.get(), of_mut(c));
    Ok(())
}

/// C becomes C − A Bᵀ.
pub fn gemm(a: &Tile, b: &Tile, c: &mut Tile) -> Result<()> {
    general_mat_mul(-1.0, &a.get(), &b.get().t(), 1.0, &mut of_mut(c));
    Ok(())
}

/// Blocks of so many columns are not cut further.
const SMALL: usize = 16;

/// A lower triangle is a triangle above left, one below right, and a block below the first one.
fn factor(mut a: ArrayViewMut2<f64>) -> Result<()> {
    let n = a.ncols();
    if n > SMALL {
        let (above, below) = a.split_at(Axis(0), n / 2);
        let (mut first, (mut block, mut last)) =
            (above.slice_move(s![.., ..n / 2]), below.split_at(Axis(1), n / 2));
        factor(first.view_mut())?;
        solve(first.view(), block.view_mut());
        subtract_square(block.view(), last.view_mut());
        return factor(last);
    }
    for k in 0..n {
        let pivot = a[(k, k)];
        if pivot.is_nan() || pivot <= 0.0 {
            return Err("the matrix is not positive definite".into());
        }
        let (mut done, mut rest) = a.view_mut().split_at(Axis(1), k + 1);
        let mut column = done.slice_mut(s![k.., k]);
        column /= pivot.sqrt();
        for j in k + 1..n {
            rest.slice_mut(s![j.., j - k - 1])
                .scaled_add(-column[j - k], &column.slice(s![j - k..]));
        }
    }
    Ok(())
}

fn solve(l: ArrayView2<f64>, mut a: ArrayViewMut2<f64>) {
    let n = a.ncols();
    if n > SMALL {
        let (mut first, mut last) = a.split_at(Axis(1), n / 2);
        solve(l.slice(s![..n / 2, ..n / 2]), first.view_mut());
        general_mat_mul(-1.0, &first, &l.slice(s![n / 2.., ..n / 2]).t(), 1.0, &mut last);
        return solve(l.slice(s![n / 2.., n / 2..]), last);
    }
    for k in 0..n {
        let (mut done, mut rest) = a.view_mut().split_at(Axis(1), k + 1);
        let mut column = done.column_mut(k);
        column /= l[(k, k)];
        for j in k + 1..n {
            rest.column_mut(j - k - 1).scaled_add(-l[(j, k)], &column);
        }
    }
}

/// In the lower triangle, and some of what is above it.
fn subtract_square(a: ArrayView2<f64>, mut c: ArrayViewMut2<f64>) {
    let n = c.ncols();
    if n > 2 * SMALL {
        let (above, below) = c.split_at(Axis(0), n / 2);
        let (first, (mut block, last)) =
            (above.slice_move(s![.., ..n / 2]), below.split_at(Axis(1), n / 2));
        let (upper, lower) = a.split_at(Axis(0), n / 2);
        subtract_square(upper, first);
        general_mat_mul(-1.0, &lower, &upper.t(), 1.0, &mut block);
        return subtract_square(lower, last);
    }
    general_mat_mul(-1.0, &a, &a.t(), 1.0, &mut c);
}
