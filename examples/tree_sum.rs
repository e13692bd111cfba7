//! The sum of many vectors, by a tree of tasks.
//!
//!     cargo run --release --example tree_sum [vectors [length]]
//!
//! Ranks have the vectors dealt out, each its own in one array, of which tasks name ranges: one fills a
//! vector, others add one to another, pairs first, then pairs of pairs. Which tasks run at the same time
//! follows from that. The ranks' sums are added by an allreduce.
//!
//! The sum is checked against the exact one. It is computed a second time by tasks each of which adds its
//! vector to the same data (`reduce`): whatever the order in which they are over, that has the bits of a
//! loop.

use std::ops::Range;

use spmd::prelude::*;
use spmd::tasks::DataSlice;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default| match arguments.next() {
        Some(text) => text.parse::<usize>().map_err(Error::user),
        None => Ok(default),
    };
    let (vectors, length) = (number(1000)?, number(1000)?);
    spmd::run(|ctx| {
        let (rank, size) = (ctx.rank(), ctx.size());
        let mine = rank * vectors / size..(rank + 1) * vectors / size;
        if by_reduce(ctx, mine.clone(), length)? != in_order(mine.clone(), length)? {
            return Err("tasks that add to the same data find other bits than a loop".into());
        }
        let mut sum = by_tree(ctx, mine, length)?;
        ctx.allreduce_in_place(&mut sum, Sum)?;
        let error = relative_error(&sum, vectors);
        if ctx.rank() == 0 {
            println!("{vectors} vectors of {length}: relative error {error:.1e}");
        }
        if error.is_nan() || error >= 1e-14 {
            return Err(format!("the sum is off by {error:e}").into());
        }
        Ok(())
    })?;
    Ok(())
}

/// An element of a vector, as a whole number of 2⁻⁵² between −1 and 1.
fn units(vector: usize, i: usize) -> i64 {
    let mut state = (vector as u64) << 32 | i as u64;
    for _ in 0..2 {
        state = (state ^ state >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    (state >> 11) as i64 - (1 << 52)
}

const UNIT: f64 = 1.0 / (1u64 << 52) as f64;

fn fill(vector: usize, elements: &mut [f64]) -> Result<()> {
    for (i, x) in elements.iter_mut().enumerate() {
        *x = units(vector, i) as f64 * UNIT;
    }
    Ok(())
}

fn add(sum: &mut [f64], other: &[f64]) {
    sum.iter_mut().zip(other).for_each(|(sum, x)| *sum += x);
}

/// Adds neighbours, then those that are two apart, and so on: the first becomes the sum.
fn by_tree(ctx: &Ctx, vectors: Range<usize>, length: usize) -> Result<Vec<f64>> {
    let mut all = vec![0.0; vectors.len().max(1) * length];
    let data = DataSlice::new(&mut all);
    let vector = |i: usize| data.range(i * length..(i + 1) * length);
    ctx.datadeps(|d| {
        for (i, number) in vectors.clone().enumerate() {
            d.spawn((d.overwrite(vector(i)),), move |elements| fill(number, elements));
        }
        let distances = (0..).map(|level| 1 << level).take_while(|apart| *apart < vectors.len());
        for apart in distances {
            for i in (0..vectors.len() - apart).step_by(2 * apart) {
                let (sum, other) = (d.write(vector(i)), d.read(vector(i + apart)));
                d.spawn((sum, other), |sum, other| {
                    add(sum, other);
                    Ok(())
                });
            }
        }
        Ok(())
    })?;
    all.truncate(length);
    Ok(all)
}

/// Adds each as a part of the same data.
fn by_reduce(ctx: &Ctx, vectors: Range<usize>, length: usize) -> Result<Vec<f64>> {
    let sum = Data::new(vec![0.0; length]);
    ctx.datadeps(|d| {
        for number in vectors {
            let part = d.reduce(&sum, move || vec![0.0; length], |sum, part| add(sum, &part));
            d.spawn((part,), move |part| fill(number, part));
        }
        Ok(())
    })?;
    Ok(sum.into_inner())
}

/// Adds one after the other.
fn in_order(vectors: Range<usize>, length: usize) -> Result<Vec<f64>> {
    let (mut sum, mut vector) = (vec![0.0; length], vec![0.0; length]);
    for number in vectors {
        fill(number, &mut vector)?;
        add(&mut sum, &vector);
    }
    Ok(sum)
}

/// How far the worst element is from the exact sum, for each 1 that was added.
fn relative_error(sum: &[f64], vectors: usize) -> f64 {
    let errors = sum.iter().enumerate().map(|(i, sum)| {
        let exact: i128 = (0..vectors).map(|number| i128::from(units(number, i))).sum();
        // The difference of the whole parts is exact, as is each of them.
        let computed = (sum / UNIT) as i128;
        (computed - exact).unsigned_abs() as f64 * UNIT
    });
    let worst = errors.fold(0.0, f64::max);
    worst / vectors.max(1) as f64
}
