//! Draws half of the Mandelbrot set, of which some rows take far longer than others, by tasks on all ranks.
//!
//!     spmdrun -n 2 target/release/examples/mandelbrot [rows] [iterations]
//!
//! The first rank spawns a task for every few rows: once on fixed ranks, an equal share of rows on each, and
//! once on any rank (`spawn_any`), where a rank that is through with its rows takes others. The other ranks
//! have come to the end of their program meanwhile, and run what they are asked to.

use std::time::Instant;

use spmd::prelude::*;
use spmd::tasks::remote;

/// What is drawn, of the complex plane: rows from -2i to 0, of which the first half is soon done.
const LEFT: f64 = -2.0;
const RIGHT: f64 = 1.0;
const TOP: f64 = -2.0;

/// How many steps each point of these rows of so many takes to leave the circle of radius 2.
fn escape(rows: (usize, usize), height: usize, most: u32) -> Result<Vec<u32>> {
    let width = height;
    let points = (rows.0..rows.1).flat_map(|row| (0..width).map(move |column| (row, column)));
    let steps = points.map(|(row, column)| {
        let re = LEFT + (RIGHT - LEFT) * column as f64 / width as f64;
        let im = TOP - TOP * row as f64 / height as f64;
        let (mut x, mut y, mut steps) = (0.0, 0.0, 0);
        while x * x + y * y <= 4.0 && steps < most {
            (x, y, steps) = (x * x - y * y + re, 2.0 * x * y + im, steps + 1);
        }
        steps
    });
    Ok(steps.collect())
}

remote!(escape);

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: usize| match arguments.next() {
        Some(text) => text.parse::<usize>().map_err(Error::user),
        None => Ok(default),
    };
    let (height, most) = (number(800)?, number(2000)? as u32);
    spmd::run(|ctx| if ctx.rank() == 0 { draw(ctx, height, most) } else { Ok(()) }).map(drop)
}

/// Rows of a task.
const FEW: usize = 4;

fn draw(ctx: &Ctx, height: usize, most: u32) -> Result<()> {
    let blocks = || (0..height).step_by(FEW).map(|from| (from, (from + FEW).min(height)));
    let fixed = |(from, to)| {
        let rank = from * ctx.size() / height;
        ctx.spawn_on(rank, escape, ((from, to), height, most))
    };
    let any = |rows| ctx.spawn_any(escape, (rows, height, most));

    let start = Instant::now();
    let expected = Task::wait_all(blocks().map(fixed).collect())?;
    let on_fixed = start.elapsed();

    let start = Instant::now();
    let tasks: Vec<_> = blocks().map(any).collect();
    let drawn = tasks.iter().map(|task| task.fetch().cloned()).collect::<Result<Vec<_>>>()?;
    let on_any = start.elapsed();

    if drawn != expected {
        return Err("both pictures should be the same".into());
    }
    println!("{height} rows on {} ranks", ctx.size());
    println!("on fixed ranks: {on_fixed:.1?}");
    println!(
        "on any rank:    {on_any:.1?}, {:.2} times as fast",
        on_fixed.div_duration_f64(on_any)
    );
    if let Some(last) = tasks.last() {
        println!("{}", last.explain());
    }
    Ok(())
}
