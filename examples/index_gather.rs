//! Reads many random elements of a table that is spread over all ranks (the kernel `ig` of bale,
//! after Maley and DeVinney, 2019).
//!
//!     cargo run --release --example index_gather [elements per rank] [length per rank]
//!
//! Read one after another, each element is waited for; gathered by `aggregate`, many of them are on
//! the way at a time.

use std::time::Instant;

use spmd::prelude::*;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: usize| match arguments.next() {
        Some(text) => text.parse::<usize>().map_err(Error::user),
        None => Ok(default),
    };
    let (count, length) = (number(1_000_000)?, number(100_000)?);
    spmd::run(|ctx| {
        let mut random = Random(ctx.rank() as u64);
        let all = (length * ctx.size()) as u64;
        let indexes: Vec<usize> = (0..count).map(|_| (random.next() % all) as usize).collect();

        // Element i of the whole table holds 3 i + 1, on rank i % size.
        let table = ctx.window::<u64>(length)?;
        let own = |i: usize| 3 * (i * ctx.size() + ctx.rank()) as u64 + 1;
        table.write(0, &(0..length).map(own).collect::<Vec<_>>())?;
        let place = |index: usize| (index % ctx.size(), index / ctx.size());

        table.fence()?;
        let mut found = vec![0; count];
        let alone = time(ctx, || {
            for (index, found) in indexes.iter().zip(found.chunks_mut(1)) {
                let (rank, at) = place(*index);
                table.get(found, rank, at)?;
            }
            Ok(())
        })?;
        let wrong = |found: &[u64]| {
            let pairs = indexes.iter().zip(found);
            pairs.filter(|(index, found)| **found != 3 * **index as u64 + 1).count()
        };
        let mut mistakes = wrong(&found);

        found.fill(0);
        let gathered = time(ctx, || {
            table.aggregate(|reads| {
                indexes.iter().zip(&mut found).try_for_each(|(index, found)| {
                    let (rank, at) = place(*index);
                    reads.get(found, rank, at)
                })
            })
        })?;
        mistakes += wrong(&found);
        table.fence()?;

        let mistakes = ctx.allreduce_value(mistakes, Sum)?;
        if ctx.rank() == 0 {
            let all = (count * ctx.size()) as f64;
            println!("{all} elements on {} ranks", ctx.size());
            println!("one after another: {:.1} million a second", all / alone / 1e6);
            println!("gathered:          {:.1} million a second", all / gathered / 1e6);
        }
        if mistakes == 0 { Ok(()) } else { Err(format!("{mistakes} elements are wrong").into()) }
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
