//! Parallel Research Kernel dgemm: C = C + A B by SUMMA, bound by arithmetic.
//!
//! Arguments: iterations, order n, block nb. The matrices lie in blocks on a grid of ranks. For
//! every nb columns of A and rows of B, the ranks that hold them broadcast their parts, A's along
//! the rows of the grid and B's along its columns, and everybody adds the product to its block of
//! C (van de Geijn and Watts, SUMMA, 1997).

mod common;

use common::{Outcome, share, time};
use spmd::prelude::*;

fn main() -> Result<()> {
    common::run("dgemm", [("iterations", 10), ("order", 500), ("block", 32)], permitted, dgemm)
}

fn permitted(ranks: usize, [_, n, _]: [usize; 3]) -> Result<(), String> {
    let dims = dims_create(ranks, 2);
    if n < dims[0] {
        return Err(format!("the order {n} is less than a side of the {dims:?} ranks"));
    }
    Ok(())
}

fn dgemm(ctx: &Ctx, [iterations, n, block]: [usize; 3]) -> Result<Option<Outcome>> {
    let dims = dims_create(ctx.size(), 2);
    let grid = ctx.cartesian(&dims, &[false, false])?.expect("the grid holds all ranks");
    let (my_row, my_column) = (grid.coords()[0], grid.coords()[1]);
    let along_row = grid.split(Some(my_row as u32), 0)?.expect("all have a color");
    let along_column = grid.split(Some(my_column as u32), 0)?.expect("all have a color");

    let rows = share(n, dims[0], my_row);
    let columns = share(n, dims[1], my_column);
    let (height, width) = (rows.len(), columns.len());
    // A(i, j) = B(i, j) = j, row after row.
    let mut a: Vec<f64> = rows.clone().flat_map(|_| columns.clone().map(|j| j as f64)).collect();
    let mut b = a.clone();
    let mut c = vec![0.0; height * width];
    let mut panel_of_a = vec![0.0; height * block.min(n)];
    let mut panel_of_b = vec![0.0; block.min(n) * width];

    let seconds = time(ctx, iterations, || {
        let mut k = 0;
        while k < n {
            // A panel ends where its owners do.
            let (column, a_end) = owner(n, dims[1], k);
            let (row, b_end) = owner(n, dims[0], k);
            let depth = block.min(a_end - k).min(b_end - k);
            let (left, stride) = if column == my_column {
                let start = k - columns.start;
                along_row
                    .broadcast(&mut strided_mut(&mut a[start..], height, depth, width)?, column)?;
                (&a[start..], width)
            } else {
                along_row.broadcast(&mut panel_of_a[..height * depth], column)?;
                (&panel_of_a[..], depth)
            };
            let right = if row == my_row {
                let start = (k - rows.start) * width;
                &mut b[start..start + depth * width]
            } else {
                &mut panel_of_b[..depth * width]
            };
            along_column.broadcast(right, row)?;
            add_product(&mut c, left, stride, right, width);
            k += depth;
        }
        Ok(())
    })?;

    let sum = ctx.reduce_value(c.iter().sum::<f64>(), Sum, 0)?;
    let order = n as f64;
    let expected = 0.25 * order.powi(3) * (order - 1.0).powi(2) * (iterations + 1) as f64;
    Ok(sum.map(|found| Outcome {
        seconds,
        work: 2.0 * order.powi(3),
        unit: "flop",
        quantity: "the sum of C",
        expected,
        found,
        tolerance: 1e-5 * expected,
    }))
}

/// Which of `ranks` holds index `k` of `n`, and where its share ends.
fn owner(n: usize, ranks: usize, k: usize) -> (usize, usize) {
    let shares = (0..ranks).map(|rank| share(n, ranks, rank)).enumerate();
    let mut holders = shares.filter(|(_, share)| share.contains(&k));
    holders.next().map(|(rank, share)| (rank, share.end)).expect("an index below n has an owner")
}

/// Adds `left` (rows `stride` apart) times `right` (rows of `width`) to `c` (rows of `width`).
fn add_product(c: &mut [f64], left: &[f64], stride: usize, right: &[f64], width: usize) {
    for (c, left) in c.chunks_exact_mut(width).zip(left.chunks(stride)) {
        for (right, factor) in right.chunks_exact(width).zip(left) {
            for (c, right) in c.iter_mut().zip(right) {
                *c += factor * right;
            }
        }
    }
}
