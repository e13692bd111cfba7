//! Parallel Research Kernel nstream: a = a + b + 3 c on long vectors, bound by memory bandwidth.
//!
//! Arguments: iterations, length of each vector over all ranks. No rank needs another's data: what
//! is measured is how ranks share the memory of a machine.

mod common;

use common::{Outcome, share, time};
use spmd::prelude::*;

const SCALAR: f64 = 3.0;

fn main() -> Result<()> {
    common::run("nstream", [("iterations", 10), ("length", 2_000_000)], |_, _| Ok(()), nstream)
}

fn nstream(ctx: &Ctx, [iterations, length]: [usize; 2]) -> Result<Option<Outcome>> {
    let mine = share(length, ctx.size(), ctx.rank()).len();
    let mut a = vec![0.0; mine];
    let b = vec![2.0; mine];
    let c = vec![2.0; mine];

    let seconds = time(ctx, iterations, || {
        for ((a, b), c) in a.iter_mut().zip(&b).zip(&c) {
            *a += b + SCALAR * c;
        }
        Ok(())
    })?;

    let sum = a.iter().map(|a| a.abs()).sum::<f64>();
    let sum = ctx.reduce_value(sum, Sum, 0)?;
    let expected = 8.0 * (iterations + 1) as f64 * length as f64;
    Ok(sum.map(|found| Outcome {
        seconds,
        work: 32.0 * length as f64,
        unit: "B",
        quantity: "the sum of |a|",
        expected,
        found,
        tolerance: 1e-8 * expected,
    }))
}
