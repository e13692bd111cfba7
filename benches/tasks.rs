//! Tasks beside rayon, in turn, and the smallest task that is worth spawning (METG): `cargo bench --bench
//! tasks`. Every result is checked.
//!
//! METG(50 %) is that of Task Bench (Slaughter et al., SC20): the length of a task at which half of the
//! time of all workers goes into tasks, in grids of tasks each of which needs some of the row before.

use std::hint::black_box;
use std::time::{Duration, Instant};

use spmd::prelude::*;
use spmd::tasks::{join, spawn};

const MANY: usize = 100_000;
const ROUNDS: usize = 11;
const STEPS: usize = 1000;

fn main() -> Result<()> {
    spmd(1, |ctx| {
        println!("medians of {ROUNDS} rounds, each of which measures both in turn");
        beside_rayon("spawn and fetch of 100,000 empty tasks", || all_at_once(ctx), rayon_scope)?;
        beside_rayon("the same in a scope", || in_a_scope(ctx), rayon_scope)?;
        beside_rayon("Fibonacci(30) by join", || fibonacci(ctx, 0), || rayon_fibonacci(0))?;
        beside_rayon(
            "the same, in one piece below 20",
            || fibonacci(ctx, 20),
            || rayon_fibonacci(20),
        )?;
        for graph in GRAPHS {
            for width in [2, 8, 64] {
                let metg = metg(ctx, &graph, width)?;
                println!("METG of {:<16} {width:2} wide: {:6.2} µs", graph.name, metg * 1e6);
            }
        }
        Ok(())
    })
    .map(drop)
}

fn beside_rayon(
    what: &str,
    ours: impl Fn() -> Result<()>,
    rayon: impl Fn() -> Result<()>,
) -> Result<()> {
    let time = |run: &dyn Fn() -> Result<()>| {
        let start = Instant::now();
        run().map(|()| start.elapsed())
    };
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        times[0].push(time(&ours)?);
        times[1].push(time(&rayon)?);
    }
    let [ours, rayon] = times.map(|mut times| {
        times.sort_unstable();
        times[ROUNDS / 2]
    });
    let ratio = ours.as_secs_f64() / rayon.as_secs_f64();
    println!("{what}: {} and {}, {ratio:.2} of rayon's", ms(ours), ms(rayon));
    Ok(())
}

fn ms(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1e3)
}

fn all_at_once(ctx: &Ctx) -> Result<()> {
    let tasks: Vec<Task<usize>> = (0..MANY).map(|i| ctx.spawn(move || Ok(i))).collect();
    for (i, task) in tasks.into_iter().enumerate() {
        assert_eq!(task.take()?, i);
    }
    Ok(())
}

fn in_a_scope(ctx: &Ctx) -> Result<()> {
    ctx.scope(|s| {
        for _ in 0..MANY {
            s.spawn(|| Ok(()));
        }
        Ok(())
    })
}

fn rayon_scope() -> Result<()> {
    rayon::scope(|s| {
        for _ in 0..MANY {
            s.spawn(|_| ());
        }
    });
    Ok(())
}

fn serial(n: u64) -> u64 {
    if n < 2 { n } else { serial(n - 1) + serial(n - 2) }
}

fn fibonacci(ctx: &Ctx, whole: u64) -> Result<()> {
    fn number(n: u64, whole: u64) -> u64 {
        if n < 2 || n < whole {
            return serial(n);
        }
        let (a, b) = join(|| number(n - 1, whole), || number(n - 2, whole));
        a + b
    }
    assert_eq!(ctx.spawn(move || Ok(number(30, whole))).take()?, 832_040);
    Ok(())
}

fn rayon_fibonacci(whole: u64) -> Result<()> {
    fn number(n: u64, whole: u64) -> u64 {
        if n < 2 || n < whole {
            return serial(n);
        }
        let (a, b) = rayon::join(|| number(n - 1, whole), || number(n - 2, whole));
        a + b
    }
    assert_eq!(number(30, whole), 832_040);
    Ok(())
}

/// Which tasks of the row before the one in place `at` of a row needs.
struct Graph {
    name: &'static str,
    needs: fn(step: usize, at: usize, width: usize) -> Vec<usize>,
}

const GRAPHS: [Graph; 5] = [
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
fn work(rounds: u64) {
    let mut x = black_box(rounds);
    for _ in 0..rounds {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    }
    black_box(x);
}

/// Rows of tasks, each of which looks whether it has got what it needs.
fn grid(ctx: &Ctx, graph: &Graph, width: usize, rounds: u64) -> Result<Duration> {
    let start = Instant::now();
    type Place = (usize, usize);
    let mut row: Vec<Task<Place>> = Vec::new();
    for step in 0..STEPS {
        let place = |at: usize| {
            let needs = if step == 0 { Vec::new() } else { (graph.needs)(step, at, width) };
            let done = move |seen: &[Place], needs: &[usize]| {
                let right = seen.iter().zip(needs).all(|(seen, at)| *seen == (step - 1, *at));
                assert!(right && seen.len() == needs.len());
                work(rounds);
                Ok((step, at))
            };
            match needs[..] {
                [] => ctx.spawn(move || done(&[], &[])),
                [a] => ctx.spawn_after((&row[a],), move |x| done(&[*x], &needs)),
                [a, b] => ctx.spawn_after((&row[a], &row[b]), move |x, y| done(&[*x, *y], &needs)),
                [a, b, c, ..] => ctx.spawn_after((&row[a], &row[b], &row[c]), move |x, y, z| {
                    done(&[*x, *y, *z], &needs)
                }),
            }
        };
        row = (0..width).map(place).collect();
    }
    Task::wait_all(row)?;
    Ok(start.elapsed())
}

/// The shortest task, in seconds, at which half of the workers' time goes into tasks.
fn metg(ctx: &Ctx, graph: &Graph, width: usize) -> Result<f64> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from).min(width);
    let (start, trial) = (Instant::now(), 20_000_000);
    work(trial);
    let round = start.elapsed().as_secs_f64() / trial as f64;
    let (mut rounds, mut shortest) = (40_000u64, f64::NAN);
    while rounds > 100 {
        // What comes in between on the machine takes time from some of them.
        let times = (0..5).map(|_| grid(ctx, graph, width, rounds));
        let times: Vec<Duration> = times.collect::<Result<_>>()?;
        let best = times.into_iter().min().expect("there are five").as_secs_f64();
        let ideal = round * (rounds as usize * width * STEPS) as f64 / cores as f64;
        if ideal < 0.5 * best {
            break;
        }
        shortest = round * rounds as f64;
        rounds = rounds * 5 / 6;
    }
    black_box(spawn(|| Ok(())).take()?);
    Ok(shortest)
}
