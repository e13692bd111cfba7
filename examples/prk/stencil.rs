//! Parallel Research Kernel stencil: a star-shaped stencil on a grid, bound by memory and halos.
//!
//! Arguments: iterations, n. The n × n grid lies in blocks on a Cartesian grid of ranks. Each pass
//! fetches a halo of two lines from each of four neighbours (columns as they lie, without packing
//! by hand), adds the weighted neighbourhood of each inner point to `out`, and adds 1 to `input`.

mod common;

use std::ops::Range;

use common::{Outcome, share, time};
use spmd::prelude::*;

/// The arms of the star have this length.
const RADIUS: usize = 2;

fn main() -> Result<()> {
    common::run("stencil", [("iterations", 10), ("n", 1000)], permitted, stencil)
}

fn permitted(ranks: usize, [_, n]: [usize; 2]) -> Result<(), String> {
    let longest = dims_create(ranks, 2)[0];
    if n <= 2 * RADIUS {
        return Err(format!("n = {n} must be more than {}", 2 * RADIUS));
    }
    if longest > 1 && n / longest < RADIUS {
        return Err(format!("n = {n} leaves less than {RADIUS} lines to some of {ranks} ranks"));
    }
    Ok(())
}

fn stencil(ctx: &Ctx, [iterations, n]: [usize; 2]) -> Result<Option<Outcome>> {
    let dims = dims_create(ctx.size(), 2);
    let grid = ctx.cartesian(&dims, &[false, false])?.expect("the grid holds all ranks");
    let at = grid.coords();
    let mut block = Block::new(share(n, dims[0], at[0]), share(n, dims[1], at[1]), n);

    let seconds = time(ctx, iterations, || {
        block.exchange_halos(&grid)?;
        block.apply();
        block.input.iter_mut().for_each(|value| *value += 1.0);
        Ok(())
    })?;

    let inner = ((n - 2 * RADIUS) * (n - 2 * RADIUS)) as f64;
    let norm = block.out.iter().map(|out| out.abs()).sum::<f64>() / inner;
    let norm = ctx.reduce_value(norm, Sum, 0)?;
    Ok(norm.map(|found| Outcome {
        seconds,
        work: (2 * (4 * RADIUS + 1) + 1) as f64 * inner,
        unit: "flop",
        quantity: "the mean of |out|",
        expected: 2.0 * (iterations + 1) as f64,
        found,
        tolerance: 1e-8,
    }))
}

/// A rank's part of the grid, row after row.
struct Block {
    /// With `RADIUS` lines of halo around.
    input: Vec<f64>,
    /// Without a halo.
    out: Vec<f64>,
    /// Rows and columns, without the halo.
    shape: [usize; 2],
    /// Those to which the stencil applies, not being at the edge of the whole grid.
    inner: [Range<usize>; 2],
}

impl Block {
    fn new(rows: Range<usize>, columns: Range<usize>, n: usize) -> Block {
        let (height, width) = (rows.len(), columns.len());
        let stride = width + 2 * RADIUS;
        let mut input = vec![0.0; (height + 2 * RADIUS) * stride];
        for (row, i) in rows.clone().enumerate() {
            let line = &mut input[(row + RADIUS) * stride + RADIUS..][..width];
            for (value, j) in line.iter_mut().zip(columns.clone()) {
                *value = (i + j) as f64;
            }
        }
        let inner = [rows, columns].map(|range| {
            let (first, last) = (range.start.max(RADIUS), range.end.min(n - RADIUS));
            first - range.start..last.max(first) - range.start
        });
        Block { input, out: vec![0.0; height * width], shape: [height, width], inner }
    }

    /// Sends the lines next to each side to the neighbour there, for its halo.
    fn exchange_halos(&mut self, grid: &Cartesian) -> Result<()> {
        for axis in 0..2 {
            let lines = self.shape[axis];
            let (before, after) = grid.shift(axis, 1)?;
            self.pass_on(grid, axis, lines..lines + RADIUS, after, 0..RADIUS, before)?;
            let far = lines + RADIUS..lines + 2 * RADIUS;
            self.pass_on(grid, axis, RADIUS..2 * RADIUS, before, far, after)?;
        }
        Ok(())
    }

    /// Sends the lines `from` across `axis` to the rank `to`, and receives the lines `into` from
    /// the rank `source`, where there are such ranks.
    fn pass_on(
        &mut self,
        grid: &Cartesian,
        axis: usize,
        from: Range<usize>,
        to: Option<usize>,
        into: Range<usize>,
        source: Option<usize>,
    ) -> Result<()> {
        let shape = self.shape.map(|lines| lines + 2 * RADIUS);
        let other = RADIUS..RADIUS + self.shape[1 - axis];
        let cluster =
            |lines| if axis == 0 { [lines, other.clone()] } else { [other.clone(), lines] };
        let (from, into) = (cluster(from), cluster(into));
        // Neighbours take turns, so that the lines move at once everywhere.
        let sends_first = grid.coords()[axis].is_multiple_of(2);
        for sends in [sends_first, !sends_first] {
            match (sends, to, source) {
                (true, Some(to), _) => {
                    grid.send(&subarray(&self.input, &shape, &from)?, to, 0)?;
                }
                (false, _, Some(source)) => {
                    grid.recv(&mut subarray_mut(&mut self.input, &shape, &into)?, source, 0)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// out += W input: at distance k on each axis, the weight is 1 / (2 k RADIUS) ahead and its
    /// negative behind.
    fn apply(&mut self) {
        let [_, width] = self.shape;
        let stride = width + 2 * RADIUS;
        let [rows, columns] = self.inner.clone();
        for row in rows {
            let out = &mut self.out[row * width..][columns.clone()];
            let reach = columns.len() + 2 * RADIUS;
            let line = |row: usize| &self.input[row * stride + columns.start..][..reach];
            for k in 1..=RADIUS {
                let weight = 1.0 / (2 * k * RADIUS) as f64;
                let centre = line(row + RADIUS);
                let (behind, ahead) = (line(row + RADIUS - k), line(row + RADIUS + k));
                let vertical = ahead[RADIUS..].iter().zip(&behind[RADIUS..]);
                let horizontal = centre[RADIUS + k..].iter().zip(&centre[RADIUS - k..]);
                for ((out, (below, above)), (right, left)) in
                    out.iter_mut().zip(vertical).zip(horizontal)
                {
                    *out += weight * (below - above + right - left);
                }
            }
        }
    }
}
