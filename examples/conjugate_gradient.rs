//! The Poisson equation −Δu = f on the unit square, u = 0 on its edge, by conjugate gradients.
//!
//!     cargo run --release --example conjugate_gradient [--hidden] [points per side]
//!
//! Every rank owns a block of rows. The matrix is never stored: applying it needs one row of each
//! neighbour (a halo). The two dot products of an iteration are allreduces.
//!
//! With `--hidden` it is solved once more, with the halo on its way while a rank applies the matrix
//! to the rows that need none of it, and told how much time that saves.
//!
//! The known solution is u = x (1 − x) y (1 − y). The five-point formula is exact for it, so the
//! discrete solution is u itself, and the result must agree with it to the solver's precision.

use std::ops::Range;
use std::time::{Duration, Instant};

use spmd::prelude::*;

/// When a rank gets its halo.
#[derive(Clone, Copy)]
enum Exchange {
    /// Before it applies the matrix.
    First,
    /// While it applies it to the rows that need none of it.
    Hidden,
}

fn main() -> Result<()> {
    let (mut n, mut hidden) = (400, false);
    for argument in std::env::args().skip(1) {
        match &argument[..] {
            "--hidden" => hidden = true,
            text => n = text.parse::<usize>().map_err(Error::user)?,
        }
    }
    spmd::run(|ctx| {
        let grid = Grid::new(ctx, n)?;
        let right_side = grid.sample(|x, y| 2.0 * (x * (1.0 - x) + y * (1.0 - y)));
        let exact = grid.sample(|x, y| x * (1.0 - x) * y * (1.0 - y));

        let (solution, iterations, took) = solve(ctx, &grid, &right_side, Exchange::First)?;

        let pairs = solution.iter().zip(&exact);
        let error = pairs.map(|(u, e)| (u - e).abs()).fold(0.0, f64::max);
        let error = ctx.allreduce_value(error, Max)?;
        if ctx.rank() == 0 {
            println!("{n} × {n} unknowns: {iterations} iterations, largest error {error:.1e}");
        }
        // The solution's largest value is 1/16.
        if error >= 1e-9 {
            return Err(format!("the solution is off by {error:e}").into());
        }
        if hidden {
            let (same, _, less) = solve(ctx, &grid, &right_side, Exchange::Hidden)?;
            if same != solution {
                return Err("with a hidden halo the solution is another one".into());
            }
            if ctx.rank() == 0 {
                let saved = 100.0 * (1.0 - less.as_secs_f64() / took.as_secs_f64());
                println!("{less:.2?} with a hidden halo, {took:.2?} without: saves {saved:.0} %");
            }
        }
        Ok(())
    })?;
    Ok(())
}

/// Solves A u = b to a residual of 10⁻¹² of b's norm; also gives the number of iterations, and how
/// long they took.
fn solve(
    comm: &Comm,
    grid: &Grid,
    b: &[f64],
    exchange: Exchange,
) -> Result<(Vec<f64>, usize, Duration)> {
    comm.barrier()?;
    let start = Instant::now();
    let mut solution = vec![0.0; b.len()];
    let mut residual = b.to_vec();
    let mut product = vec![0.0; b.len()];
    let mut direction = grid.with_halo(b);
    let mut square = dot(comm, b, b)?;
    let goal = 1e-24 * square;
    for iteration in 0..10 * grid.n {
        // The square is the same to the last bit on all ranks, so they all stop together.
        if square <= goal {
            return Ok((solution, iteration, start.elapsed()));
        }
        grid.apply(comm, exchange, &mut direction, &mut product)?;
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

    /// Applies the five-point formula of −Δ to a field, having filled its halo rows with the edge
    /// rows of the neighbours.
    fn apply(
        &self,
        comm: &Comm,
        exchange: Exchange,
        field: &mut [f64],
        product: &mut [f64],
    ) -> Result<()> {
        let n = self.n;
        let (above, rest) = field.split_at_mut(n);
        let (own, below) = rest.split_at_mut(product.len());
        let own = &*own;
        let upward = self.above.map(|rank| (rank, &own[..n], &mut *above));
        let downward = self.below.map(|rank| (rank, &own[own.len() - n..], &mut *below));
        // Even ranks start downward and odd ones upward, so that neighbours meet in pairs: two
        // steps for all ranks, where one order for all would be a chain of them.
        let even = comm.rank().is_multiple_of(2);
        let edges = if even { [downward, upward] } else { [upward, downward] };
        match exchange {
            Exchange::First => {
                for (neighbour, edge, halo) in edges.into_iter().flatten() {
                    comm.sendrecv(edge, neighbour, 0, halo, neighbour, 0)?;
                }
                self.apply_inside(own, product);
            }
            // The scope does not end before the halo is there.
            Exchange::Hidden => comm.requests(|requests| {
                for (neighbour, edge, halo) in edges.into_iter().flatten() {
                    requests.irecv(halo, neighbour, 0)?;
                    requests.isend(edge, neighbour, 0)?;
                }
                self.apply_inside(own, product);
                Ok(())
            })?,
        }
        let last = self.rows.len() - 1;
        let row = |i: usize| &own[i * n..][..n];
        let second = if last > 0 { row(1) } else { &*below };
        self.apply_to_row([above, row(0), second], &mut product[..n]);
        if last > 0 {
            self.apply_to_row([row(last - 1), row(last), below], &mut product[last * n..]);
        }
        Ok(())
    }

    /// Does so for the rows that need no halo. A function by itself, so that the compiler knows
    /// that its slices do not overlap: within a closure it does not.
    #[inline(never)]
    fn apply_inside(&self, own: &[f64], product: &mut [f64]) {
        let n = self.n;
        for i in 1..self.rows.len() - 1 {
            let around = [i - 1, i, i + 1].map(|row| &own[row * n..][..n]);
            self.apply_to_row(around, &mut product[i * n..][..n]);
        }
    }

    /// Does so for a row, with spacing 1 / (n + 1).
    fn apply_to_row(&self, [above, here, below]: [&[f64]; 3], product: &mut [f64]) {
        let n = self.n;
        let scale = ((n + 1) * (n + 1)) as f64;
        for j in 0..n {
            let left = if j > 0 { here[j - 1] } else { 0.0 };
            let right = if j + 1 < n { here[j + 1] } else { 0.0 };
            product[j] = scale * (4.0 * here[j] - above[j] - below[j] - left - right);
        }
    }
}
