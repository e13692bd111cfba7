//! The factors of a matrix, A = L U, without pivoting, by tasks that use parts of one array.
//!
//!     cargo run --release --example lu [size [width]]
//!
//! Each rank factors a matrix of its own. In each step a task computes a panel of L, so many columns
//! from the diagonal to the bottom, as a whole; others solve for the rows of U to its right, and multiply
//! parts of both into what is left of the matrix. Each names the rows and columns that it reads and
//! writes: these overlap, as the panel of one task is read by others in tiles, and the order follows.
//!
//! What comes out is checked: A x is L (U x).

use std::ops::Range;
use std::time::Instant;

use spmd::prelude::*;
use spmd::tasks::DataMatrix;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default| match arguments.next() {
        Some(text) => text.parse::<usize>().map_err(Error::user),
        None => Ok(default),
    };
    let (size, width) = (number(1024)?, number(64)?);
    if size == 0 || width == 0 {
        return Err("a matrix and its panels have columns".into());
    }
    spmd::run(|ctx| {
        let matrix = random_matrix(size, ctx.rank() as u64);
        let mut factors = matrix.clone();
        let start = Instant::now();
        factor(ctx, &mut factors, size, width)?;
        let took = start.elapsed();
        let error = ctx.allreduce_value(relative_error(&matrix, &factors, size), Max)?;
        if ctx.rank() == 0 {
            println!("{size} × {size} in {took:.1?}: relative error {error:.1e}");
        }
        if error.is_nan() || error >= 1e-12 {
            return Err(format!("the factors are off by {error:e}").into());
        }
        Ok(())
    })?;
    Ok(())
}

/// A matrix becomes L, without the ones on its diagonal, and U.
fn factor(ctx: &Ctx, values: &mut [f64], size: usize, width: usize) -> Result<()> {
    let a = DataMatrix::new(values, size)?;
    let starts = (0..size).step_by(width);
    let blocks: Vec<Range<usize>> = starts.map(|at| at..size.min(at + width)).collect();
    ctx.datadeps(|d| {
        for (k, pivot) in blocks.iter().enumerate() {
            let tile =
                |rows: &Range<usize>, columns: &Range<usize>| a.tile(rows.clone(), columns.clone());
            d.spawn((d.write(a.tile(pivot.start.., pivot.clone())),), factor_panel);
            for columns in &blocks[k + 1..] {
                let (l, u) = (tile(pivot, pivot), tile(pivot, columns));
                d.spawn((d.read(l), d.write(u)), solve);
                for rows in &blocks[k + 1..] {
                    let (l, u) = (d.read(tile(rows, pivot)), d.read(tile(pivot, columns)));
                    d.spawn((l, u, d.write(tile(rows, columns))), multiply);
                }
            }
        }
        Ok(())
    })
}

/// y becomes y − a x.
fn subtract(y: &mut [f64], a: f64, x: &[f64]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y -= a * x;
    }
}

/// The rows of a panel, the upper of which are as many as it has columns, become L and U.
fn factor_panel(mut panel: Vec<&mut [f64]>) -> Result<()> {
    for k in 0..panel[0].len() {
        let (above, below) = panel.split_at_mut(k + 1);
        let pivot = &above[k][k..];
        if pivot[0] == 0.0 {
            return Err("a pivot is 0: the matrix has no such factors".into());
        }
        for row in below {
            row[k] /= pivot[0];
            let factor = row[k];
            subtract(&mut row[k + 1..], factor, &pivot[1..]);
        }
    }
    Ok(())
}

/// Rows become those of U: what they are without what the rows above them give.
fn solve(l: Vec<&[f64]>, mut rows: Vec<&mut [f64]>) -> Result<()> {
    for k in 0..rows.len() {
        let (above, below) = rows.split_at_mut(k + 1);
        for (row, l) in below.iter_mut().zip(&l[k + 1..]) {
            subtract(row, l[k], &*above[k]);
        }
    }
    Ok(())
}

/// C becomes C − L U.
fn multiply(l: Vec<&[f64]>, u: Vec<&[f64]>, c: Vec<&mut [f64]>) -> Result<()> {
    for (row, factors) in c.into_iter().zip(l) {
        for (factor, x) in factors.iter().zip(&u) {
            subtract(row, *factor, x);
        }
    }
    Ok(())
}

/// Random numbers, and a diagonal that makes pivoting needless.
fn random_matrix(size: usize, seed: u64) -> Vec<f64> {
    let mut state = seed + 1;
    let mut random = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    let mut matrix: Vec<f64> = (0..size * size).map(|_| random()).collect();
    matrix.iter_mut().step_by(size + 1).for_each(|x| *x += size as f64);
    matrix
}

/// ‖A x − L (U x)‖ ÷ ‖A x‖ for some x.
fn relative_error(matrix: &[f64], factors: &[f64], size: usize) -> f64 {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let rows = || factors.chunks_exact(size).enumerate();
    let x: Vec<f64> = (0..size).map(|i| (i as f64).cos()).collect();
    let right: Vec<f64> = matrix.chunks_exact(size).map(|row| dot(row, &x)).collect();
    let upper: Vec<f64> = rows().map(|(i, row)| dot(&row[i..], &x[i..])).collect();
    let product = rows().map(|(i, row)| dot(&row[..i], &upper[..i]) + upper[i]);
    let rest: Vec<f64> = product.zip(&right).map(|(product, right)| product - right).collect();
    (dot(&rest, &rest) / dot(&right, &right)).sqrt()
}
