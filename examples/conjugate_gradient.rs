//! The Poisson equation −Δu = f on the unit square, u = 0 on its edge, by conjugate gradients.
//!
//!     cargo run --release --example conjugate_gradient [points per side]
//!
//! Every rank owns a block of rows. The matrix is never stored: applying it needs one row of each
//! neighbour (a halo). The two dot products of an iteration are allreduces.
//!
//! The known solution is u = x (1 − x) y (1 − y). The five-point formula is exact for it, so the
//! discrete solution is u itself, and the result must agree with it to the solver's precision.

use std::ops::Range;

use spmd::prelude::*;

fn main() -> Result<()> {
    let n = match std::env::args().nth(1) {
        Some(text) => text.parse::<usize>().map_err(Error::user)?,
        None => 400,
    };
    spmd::run(|ctx| {
        let grid = Grid::new(ctx, n)?;
        let right_side = grid.sample(|x, y| 2.0 * (x * (1.0 - x) + y * (1.0 - y)));
        let exact = grid.sample(|x, y| x * (1.0 - x) * y * (1.0 - y));

        let (solution, iterations) = solve(ctx, &grid, &right_side)?;

        let pairs = solution.iter().zip(&exact);
        let error = pairs.map(|(u, e)| (u - e).abs()).fold(0.0, f64::max);
        let error = ctx.allreduce_value(error, Max)?;
        if ctx.rank() == 0 {
            println!("{n} × {n} unknowns: {iterations} iterations, largest error {error:.1e}");
        }
        // The solution's largest value is 1/16.
        if error < 1e-9 { Ok(()) } else { Err(format!("the solution is off by {error:e}").into()) }
    })?;
    Ok(())
}

/// Solves A u = b to a residual of 10⁻¹² of b's norm; also gives the number of iterations.
fn solve(comm: &Comm, grid: &Grid, b: &[f64]) -> Result<(Vec<f64>, usize)> {
    let mut solution = vec![0.0; b.len()];
    let mut residual = b.to_vec();
    let mut product = vec![0.0; b.len()];
    let mut direction = grid.with_halo(b);
    let mut square = dot(comm, b, b)?;
    let goal = 1e-24 * square;
    for iteration in 0..10 * grid.n {
        // The square is the same to the last bit on all ranks, so they all stop together.
        if square <= goal {
            return Ok((solution, iteration));
        }
        grid.exchange_halo(comm, &mut direction)?;
        grid.apply(&direction, &mut product);
        let own = grid.own(&direction);
        let step = square / dot(comm, own, &product)?;
        for i in 0..own.len() {
            solution[i] += step * own[i];
            residual[i] -= step * product[i];
        }
        let next = dot(comm, &residual, &residual)?;
        for (d, r) in grid.own_mut(&mut direction).iter_mut().zip(&residual) {
            *d = r + next / square * *d;
        }
        square = next;
    }
    Err(format!("no convergence: the square of the residual is {square:e}, not {goal:e}").into())
}

fn dot(comm: &Comm, a: &[f64], b: &[f64]) -> Result<f64> {
    let mine: f64 = a.iter().zip(b).map(|(a, b)| a * b).sum();
    comm.allreduce_value(mine, Sum)
}

/// This rank's rows of the n × n inner points of the square. Fields are row-major; a field with
/// halo has one row more on each side, and those beyond the edge of the square stay 0.
struct Grid {
    n: usize,
    rows: Range<usize>,
    above: Option<usize>,
    below: Option<usize>,
}

impl Grid {
    fn new(comm: &Comm, n: usize) -> Result<Grid> {
        let (rank, size) = (comm.rank(), comm.size());
        if n < size {
            return Err(format!("{n} rows are not enough for {size} ranks").into());
        }
        let rows = rank * n / size..(rank + 1) * n / size;
        let above = rank.checked_sub(1);
        let below = Some(rank + 1).filter(|below| *below < size);
        Ok(Grid { n, rows, above, below })
    }

    fn sample(&self, f: impl Fn(f64, f64) -> f64) -> Vec<f64> {
        let place = |i: usize| (i + 1) as f64 / (self.n + 1) as f64;
        let points = self.rows.clone().flat_map(|i| (0..self.n).map(move |j| (i, j)));
        points.map(|(i, j)| f(place(j), place(i))).collect()
    }

    fn with_halo(&self, own: &[f64]) -> Vec<f64> {
        let row = vec![0.0; self.n];
        [&row, own, &row].concat()
    }

    fn own<'a>(&self, field: &'a [f64]) -> &'a [f64] {
        &field[self.n..field.len() - self.n]
    }

    fn own_mut<'a>(&self, field: &'a mut [f64]) -> &'a mut [f64] {
        let end = field.len() - self.n;
        &mut field[self.n..end]
    }

    /// Fills the halo rows with the edge rows of the neighbours.
    fn exchange_halo(&self, comm: &Comm, field: &mut [f64]) -> Result<()> {
        let (n, rows) = (self.n, self.rows.len());
        let (upper_halo, rest) = field.split_at_mut(n);
        let (own, lower_halo) = rest.split_at_mut(rows * n);
        let mut upward = self.above.map(|rank| (rank, &own[..n], upper_halo));
        let mut downward = self.below.map(|rank| (rank, &own[own.len() - n..], lower_halo));
        // Even ranks start downward and odd ones upward, so that neighbours meet in pairs: two
        // steps for all ranks, where one order for all would be a chain of them.
        if comm.rank().is_multiple_of(2) {
            std::mem::swap(&mut upward, &mut downward);
        }
        for (neighbour, edge, halo) in [upward, downward].into_iter().flatten() {
            comm.sendrecv(edge, neighbour, 0, halo, neighbour, 0)?;
        }
        Ok(())
    }

    /// The five-point formula of −Δ, with spacing 1 / (n + 1).
    fn apply(&self, field: &[f64], product: &mut [f64]) {
        let n = self.n;
        let scale = ((n + 1) * (n + 1)) as f64;
        for (i, out) in product.chunks_exact_mut(n).enumerate() {
            let [above, here, below] = [i, i + 1, i + 2].map(|row| &field[row * n..][..n]);
            for j in 0..n {
                let left = if j > 0 { here[j - 1] } else { 0.0 };
                let right = if j + 1 < n { here[j + 1] } else { 0.0 };
                out[j] = scale * (4.0 * here[j] - above[j] - below[j] - left - right);
            }
        }
    }
}
