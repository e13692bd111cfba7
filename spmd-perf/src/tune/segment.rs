//! The size of segments, where process ranks stage large data.

use spmd::Mode;
use spmd::prelude::*;
use spmd_core::internal::Trial;

use crate::args::TuneArgs;
use crate::bench::Bench;
use crate::collectives::time_fresh;
use crate::measure::{Effort, median};

/// Calls that stage, in as many ways as there are.
const BENCHES: [Bench; 5] =
    [Bench::Broadcast, Bench::Reduce, Bench::Allreduce, Bench::Allgather, Bench::Alltoall];
/// Bytes that a rank reads, about.
const SIZES: [usize; 3] = [256 << 10, 1 << 20, 4 << 20];
const SEGMENTS: [usize; 6] = [16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10];
/// What another size must be faster by, all in all.
const GAIN: f64 = 1.05;

/// The best size of segments, if it is another than the built-in one. Ranks in one address space
/// have no use for segments.
pub(super) fn tune(ctx: &Ctx, args: &TuneArgs) -> Result<Option<usize>> {
    if ctx.mode() != Mode::Processes {
        return Ok(None);
    }
    ctx.internals().try_out(Some(Trial::default()));
    let built_in = ctx.internals().segment();
    let leads = ctx.rank() == 0;
    if leads {
        let built_in = built_in >> 10;
        println!("\n# bytes of a segment, {} processes: µs, default {built_in}K", ctx.size());
    }
    let effort = Effort::Seconds(args.seconds);
    let mut logarithms = [0.0; SEGMENTS.len()];
    let benches: Vec<_> = BENCHES.into_iter().filter(|bench| args.takes(*bench)).collect();
    for (bench, bytes) in benches.iter().flat_map(|bench| SIZES.map(|bytes| (*bench, bytes))) {
        let each = matches!(bench, Bench::Allgather | Bench::Alltoall);
        let bytes = if each { (bytes / ctx.size()).next_multiple_of(8) } else { bytes };
        let mut rounds: [Vec<f64>; SEGMENTS.len()] = Default::default();
        for _ in 0..args.rounds {
            for (segment, times) in SEGMENTS.iter().zip(&mut rounds) {
                ctx.internals()
                    .try_out(Some(Trial { segment: Some(*segment), ..Trial::default() }));
                times.push(time_fresh(ctx, bench, bytes, effort)?);
            }
        }
        let times = rounds.map(|mut times| median(&mut times));
        if leads {
            print!("{:<10} {bytes:>8}", bench.name());
            let shown = SEGMENTS.iter().zip(&times);
            shown.for_each(|(segment, time)| print!("  {:>4}K {time:>8.1}", segment >> 10));
            println!();
        }
        logarithms.iter_mut().zip(times).for_each(|(sum, time)| *sum += time.ln());
    }
    ctx.internals().try_out(None);
    let cases = (benches.len() * SIZES.len()) as f64;
    let means = logarithms.map(|sum| (sum / cases).exp());
    let mean_of = |segment| SEGMENTS.iter().position(|it| *it == segment).map(|at| means[at]);
    let best = SEGMENTS.into_iter().zip(means).min_by(|a, b| a.1.total_cmp(&b.1));
    let (Some(default), Some((best, mean))) = (mean_of(built_in), best) else { return Ok(None) };
    if leads && !benches.is_empty() {
        let ratio = default / mean;
        println!("best {}K; default ÷ best {ratio:.2}, geometric mean", best >> 10);
    }
    Ok((default / mean > GAIN).then_some(best))
}
