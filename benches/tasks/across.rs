//! Grids whose columns are dealt out to ranks: what a task needs of another rank's comes through a stream.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use spmd::prelude::*;
use spmd::tasks::{Sequence, StreamReceiver, StreamSender};

use crate::graphs::{GRAPHS, Graph, STEPS, WIDTHS, metg, round, work};

/// A task of a grid, by step and place.
type Place = (usize, usize);
/// Of a step, what the other rank needs.
type Row = (usize, Vec<Place>);

pub(crate) fn run(ctx: &Ctx) -> Result<()> {
    for graph in GRAPHS {
        for width in WIDTHS {
            // All ranks find the same times, and so take the same steps.
            let round = ctx.allreduce_value(round(), Min)?;
            let metg = metg((width, ctx.size(), round), 400_000, |rounds| {
                let mine = grid(ctx, &graph, width, rounds)?;
                ctx.allreduce_value(mine.as_nanos() as u64, Max).map(Duration::from_nanos)
            });
            let metg = metg?;
            if ctx.rank() == 0 {
                let name = format!("{} over {} processes", graph.name, ctx.size());
                println!("METG of {name:<32} {width:2} wide: {:6.2} µs", metg * 1e6);
            }
        }
    }
    Ok(())
}

/// The columns of a rank.
fn columns(rank: usize, ranks: usize, width: usize) -> Range<usize> {
    rank * width / ranks..(rank + 1) * width / ranks
}

/// What tasks of `columns` need of others' columns that `of` has.
fn crossing(
    graph: &Graph,
    step: usize,
    width: usize,
    (columns, of): (&Range<usize>, &Range<usize>),
) -> Vec<usize> {
    let needs = columns.clone().flat_map(|at| (graph.needs)(step, at, width));
    let mut needs: Vec<usize> = needs.filter(|place| of.contains(place)).collect();
    needs.sort_unstable();
    needs.dedup();
    needs
}

/// What has come of the other rank's rows, in whatever order.
struct Inbox {
    stream: StreamReceiver<Row>,
    early: Mutex<BTreeMap<usize, Vec<Place>>>,
}

impl Inbox {
    /// Called by one at a time.
    fn row(&self, step: usize) -> Result<Vec<Place>> {
        let mut early = self.early.lock().expect("no panic");
        loop {
            if let Some(row) = early.remove(&step) {
                return Ok(row);
            }
            let (of, row) = self.stream.recv()?.ok_or("the other rank has ended early")?;
            early.insert(of, row);
        }
    }
}

/// How long it takes.
fn grid(ctx: &Ctx, graph: &Graph, width: usize, rounds: u64) -> Result<Duration> {
    assert_eq!(ctx.size(), 2, "two ranks");
    let (me, other) = (ctx.rank(), 1 - ctx.rank());
    let (mine, others) = (columns(me, 2, width), columns(other, 2, width));
    let there = ctx.stream::<Row>(0, 1, 64)?;
    let back = ctx.stream::<Row>(1, 0, 64)?;
    let outbox: Arc<StreamSender<Row>> = Arc::new(there.0.or(back.0).expect("one goes out"));
    let stream = there.1.or(back.1).expect("one comes in");
    let inbox = Arc::new(Inbox { stream, early: Mutex::default() });
    ctx.barrier()?;
    let start = Instant::now();
    let in_order = Sequence::new();
    let mut all: Vec<Task<Vec<Place>>> = Vec::with_capacity(STEPS * mine.len());
    let mut sent = Vec::new();
    for step in 0..STEPS {
        let row = &all[all.len().saturating_sub(mine.len())..];
        let crosses = |to, from| match step {
            0 => Vec::new(),
            _ => crossing(graph, step, width, (to, from)),
        };
        let (goes, comes) = (crosses(&others, &mine), crosses(&mine, &others));
        if !goes.is_empty() {
            let outbox = outbox.clone();
            let needed: Vec<&Task<_>> = goes.iter().map(|at| &row[at - mine.start]).collect();
            sent.push(ctx.spawn_after(&needed[..], move |values| {
                outbox.send((step, values.iter().map(|value| value[0]).collect()))
            }));
        }
        let inbox = inbox.clone();
        let came =
            (!comes.is_empty()).then(|| ctx.spawn_sequential(&in_order, move || inbox.row(step)));
        let place = |at: usize| {
            let needs = if step == 0 { Vec::new() } else { (graph.needs)(step, at, width) };
            let here = needs.iter().filter(|place| mine.contains(place));
            let mut inputs: Vec<&Task<_>> = here.map(|place| &row[place - mine.start]).collect();
            let is_far = inputs.len() < needs.len();
            inputs.extend(came.as_ref().filter(|_| is_far));
            ctx.spawn_after(&inputs[..], move |seen| {
                let seen = |at: &usize| seen.iter().any(|row| row.contains(&(step - 1, *at)));
                assert!(needs.iter().all(seen));
                work(rounds);
                Ok(vec![(step, at)])
            })
        };
        let next: Vec<Task<_>> = mine.clone().map(place).collect();
        all.extend(next);
    }
    Task::wait_all(all)?;
    Task::wait_all(sent)?;
    Ok(start.elapsed())
}
