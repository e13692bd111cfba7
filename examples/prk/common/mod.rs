//! What the kernels share: arguments, timing, the division of work, and the final lines.

// Each kernel uses its part of this.
#![allow(dead_code)]

use std::time::Instant;

use spmd::prelude::*;

/// What rank 0 reports of a run.
pub struct Outcome {
    /// Seconds a pass, on the slowest rank.
    pub seconds: f64,
    /// Work a pass, in `unit`.
    pub work: f64,
    /// `flop` or `B`.
    pub unit: &'static str,
    /// What is compared.
    pub quantity: &'static str,
    /// What the specification says it is.
    pub expected: f64,
    /// What this run made of it.
    pub found: f64,
    /// By how much they may differ.
    pub tolerance: f64,
}

/// Runs a kernel on the ranks of the launched world. `arguments` are the names and default values
/// of its arguments, the number of iterations first; `permitted` says what is wrong with given
/// ones on that many ranks; `kernel` gives its outcome on rank 0.
///
/// Wrong arguments and wrong results are errors of rank 0 alone, so that they are told once.
pub fn run<const N: usize>(
    name: &str,
    arguments: [(&str, usize); N],
    permitted: impl Fn(usize, [usize; N]) -> Result<(), String> + Sync,
    kernel: impl Fn(&Ctx, [usize; N]) -> Result<Option<Outcome>> + Sync,
) -> Result<()> {
    let result = spmd::run(|ctx| {
        let checked = parse(arguments).and_then(|values| {
            permitted(ctx.size(), values)?;
            Ok(values)
        });
        let values = match checked {
            Ok(values) => values,
            Err(mistake) if ctx.rank() == 0 => {
                let names = arguments.map(|(name, _)| format!("[{name}]")).join(" ");
                return Err(format!("{mistake}; usage: prk_{name} {names}").into());
            }
            Err(_) => return Ok(()),
        };
        if ctx.rank() == 0 {
            let given =
                arguments.iter().zip(values).map(|((name, _), value)| format!("{name} {value}"));
            let given = given.collect::<Vec<_>>().join(", ");
            println!("PRK {name}: ranks {}, {given}", ctx.size());
        }
        kernel(ctx, values)?.map_or(Ok(()), report)
    });
    match result {
        // The process of the rank that failed says why.
        Err(Error::PeerFailed(_)) => std::process::exit(1),
        result => result.map(drop),
    }
}

/// The values on the command line, completed by the defaults.
fn parse<const N: usize>(arguments: [(&str, usize); N]) -> Result<[usize; N], String> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    if given.len() > N {
        return Err(format!("{} arguments were given", given.len()));
    }
    let mut values = arguments.map(|(_, default)| default);
    for ((value, text), (name, _)) in values.iter_mut().zip(&given).zip(arguments) {
        // Within 32 bits, so that the product of two sizes is a number too.
        let number = text.parse::<u32>().ok().filter(|number| *number > 0);
        let number =
            number.ok_or(format!("{name} must be from 1 to {}, not '{text}'", u32::MAX))?;
        *value = number as usize;
    }
    Ok(values)
}

fn report(outcome: Outcome) -> Result<()> {
    let Outcome { seconds, work, unit, quantity, expected, found, tolerance } = outcome;
    let validates = (found - expected).abs() <= tolerance;
    if !validates {
        return Err(format!(
            "the solution is wrong: {quantity}: expected {expected:e} within {tolerance:e}, found {found:e}"
        )
        .into());
    }
    println!("Solution validates");
    println!("Rate: {:.1} M{unit}/s, {seconds:.6} s a pass", work / seconds / 1e6);
    Ok(())
}

/// One untimed pass, then `iterations` timed ones: seconds a pass on the slowest rank.
pub fn time(ctx: &Ctx, iterations: usize, mut pass: impl FnMut() -> Result<()>) -> Result<f64> {
    pass()?;
    ctx.barrier()?;
    let start = Instant::now();
    for _ in 0..iterations {
        pass()?;
    }
    // Where ranks take turns on a core, one that starts late must not count as fast.
    ctx.barrier()?;
    let seconds = start.elapsed().as_secs_f64() / iterations as f64;
    ctx.allreduce_value(seconds, Max)
}

/// The share of `rank` of `n` things that `ranks` ranks divide as evenly as they can.
pub fn share(n: usize, ranks: usize, rank: usize) -> std::ops::Range<usize> {
    let start = |rank: usize| rank * (n / ranks) + rank.min(n % ranks);
    start(rank)..start(rank + 1)
}
