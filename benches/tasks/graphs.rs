//! Grids of tasks, as in Task Bench, and how the shortest task is found that is worth its while.

use std::hint::black_box;
use std::time::{Duration, Instant};

use spmd::{Error, Result};

pub(crate) const STEPS: usize = 1000;
pub(crate) const WIDTHS: [usize; 3] = [2, 8, 64];

/// Which tasks of the row before the one in place `at` of a row needs.
pub(crate) struct Graph {
    pub(crate) name: &'static str,
    pub(crate) needs: fn(step: usize, at: usize, width: usize) -> Vec<usize>,
}

pub(crate) const GRAPHS: [Graph; 5] = [
    Graph { name: "trivial", needs: |_, _, _| Vec::new() },
    Graph {
        name: "stencil_1d",
        needs: |_, at, width| (at.saturating_sub(1)..=(at + 1).min(width - 1)).collect(),
    },
    Graph {
        name: "fft",
        needs: |step, at, width| {
            let stride = 1 << ((step - 1) % width.ilog2().max(1) as usize);
            let places = [at.checked_sub(stride), Some(at), Some(at + stride)];
            places.into_iter().flatten().filter(|place| *place < width).collect()
        },
    },
    Graph { name: "tree", needs: |_, at, _| vec![at / 2] },
    Graph {
        name: "random_nearest",
        needs: |step, at, width| {
            let near = at.saturating_sub(1)..=(at + 1).min(width - 1);
            near.filter(|place| hash(step, at, *place).is_multiple_of(2)).collect()
        },
    },
];

fn hash(step: usize, at: usize, place: usize) -> u64 {
    let seed = (step << 16 | at << 8 | place) as u64;
    (seed ^ seed >> 7).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}

/// The work of a task.
pub(crate) fn work(rounds: u64) {
    let mut x = black_box(rounds);
    for _ in 0..rounds {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    }
    black_box(x);
}

/// What a round of the work of a task takes, in seconds.
pub(crate) fn round() -> f64 {
    let (start, trial) = (Instant::now(), 20_000_000);
    work(trial);
    start.elapsed().as_secs_f64() / trial as f64
}

/// The shortest task, in seconds, of a grid of this width at which half of the time of so many cores goes
/// into tasks; `grid` makes one of tasks of so many rounds, of which each takes `round`.
pub(crate) fn metg(
    (width, cores, round): (usize, usize, f64),
    mut rounds: u64,
    grid: impl Fn(u64) -> Result<Duration>,
) -> Result<f64> {
    let mut shortest = f64::NAN;
    while rounds > 100 {
        let ideal = round * (rounds as usize * width * STEPS) as f64 / cores as f64;
        let is_worth_while = || {
            let times = (0..5).map(|_| grid(rounds));
            let times: Vec<Duration> = times.collect::<Result<_>>()?;
            let best = times.into_iter().min().expect("there are five").as_secs_f64();
            Ok::<bool, Error>(ideal >= 0.5 * best)
        };
        // What comes in between on the machine takes time from some of them, or from all for a while.
        if !is_worth_while()? && !is_worth_while()? {
            break;
        }
        shortest = round * rounds as f64;
        rounds = rounds * 5 / 6;
    }
    Ok(shortest)
}
