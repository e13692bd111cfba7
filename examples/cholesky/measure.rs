//! How long it takes, beside `faer`'s own parallel factorisation of the same matrix.

use std::time::{Duration, Instant};

use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::cholesky::llt::factor::{cholesky_in_place, cholesky_in_place_scratch};
use faer::{Mat, Par};
use spmd::prelude::*;

use crate::alone;
use crate::tiles::{Layout, Tiles};

/// Measures both in turn, so many times, and tells the medians. One rank calls it.
pub fn beside_faer(ctx: &Ctx, layout: &Layout, rounds: usize) -> Result<()> {
    let alone = Layout::alone(layout.size, layout.tile);
    let matrix = Mat::from_fn(alone.size, alone.size, |i, j| alone.value(i, j));
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let tiles = Tiles::of_matrix(&alone);
        let start = Instant::now();
        alone::factor(ctx, &tiles, alone.steps())?;
        ours.push(start.elapsed());

        let (mut l, parallel, parameters) = (matrix.clone(), Par::rayon(0), Default::default());
        let scratch = cholesky_in_place_scratch::<f64>(alone.size, parallel, parameters);
        let (mut memory, regularization) = (MemBuffer::new(scratch), Default::default());
        let stack = MemStack::new(&mut memory);
        let start = Instant::now();
        cholesky_in_place(l.as_mut(), regularization, parallel, stack, parameters)
            .map_err(|error| format!("faer: {error}"))?;
        theirs.push(start.elapsed());
    }
    let (ours, theirs) = (median(ours), median(theirs));
    let ratio = ours.as_secs_f64() / theirs.as_secs_f64();
    println!("tasks {ours:.1?}, faer {theirs:.1?}: {ratio:.2}; medians of {rounds}, in turn");
    Ok(())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
