//! Collectives that are started and go on beside a computation: how much of their time it hides
//! (as osu_iallreduce and its like measure it).

use std::hint::black_box;
use std::time::{Duration, Instant};

use spmd::prelude::*;

use crate::bench::Bench;
use crate::collectives::Collective;
use crate::elements::{Number, Operator};
use crate::measure::{self, Effort, Measured, Subject, measure as measure_subject};

/// How often a computation tests the call, where it does.
const TESTS: u64 = 32;
/// The speed of the computation is that of the fastest of so many runs ..
const RUNS: usize = 5;
/// .. which take at least this long.
const RUN: Duration = Duration::from_millis(1);

/// Measures a collective: alone, a computation as long as that, and both together, whose times it
/// gives.
pub(crate) fn measure<T: Number>(
    ctx: &Ctx,
    effort: Effort,
    collective: Collective<T>,
    tests: bool,
) -> Result<Measured>
where
    Sum: Operation<T>,
    Min: Operation<T>,
    Max: Operation<T>,
{
    let mut subject = Overlapping { collective, computation: Computation::default(), starts: true };
    let call = measure_subject(ctx, effort, &mut subject)?;
    let steps = (call.p50 * steps_per_micro()) as u64;
    subject.computation = Computation { steps, tests: if tests { TESTS } else { 0 } };
    subject.starts = false;
    let computation = measure_subject(ctx, effort, &mut subject)?;
    subject.starts = true;
    let mut both = measure_subject(ctx, effort, &mut subject)?;
    both.wrong += call.wrong;
    both.overlap = Some(measure::Overlap {
        communication_us: call.p50,
        computation_us: computation.p50,
        hidden: ((call.p50 + computation.p50 - both.p50) / call.p50).clamp(0.0, 1.0),
    });
    Ok(both)
}

/// What a rank computes: steps of which each needs the one before, and no memory.
#[derive(Default)]
struct Computation {
    steps: u64,
    /// How often it asks for the call.
    tests: u64,
}

/// Computes this many steps.
fn compute(steps: u64) {
    let mut x = black_box(1.0);
    for _ in 0..steps {
        x = x * 0.5 + 0.5;
    }
    black_box(x);
}

fn steps_per_micro() -> f64 {
    let mut steps = 1024;
    let mut fastest = Duration::MAX;
    let mut runs = 0;
    while runs < RUNS {
        let start = Instant::now();
        compute(steps);
        let took = start.elapsed();
        if took < RUN {
            steps *= 2;
        } else {
            fastest = fastest.min(took);
            runs += 1;
        }
    }
    steps as f64 / (fastest.as_secs_f64() * 1e6)
}

impl Computation {
    /// Computes while the call goes on, and waits for that.
    fn beside<B>(&self, mut call: Request<B>) -> Result<()> {
        let piece = self.steps / (self.tests + 1);
        compute(piece);
        for _ in 0..self.tests {
            call.test()?;
            compute(piece);
        }
        call.wait().map(drop)
    }
}

struct Overlapping<T: Number> {
    collective: Collective<T>,
    computation: Computation,
    /// Whether there is a call at all.
    starts: bool,
}

impl<T: Number> Subject for Overlapping<T>
where
    Sum: Operation<T>,
    Min: Operation<T>,
    Max: Operation<T>,
{
    fn rewrites(&self) -> bool {
        self.collective.rewrites()
    }

    fn prepare(&mut self, turn: usize) -> Result<()> {
        self.collective.prepare(turn)
    }

    fn call(&mut self, ctx: &Ctx, turn: usize) -> Result<()> {
        let Overlapping { collective, computation, starts } = self;
        if !*starts {
            compute(computation.steps);
            return Ok(());
        }
        let (bench, op, root) = (collective.bench, collective.op, collective.root(turn));
        let (send, recv) = (&*collective.send, &mut *collective.recv);
        ctx.requests(|requests| match (bench, op) {
            (Bench::Broadcast, _) => computation.beside(requests.broadcast(recv, root)?),
            (Bench::Alltoall, _) => computation.beside(requests.alltoall(send, recv)?),
            (_, Operator::Sum) => computation.beside(requests.allreduce(send, recv, Sum)?),
            (_, Operator::Min) => computation.beside(requests.allreduce(send, recv, Min)?),
            (_, Operator::Max) => computation.beside(requests.allreduce(send, recv, Max)?),
        })
    }

    fn wrong(&mut self, turn: usize) -> Result<u64> {
        if self.starts { self.collective.wrong(turn) } else { Ok(0) }
    }
}
