//! Sorts numbers that are spread over all ranks (sample sort, Frazer and McKellar 1970).
//!
//!     cargo run --release --example sample_sort [numbers per rank]
//!
//! Every rank sorts what it has, and shows a few samples of it to all. From all samples the ranks
//! choose the same splitters, which say what belongs to which rank; one alltoallv takes it there.

use spmd::prelude::*;

/// Samples that each rank shows for each rank: the more, the evener the shares.
const OVERSAMPLING: usize = 8;

fn main() -> Result<()> {
    let count = match std::env::args().nth(1) {
        Some(text) => text.parse::<usize>().map_err(Error::user)?,
        None => 1_000_000,
    };
    spmd::run(|ctx| {
        // Every rank has random numbers of its own, more small ones than large ones.
        let mut random = Random(ctx.rank() as u64);
        let numbers: Vec<u64> = (0..count).map(|_| random.next() >> (random.next() % 8)).collect();

        let before = checksum(ctx, &numbers)?;
        let sorted = sample_sort(ctx, numbers)?;
        let after = checksum(ctx, &sorted)?;
        let ordered = is_sorted(ctx, &sorted)?;

        let largest = ctx.allreduce_value(sorted.len(), Max)?;
        if ctx.rank() == 0 {
            println!("{} numbers on {} ranks, {largest} at most", before[0], ctx.size());
        }
        if before != after {
            return Err(format!("the checksum was {before:?} and is {after:?}").into());
        }
        if ordered { Ok(()) } else { Err("the numbers are not in order".into()) }
    })?;
    Ok(())
}

/// The numbers of all ranks, in order: lower ones on lower ranks.
fn sample_sort(comm: &Comm, mut numbers: Vec<u64>) -> Result<Vec<u64>> {
    let size = comm.size();
    numbers.sort_unstable();

    // Samples at even distances in what is sorted already. A rank without numbers has none to
    // show, so the ranks' counts may differ.
    let distance = (numbers.len() / (OVERSAMPLING * size)).max(1);
    let mine: Vec<u64> = numbers.iter().skip(distance / 2).step_by(distance).copied().collect();
    let (mut samples, _) = comm.allgatherv_vec(&mine)?.into_parts();
    samples.sort_unstable();

    // The numbers for rank r end where splitter r stands; those of the last rank, at the end.
    let splitter = |rank: usize| samples.get(rank * samples.len() / size);
    let ends = (1..size).map(|rank| match splitter(rank) {
        Some(splitter) => numbers.partition_point(|number| number < splitter),
        None => 0,
    });
    let ends: Vec<usize> = ends.chain([numbers.len()]).collect();
    let starts = [0].into_iter().chain(ends.iter().copied());
    let counts: Vec<usize> = starts.zip(&ends).map(|(start, end)| end - start).collect();

    let (mut share, _) = comm.alltoallv_vec(&numbers, &counts)?.into_parts();
    // What came from each rank is sorted; the stable sort finds such runs and merges them.
    share.sort();
    Ok(share)
}

/// How many numbers there are on all ranks, and their sum: neither depends on their order.
fn checksum(comm: &Comm, numbers: &[u64]) -> Result<[u64; 2]> {
    let mine = numbers.iter().fold(0, |sum: u64, number| sum.wrapping_add(*number));
    let mut sums = [numbers.len() as u64, mine];
    comm.allreduce_in_place(&mut sums, Sum)?;
    Ok(sums)
}

/// Whether the numbers of every rank are in order, and none is below those of lower ranks.
fn is_sorted(comm: &Comm, numbers: &[u64]) -> Result<bool> {
    // A rank may have got no numbers: its largest is that of the ranks before it.
    let largest = numbers.last().copied().unwrap_or(0);
    let before = comm.exscan_value(largest, Max)?.unwrap_or(0);
    let ordered = numbers.is_sorted() && numbers.first().is_none_or(|first| before <= *first);
    comm.allreduce_value(ordered, LogicalAnd)
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
