//! Parallel Research Kernel sparse: y = y + A x with a sparse A, bound by irregular reads.
//!
//! Arguments: iterations, lsize, radius (the number of ranks divides 2^lsize, in which a diameter
//! of the star fits). A has a row for each point of a periodic 2^lsize × 2^lsize grid and entries
//! for the star of points around it; columns are renumbered by reversing their bits, and the entry
//! in column c is 1/(c + 1). Ranks hold blocks of rows; each pass adds i + 1 to x(i) and gathers
//! x from all.

mod common;

use common::{Outcome, time};
use spmd::prelude::*;

/// Column numbers take up to 32 bits.
const LARGEST: usize = 16;

fn main() -> Result<()> {
    let arguments = [("iterations", 10), ("lsize", 10), ("radius", 4)];
    common::run("sparse", arguments, permitted, sparse)
}

fn permitted(ranks: usize, [_, lsize, radius]: [usize; 3]) -> Result<(), String> {
    if lsize > LARGEST {
        return Err(format!("lsize {lsize} is more than {LARGEST}"));
    }
    let side = 1 << lsize;
    if side % ranks != 0 {
        return Err(format!("the {ranks} ranks must divide 2^lsize = {side}"));
    }
    if radius >= side || 2 * radius + 1 > side {
        return Err(format!("a star of radius {radius} must fit into 2^lsize = {side} points"));
    }
    Ok(())
}

fn sparse(ctx: &Ctx, [iterations, lsize, radius]: [usize; 3]) -> Result<Option<Outcome>> {
    let order = 1 << (2 * lsize);
    let mine = order / ctx.size();
    let first = ctx.rank() * mine;
    let per_row = 4 * radius + 1;
    let columns: Vec<u32> =
        (first..first + mine).flat_map(|row| columns_of(row, lsize, radius)).collect();
    let entries: Vec<f64> = columns.iter().map(|column| 1.0 / (f64::from(*column) + 1.0)).collect();
    let mut part_of_x = vec![0.0; mine];
    let mut x = vec![0.0; order];
    let mut y = vec![0.0; mine];

    let seconds = time(ctx, iterations, || {
        for (i, x) in part_of_x.iter_mut().enumerate() {
            *x += (first + i + 1) as f64;
        }
        ctx.allgather(&part_of_x, &mut x)?;
        let rows = columns.chunks_exact(per_row).zip(entries.chunks_exact(per_row));
        for (y, (columns, entries)) in y.iter_mut().zip(rows) {
            let products = columns.iter().zip(entries).map(|(c, entry)| entry * x[*c as usize]);
            *y += products.sum::<f64>();
        }
        Ok(())
    })?;

    let sum = y.iter().map(|y| y.abs()).sum::<f64>();
    let sum = ctx.reduce_value(sum, Sum, 0)?;
    let nonzeros = (order * per_row) as f64;
    Ok(sum.map(|found| Outcome {
        seconds,
        work: 2.0 * nonzeros,
        unit: "flop",
        quantity: "the sum of |y|",
        expected: 0.5 * nonzeros * (iterations + 1) as f64 * (iterations + 2) as f64,
        found,
        tolerance: 1e-8,
    }))
}

/// The renumbered columns of a row's star, in increasing order.
fn columns_of(row: usize, lsize: usize, radius: usize) -> Vec<u32> {
    let side = 1 << lsize;
    let (i, j) = (row % side, row / side);
    let renumbered = |i: usize, j: usize| {
        let index = (i % side + side * (j % side)) as u32;
        index.reverse_bits() >> (u32::BITS as usize - 2 * lsize)
    };
    let mut columns = vec![renumbered(i, j)];
    for k in 1..=radius {
        columns.extend([
            renumbered(i + k, j),
            renumbered(i + side - k, j),
            renumbered(i, j + k),
            renumbered(i, j + side - k),
        ]);
    }
    columns.sort_unstable();
    columns
}
