//! `spmd-perf tune`: which algorithm is the fastest for which size on these ranks, and which size
//! of segments; what comes out goes into a tuning file.

mod segment;
mod thresholds;

use spmd::prelude::*;
use spmd_core::boot::variables::TUNING;
use spmd_core::internal::{Algorithm, CHOICES, Choice, Kind, PAYLOAD, Size, Trial};
use spmd_core::tuning::{File, Section, path};

use crate::args::TuneArgs;
use crate::bench::Bench;
use crate::collectives;
use crate::measure::{self, Effort, median};
use thresholds::{Row, rules};

/// A default that is slower than the best by more than this is looked at once more.
const SURE: f64 = 1.05;
/// The largest data of one rank, ..
const BLOCK: usize = 4 << 20;
/// .. and of all together.
const ALL: usize = 64 << 20;
/// What a default may be slower than the best by.
const ALLOWED: f64 = 1.15;

/// Measures everything, prints it, and has rank 0 write the file.
///
/// Errors: the ranks do not share memory; a call fails; there is no path to write to, or it cannot
/// be written.
pub(crate) fn tune(ctx: &Ctx, args: &TuneArgs) -> Result<()> {
    if ctx.size() == 1 {
        return Err("one rank has nothing to choose: spmdrun -n 2 spmd-perf tune".into());
    }
    if ctx.internals().spans_processes() {
        return Err("between these processes the MPI library chooses how, and a tuning file says \
                    nothing of that; tune ranks that share memory: spmdrun --transport shm -n 2 \
                    spmd-perf tune"
            .into());
    }
    let leads = ctx.rank() == 0;
    let named = path(std::env::var_os(TUNING).as_deref());
    let path = args.output.clone().or(named).or_else(|| path(None));
    let path = path.ok_or("there is no home directory to write to; give --output FILE")?;
    measure::settle(ctx)?;
    warm_up(ctx)?;
    let mut section = Section::default();
    let mut worst: Vec<(f64, String)> = Vec::new();
    for choice in CHOICES.iter() {
        let Some(bench) = Bench::of(choice.kind).filter(|bench| args.takes(*bench)) else {
            continue;
        };
        let mut rows = Vec::new();
        for (bytes, by) in sizes(ctx, choice) {
            let row = row(ctx, args, choice, bench, bytes, by)?;
            if by > PAYLOAD && row.times.len() < 2 {
                break;
            }
            rows.push(row);
        }
        section.rules.set(choice.kind, rules(&rows));
        if leads {
            print(ctx, choice.kind, &rows);
        }
        let name = |row: &Row| format!("{} of {} bytes", choice.kind.name(), row.by);
        worst.extend(rows.iter().map(|row| (row.ratio(), name(row))));
    }
    section.segment = segment::tune(ctx, args)?;
    if leads {
        summary(worst);
        let mut file = File::read(&path, false)?.unwrap_or_default();
        file.set(ctx.mode(), ctx.size(), section);
        file.write(&path)?;
        println!("\nwritten to {}", path.display());
    }
    ctx.barrier()
}

/// Bytes of one rank's data by powers of two, with those by which the call chooses. Where small
/// data no longer fit, one algorithm is left for most calls.
fn sizes(ctx: &Ctx, choice: &Choice) -> impl Iterator<Item = (usize, usize)> {
    let (ranks, blocks) = (ctx.size(), if choice.by == Size::All { ctx.size() } else { 1 });
    let all = (3..).map(move |power| (1 << power, blocks << power));
    all.take_while(move |(bytes, by)| *by <= PAYLOAD || (*bytes <= BLOCK && bytes * ranks <= ALL))
}

/// Lets processes find out whether they may read each other's memory, which they do in calls on
/// large data.
fn warm_up(ctx: &Ctx) -> Result<()> {
    let mine = vec![0u8; 256 << 10];
    let mut all = vec![0u8; ctx.size() * mine.len()];
    (0..3).try_for_each(|_| ctx.allgather(&mine, &mut all))
}

/// Measures all algorithms that can serve one size, in turns.
fn row(
    ctx: &Ctx,
    args: &TuneArgs,
    choice: &Choice,
    bench: Bench,
    bytes: usize,
    by: usize,
) -> Result<Row> {
    ctx.internals().try_out(Some(Trial::default()));
    let default = collectives::choice(ctx, bench, bytes)?;
    let mut times: Vec<(Algorithm, f64)> = Vec::new();
    for candidate in choice.candidates {
        ctx.internals().try_out(Some(trial(choice.kind, candidate.algorithm)));
        if collectives::choice(ctx, bench, bytes)? == Some(candidate.algorithm) {
            times.push((candidate.algorithm, f64::INFINITY));
        }
    }
    let default = default.filter(|default| times.iter().any(|(it, _)| it == default));
    let default = default.ok_or("SPMD_TRACE and SPMD_CHAOS hide what calls choose; unset them")?;
    let effort = Effort::Seconds(args.seconds);
    let mut row = Row { by, default, times };
    let mut rounds: Vec<Vec<f64>> = vec![Vec::new(); row.times.len()];
    for _ in 0..2 {
        for _ in 0..args.rounds {
            for ((algorithm, _), times) in row.times.iter().zip(&mut rounds) {
                ctx.internals().try_out(Some(trial(choice.kind, *algorithm)));
                times.push(collectives::time_fresh(ctx, bench, bytes, effort)?);
            }
        }
        for ((_, time), times) in row.times.iter_mut().zip(&mut rounds) {
            *time = median(times);
        }
        // All ranks know the same times.
        if row.ratio() < SURE {
            break;
        }
    }
    ctx.internals().try_out(None);
    Ok(row)
}

fn trial(kind: Kind, algorithm: Algorithm) -> Trial {
    Trial { algorithm: Some((kind, algorithm)), ..Trial::default() }
}

fn print(ctx: &Ctx, kind: Kind, rows: &[Row]) {
    println!("\n# {}, {} ranks as {:?}: µs, * the default", kind.name(), ctx.size(), ctx.mode());
    for row in rows {
        print!("{:>10}", row.by);
        for (algorithm, time) in &row.times {
            let mark = if *algorithm == row.default { '*' } else { ' ' };
            print!("  {mark}{:<8} {time:>8.2}", algorithm.name());
        }
        println!("   default ÷ best {:.2}", row.ratio());
    }
}

fn summary(mut all: Vec<(f64, String)>) {
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    let slow = all.iter().filter(|(ratio, _)| *ratio > ALLOWED).count();
    println!("\n# default ÷ best: {slow} of {} above {ALLOWED}; the worst:", all.len());
    all.iter().take(5).for_each(|(ratio, what)| println!("{ratio:>10.2}  {what}"));
}
