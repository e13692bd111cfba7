//! π as the integral of 4 / (1 + x²) from 0 to 1, by the midpoint rule.
//!
//!     cargo run --release --example pi [intervals]

use std::f64::consts::PI;

use spmd::prelude::*;

fn main() -> Result<()> {
    let intervals = match std::env::args().nth(1) {
        Some(text) => text.parse::<usize>().map_err(Error::user)?,
        None => 20_000_000,
    };
    spmd::run(|ctx| {
        let (rank, size) = (ctx.rank(), ctx.size());
        let width = 1.0 / intervals as f64;

        // The work is dealt out like cards: every rank takes each `size`-th interval.
        let mine = (rank..intervals).step_by(size);
        let area: f64 = mine
            .map(|i| {
                let x = (i as f64 + 0.5) * width;
                4.0 / (1.0 + x * x) * width
            })
            .sum();
        let pi = ctx.allreduce_value(area, Sum)?;

        let error = (pi - PI).abs();
        if rank == 0 {
            println!("π ≈ {pi:.15}, off by {error:.1e}, on {size} ranks");
        }
        // The rule's own error is width² / 6; the rest is rounding.
        let bound = width * width / 6.0 + 1e-12;
        if error <= bound { Ok(()) } else { Err(format!("π is off by {error:e}").into()) }
    })?;
    Ok(())
}
