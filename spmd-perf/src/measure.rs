//! The loop that measures, and what becomes of its times.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use spmd::prelude::*;

/// From this size on, every rank rewrites what it sends before each call: data that never change
/// would flatter whoever keeps them in a cache.
pub(crate) const REWRITE: usize = 64 << 10;
/// Calls between two readings of the clock take at least this long.
const BATCH: Duration = Duration::from_micros(20);
/// How long the ranks warm up before the first bench.
const SETTLE: Duration = Duration::from_millis(100);
/// The most samples of one size.
const SAMPLES: f64 = 5000.0;
/// A fixed number of calls is split into at most this many samples ..
const FIXED_SAMPLES: usize = 200;
/// .. of at least this many calls, unless data are rewritten before each.
const FIXED_BATCH: usize = 20;
/// Places of a result that are looked at, at most.
const LOOKS: usize = 1000;

/// How long to measure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Effort {
    Seconds(f64),
    /// A number of calls, whatever they take: the same work for whoever is compared.
    Iterations(usize),
}

/// The times of one size, in µs a call, on the slowest rank.
#[derive(Clone, Debug, Default)]
pub(crate) struct Measured {
    pub(crate) iterations: u64,
    pub(crate) avg: f64,
    pub(crate) min: f64,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
    /// Elements with wrong values, of those that were looked at, on all ranks.
    pub(crate) wrong: u64,
    /// Of a call beside a computation: what was hidden of it.
    pub(crate) overlap: Option<Overlap>,
    /// Of a collective that was measured in place, too: that.
    pub(crate) in_place: Option<Box<Measured>>,
}

/// How much of a call goes on beside a computation.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Overlap {
    /// The time of the call alone, started and waited for at once, the median.
    pub(crate) communication_us: f64,
    /// The time of the computation alone, the median.
    pub(crate) computation_us: f64,
    /// The share of the call's time by which both together are shorter than one after the other,
    /// from 0 to 1.
    pub(crate) hidden: f64,
}

/// Lets the system give the ranks their cores, which takes it some milliseconds after their start:
/// barriers for a while.
pub(crate) fn settle(ctx: &Ctx) -> Result<()> {
    let start = Instant::now();
    while ctx.allreduce_value(start.elapsed().as_secs_f64(), Max)? < SETTLE.as_secs_f64() {
        for _ in 0..10 {
            ctx.barrier()?;
        }
    }
    Ok(())
}

/// One call under measurement.
pub(crate) trait Subject {
    /// Whether [`Subject::prepare`] comes before each call.
    fn rewrites(&self) -> bool;
    /// Makes what is sent in this turn. Not timed.
    fn prepare(&mut self, turn: usize) -> Result<()>;
    /// The call. Timed.
    fn call(&mut self, ctx: &Ctx, turn: usize) -> Result<()>;
    /// Waits for calls that go on by themselves. Timed.
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
    /// Looks at what the call of this turn gave: the number of wrong elements. Not timed.
    fn wrong(&mut self, turn: usize) -> Result<u64>;
}

/// The places of a result of this length that are looked at, the last one among them.
pub(crate) fn looks(length: usize) -> impl Iterator<Item = usize> {
    (0..length).step_by((length / LOOKS).max(1)).chain(length.checked_sub(1))
}

/// Measures a call: all ranks take part, and all get the result.
pub(crate) fn measure(ctx: &Ctx, effort: Effort, subject: &mut impl Subject) -> Result<Measured> {
    subject.prepare(0)?;
    let (batch, samples) = plan(ctx, effort, subject)?;
    let mut times = Vec::with_capacity(samples);
    let mut wrong = 0;
    for sample in 0..samples {
        let turn = sample * batch;
        if subject.rewrites() {
            subject.prepare(turn)?;
        }
        ctx.barrier()?;
        let start = Instant::now();
        for turn in turn..turn + batch {
            subject.call(ctx, turn)?;
        }
        subject.finish()?;
        times.push(start.elapsed().as_secs_f64() * 1e6 / batch as f64);
        // Where ranks share cores, what a rank does now would count as time of one that it keeps
        // from reading its clock.
        ctx.barrier()?;
        wrong += subject.wrong(turn + batch - 1)?;
    }
    // The slowest rank of each sample counts.
    ctx.allreduce_in_place(&mut times, Max)?;
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() - 1) as f64 * share).round() as usize];
    Ok(Measured {
        iterations: (samples * batch) as u64,
        avg: times.iter().sum::<f64>() / times.len() as f64,
        min: at(0.0),
        p50: at(0.5),
        p99: at(0.99),
        max: at(1.0),
        wrong: ctx.allreduce_value(wrong, Sum)?,
        overlap: None,
        in_place: None,
    })
}

/// Warms up, and says how many calls make a sample, and how many samples there will be.
fn plan(ctx: &Ctx, effort: Effort, subject: &mut impl Subject) -> Result<(usize, usize)> {
    match effort {
        Effort::Seconds(seconds) => plan_seconds(ctx, seconds, subject),
        Effort::Iterations(calls) => {
            time_calls(ctx, subject, (calls / 10).max(2))?;
            let batch = match subject.rewrites() {
                true => 1,
                false => calls.div_ceil(FIXED_SAMPLES).max(FIXED_BATCH).min(calls),
            };
            Ok((batch, calls / batch))
        }
    }
}

fn plan_seconds(ctx: &Ctx, seconds: f64, subject: &mut impl Subject) -> Result<(usize, usize)> {
    let mut calls = 1;
    let each = loop {
        let took = ctx.allreduce_value(time_calls(ctx, subject, calls)?, Max)?;
        // A tenth of the time goes into this.
        if took > seconds / 20.0 {
            break took / calls as f64;
        }
        calls *= 2;
    };
    let batch = if subject.rewrites() { 1.0 } else { (BATCH.as_secs_f64() / each).ceil() };
    let samples = (seconds / (batch * each)).clamp(10.0, SAMPLES);
    Ok((batch as usize, samples as usize))
}

/// Makes this many calls: how many seconds they took here.
fn time_calls(ctx: &Ctx, subject: &mut impl Subject, calls: usize) -> Result<f64> {
    ctx.barrier()?;
    let start = Instant::now();
    for turn in 0..calls {
        subject.call(ctx, turn)?;
    }
    subject.finish()?;
    Ok(start.elapsed().as_secs_f64())
}

/// The median of rounds: now and then ranks meet by luck in one that is much faster.
pub(crate) fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::INFINITY)
}
