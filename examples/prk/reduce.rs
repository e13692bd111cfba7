//! Parallel Research Kernel reduce: the sum of long vectors on rank 0, in place.
//!
//! Arguments: iterations, length of each rank's vector. Each pass adds 1 to every element, then
//! reduces the vectors into that of rank 0; the others keep theirs.

mod common;

use common::{Outcome, time};
use spmd::prelude::*;

fn main() -> Result<()> {
    common::run("reduce", [("iterations", 10), ("length", 2_000_000)], |_, _| Ok(()), reduce)
}

fn reduce(ctx: &Ctx, [iterations, length]: [usize; 2]) -> Result<Option<Outcome>> {
    let mut vector = vec![1.0; length];

    let seconds = time(ctx, iterations, || {
        vector.iter_mut().for_each(|value| *value += 1.0);
        ctx.reduce_in_place(&mut vector, Sum, 0)
    })?;

    let (passes, others) = (iterations as f64, (ctx.size() - 1) as f64);
    let expected = passes + 2.0 + (passes * passes + 5.0 * passes + 4.0) * others / 2.0;
    let furthest = |a: f64, b: f64| if (b - expected).abs() > (a - expected).abs() { b } else { a };
    Ok((ctx.rank() == 0).then(|| Outcome {
        seconds,
        work: (2 * ctx.size() - 1) as f64 * length as f64,
        unit: "flop",
        quantity: "the element of rank 0's vector that is furthest off",
        expected,
        found: vector.iter().copied().fold(expected, furthest),
        tolerance: 1e-8,
    }))
}
