//! Counts how often each of many random numbers comes up, in a table that is spread over all ranks
//! (the kernel `histo` of bale, after Maley and DeVinney, 2019).
//!
//!     cargo run --release --example histogram [numbers per rank] [counters per rank]
//!
//! Each number is one atomic addition to a random counter, most of them of another rank, which does
//! nothing for it. Done one after another, each waits for its counter to come from memory or from
//! another core; gathered by `aggregate`, many of them are on the way at a time.

use std::time::Instant;

use spmd::prelude::*;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: usize| match arguments.next() {
        Some(text) => text.parse::<usize>().map_err(Error::user),
        None => Ok(default),
    };
    let (numbers, counters) = (number(1_000_000)?, number(100_000)?);
    spmd::run(|ctx| {
        let mut random = Random(ctx.rank() as u64);
        let places = (counters * ctx.size()) as u64;
        // Counter i is that of number i / size on rank i % size.
        let numbers: Vec<usize> = (0..numbers).map(|_| (random.next() % places) as usize).collect();
        let table = ctx.window::<u64>(counters)?;
        let place = |number: usize| (number % ctx.size(), number / ctx.size());

        let alone = time(ctx, || {
            table.fence()?;
            for number in &numbers {
                let (rank, at) = place(*number);
                table.accumulate(&[1], rank, at, Sum)?;
            }
            table.fence()
        })?;
        let counted: u64 = table.read(..)?.iter().sum();
        let counted = ctx.allreduce_value(counted, Sum)?;

        // The same once more, taken away: nothing is left, unless an addition was lost.
        let gathered = time(ctx, || {
            table.fence()?;
            table.aggregate(|updates| {
                numbers.iter().try_for_each(|number| {
                    let (rank, at) = place(*number);
                    updates.accumulate(1u64.wrapping_neg(), rank, at, Sum)
                })
            })?;
            table.fence()
        })?;
        let wrong = table.read(..)?.iter().filter(|count| **count != 0).count();
        let wrong = ctx.allreduce_value(wrong, Sum)?;

        if ctx.rank() == 0 {
            let all = (numbers.len() * ctx.size()) as f64;
            println!("{all} numbers on {} ranks", ctx.size());
            println!("one after another: {:.1} million a second", all / alone / 1e6);
            println!("gathered:          {:.1} million a second", all / gathered / 1e6);
        }
        if counted != (numbers.len() * ctx.size()) as u64 {
            return Err(format!("{counted} numbers were counted").into());
        }
        if wrong == 0 { Ok(()) } else { Err(format!("{wrong} counters are wrong").into()) }
    })?;
    Ok(())
}

/// Seconds that `run` takes on the slowest rank.
fn time(ctx: &Ctx, run: impl FnOnce() -> Result<()>) -> Result<f64> {
    ctx.barrier()?;
    let start = Instant::now();
    run()?;
    ctx.allreduce_value(start.elapsed().as_secs_f64(), Max)
}

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): the same numbers on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
