//! Parallel Research Kernel p2p: a wavefront in a pipeline of ranks, bound by message latency.
//!
//! Arguments: iterations, m, n (m larger than the number of ranks). On an m × n grid, with ranks
//! holding blocks of its first index, each pass computes
//! g(i, j) = g(i−1, j) + g(i, j−1) − g(i−1, j−1) line by line: a rank needs one value of its left
//! neighbour for each line, so that the ranks work on different lines at the same time. The last
//! rank then sends −g(m−1, n−1) to the first, where it becomes g(0, 0).

mod common;

use common::{Outcome, share, time};
use spmd::prelude::*;

const VALUE: u32 = 1;
const CORNER: u32 = 2;

fn main() -> Result<()> {
    common::run("p2p", [("iterations", 10), ("m", 1000), ("n", 100)], permitted, p2p)
}

fn permitted(ranks: usize, [_, m, n]: [usize; 3]) -> Result<(), String> {
    if m <= ranks {
        return Err(format!("m = {m} must be more than the {ranks} ranks"));
    }
    if n < 2 { Err("n must be at least 2".into()) } else { Ok(()) }
}

fn p2p(ctx: &Ctx, [iterations, m, n]: [usize; 3]) -> Result<Option<Outcome>> {
    let (me, last) = (ctx.rank(), ctx.size() - 1);
    let mine = share(m, ctx.size(), me);
    // The left neighbour's last i comes first; on rank 0, the edge i = 0.
    let first = mine.start.saturating_sub(1);
    let width = mine.end - first;
    let mut lines = vec![0.0; n * width];
    for (i, value) in lines[..width].iter_mut().enumerate() {
        *value = (first + i) as f64;
    }
    if me == 0 {
        for (j, line) in lines.chunks_exact_mut(width).enumerate() {
            line[0] = j as f64;
        }
    }

    let seconds = time(ctx, iterations, || {
        for j in 1..n {
            let (above, line) = lines[(j - 1) * width..(j + 1) * width].split_at_mut(width);
            if me > 0 {
                ctx.recv(&mut line[..1], me - 1, VALUE)?;
            }
            let mut left = line[0];
            for (value, above) in line[1..].iter_mut().zip(above.windows(2)) {
                left += above[1] - above[0];
                *value = left;
            }
            if me < last {
                ctx.send(&line[width - 1..], me + 1, VALUE)?;
            }
        }
        if me == last {
            ctx.send(&[-lines[n * width - 1]], 0, CORNER)?;
        }
        if me == 0 {
            ctx.recv(&mut lines[..1], last, CORNER)?;
        }
        Ok(())
    })?;

    let corner = ctx.broadcast_value((me == last).then_some(lines[n * width - 1]), last)?;
    let expected = (iterations + 1) as f64 * (m + n - 2) as f64;
    Ok((me == 0).then_some(Outcome {
        seconds,
        work: 2.0 * (m - 1) as f64 * (n - 1) as f64,
        unit: "flop",
        quantity: "the corner g(m-1, n-1)",
        expected,
        found: corner,
        tolerance: 1e-8 * expected,
    }))
}
