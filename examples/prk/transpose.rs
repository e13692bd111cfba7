//! Parallel Research Kernel transpose: B = B + Aᵀ, then A = A + 1, bound by exchange among all.
//!
//! Arguments: iterations, order n, tile (the number of ranks divides n). Ranks hold blocks of
//! columns, stored one column after another. In turn, each rank gets from every other one the
//! square of its columns that becomes rows here: a block of a matrix is a message as it lies.

mod common;

use common::{Outcome, time};
use spmd::prelude::*;

fn main() -> Result<()> {
    let arguments = [("iterations", 10), ("order", 2000), ("tile", 64)];
    common::run("transpose", arguments, permitted, transpose)
}

fn permitted(ranks: usize, [_, n, _]: [usize; 3]) -> Result<(), String> {
    if n % ranks == 0 {
        Ok(())
    } else {
        Err(format!("the {ranks} ranks must divide the order {n}"))
    }
}

fn transpose(ctx: &Ctx, [iterations, n, tile]: [usize; 3]) -> Result<Option<Outcome>> {
    let (me, ranks) = (ctx.rank(), ctx.size());
    let width = n / ranks;
    let columns = me * width..(me + 1) * width;
    let mut a: Vec<f64> =
        columns.clone().flat_map(|j| (0..n).map(move |i| (n * j + i) as f64)).collect();
    let mut b = vec![0.0; n * width];
    let mut square = vec![0.0; width * width];

    let seconds = time(ctx, iterations, || {
        add_transposed(&mut b[columns.start..], n, &a[columns.start..], n, width, tile);
        for phase in 1..ranks {
            let (to, from) = ((me + phase) % ranks, (me + ranks - phase) % ranks);
            let rows = to * width..(to + 1) * width;
            let theirs = subarray(&a, &[width, n], &[0..width, rows])?;
            ctx.sendrecv(&theirs, to, 0, &mut square, from, 0)?;
            add_transposed(&mut b[from * width..], n, &square, width, width, tile);
        }
        a.iter_mut().for_each(|a| *a += 1.0);
        Ok(())
    })?;

    let passes = (iterations + 1) as f64;
    let added = passes * iterations as f64 / 2.0;
    let mut error = 0.0;
    for (column, j) in b.chunks_exact(n).zip(columns) {
        for (i, b) in column.iter().enumerate() {
            error += (b - ((n * i + j) as f64 * passes + added)).abs();
        }
    }
    let error = ctx.reduce_value(error, Sum, 0)?;
    Ok(error.map(|found| Outcome {
        seconds,
        work: 16.0 * (n * n) as f64,
        unit: "B",
        quantity: "the sum of |B - its exact value|",
        expected: 0.0,
        found,
        tolerance: 1e-8,
    }))
}

/// Adds the transpose of the square `a` (of `width` columns, `a_stride` apart) to `b`, by tiles,
/// so that what is read and what is written both stay in the cache.
fn add_transposed(
    b: &mut [f64],
    b_stride: usize,
    a: &[f64],
    a_stride: usize,
    width: usize,
    tile: usize,
) {
    let tiles = |from: usize| from..(from + tile).min(width);
    for columns in (0..width).step_by(tile).map(tiles) {
        for rows in (0..width).step_by(tile).map(tiles) {
            for j in columns.clone() {
                for i in rows.clone() {
                    b[j * b_stride + i] += a[i * a_stride + j];
                }
            }
        }
    }
}
