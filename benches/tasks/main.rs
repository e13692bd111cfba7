//! Tasks beside rayon, in turn, and the smallest task that is worth spawning (METG): `cargo bench --bench
//! tasks`. Every result is checked.
//!
//! METG(50 %) is that of Task Bench (Slaughter et al., SC20): the length of a task at which half of the
//! time of all workers goes into tasks, in grids of tasks each of which needs some of the row before.

mod across;
mod graphs;

use std::hint::black_box;
use std::process::Command;
use std::time::{Duration, Instant};

use spmd::prelude::*;
use spmd::tasks::{join, spawn};

use graphs::{GRAPHS, Graph, STEPS, WIDTHS, metg, round, work};

const MANY: usize = 100_000;
const ROUNDS: usize = 11;

fn main() -> Result<()> {
    if std::env::var_os("SPMD_RANK").is_some() {
        return spmd::run(across::run).map(drop);
    }
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
            for width in WIDTHS {
                let metg = metg_alone(ctx, &graph, width)?;
                println!("METG of {:<16} {width:2} wide: {:6.2} µs", graph.name, metg * 1e6);
            }
        }
        Ok(())
    })?;
    as_processes()
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

/// Rows of tasks, each of which looks whether it has got what it needs.
fn grid(ctx: &Ctx, graph: &Graph, width: usize, rounds: u64) -> Result<Duration> {
    let start = Instant::now();
    type Place = (usize, usize);
    // All are waited for: of the trivial graph the last row may be over first.
    let mut all: Vec<Task<Place>> = Vec::with_capacity(STEPS * width);
    for step in 0..STEPS {
        let row = &all[all.len().saturating_sub(width)..];
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
        let next: Vec<Task<Place>> = (0..width).map(place).collect();
        all.extend(next);
    }
    Task::wait_all(all)?;
    Ok(start.elapsed())
}

/// The shortest task, in seconds, at which half of the workers' time goes into tasks.
fn metg_alone(ctx: &Ctx, graph: &Graph, width: usize) -> Result<f64> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from).min(width);
    let metg = metg((width, cores, round()), 160_000, |rounds| grid(ctx, graph, width, rounds))?;
    black_box(spawn(|| Ok(())).take()?);
    Ok(metg)
}

/// Two processes, if the launcher has been built.
fn as_processes() -> Result<()> {
    let program = std::env::current_exe().map_err(Error::user)?;
    // Of `target/release/deps`.
    let launcher = program.parent().and_then(|deps| Some(deps.parent()?.join("spmdrun")));
    let Some(launcher) = launcher.filter(|launcher| launcher.exists()) else {
        println!("METG across processes: `cargo build --release --package spmd-launcher` first");
        return Ok(());
    };
    let mut run = Command::new(launcher);
    let ended = run.args(["--ranks", "2"]).arg(program).status().map_err(Error::user)?;
    if ended.success() { Ok(()) } else { Err("the ranks of two processes have failed".into()) }
}
