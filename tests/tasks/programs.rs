//! Random programs of tasks that use data in every way have the effect that they have in order.

use std::ops::Range;

use spmd::prelude::*;
use spmd::tasks::{DataDeps, DataMatrix, DataSlice, ScopedTask};

use crate::support::{World, processes};

const DATA: usize = 6;
const LEN: usize = 24;
const ROWS: usize = 5;
const COLUMNS: usize = 7;

/// What the program has where it is carried out in order, and whether a task has failed that was to
/// write it.
#[derive(Clone, Copy, Default)]
struct Value {
    now: u64,
    is_bad: bool,
}

/// All that a program uses, in order.
struct Model {
    data: [Value; DATA],
    slice: [Value; LEN],
    matrix: [Value; ROWS * COLUMNS],
}

/// The same for tasks.
struct Shared<'v> {
    data: [Data<u64>; DATA],
    slice: DataSlice<'v, u64>,
    matrix: DataMatrix<'v, u64>,
}

/// What a task is to come to, if that is known.
type Told<'s> = (ScopedTask<'s, u64>, Option<Option<u64>>);

fn mix(x: u64, y: u64) -> u64 {
    (x ^ y).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23)
}

/// What a task gives: nothing, if it is to fail.
fn given(fails: bool, value: u64) -> Result<u64> {
    if fails { Err("as the seed has it".into()) } else { Ok(value) }
}

/// A task writes these, each of which becomes what this makes of it.
fn write<'m>(
    values: impl IntoIterator<Item = &'m mut Value>,
    goes_well: bool,
    mut becomes: impl FnMut(u64) -> u64,
) {
    for value in values {
        *value = Value { now: becomes(value.now), is_bad: !goes_well };
    }
}

fn sum(values: &[Value]) -> (u64, bool) {
    let sum = values.iter().fold(0, |sum, value| mix(sum, value.now));
    (sum, values.iter().any(|value| value.is_bad))
}

fn some(random: &mut fastrand::Rng, len: usize) -> Range<usize> {
    let (a, b) = (random.usize(0..=len), random.usize(0..=len));
    a.min(b)..a.max(b)
}

/// Spawns a task, and does in order what it does.
fn step<'s>(
    d: &'s DataDeps<'s, '_>,
    all: &'s Shared<'_>,
    model: &mut Model,
    random: &mut fastrand::Rng,
    failures: f64,
) -> Option<Told<'s>> {
    let (key, fails) = (random.u64(..), random.f64() < failures);
    let [a, b, c] = [0; 3].map(|_| random.usize(0..DATA));
    if a == b || b == c || a == c {
        return None;
    }
    let Model { data, slice, matrix } = model;
    let told = |is_bad: bool, value: u64| (!is_bad && !fails).then_some(value);
    let part = some(random, LEN);
    let (rows, columns) = (some(random, ROWS), some(random, COLUMNS));
    let tile: Vec<usize> =
        rows.clone().flat_map(|i| columns.clone().map(move |j| i * COLUMNS + j)).collect();
    Some(match random.u8(0..12) {
        0 => {
            let Value { now, is_bad } = data[a];
            write([&mut data[b]], !is_bad && !fails, |_| mix(now, key));
            let uses = (d.read(&all.data[a]), d.overwrite(&all.data[b]));
            let task = d.spawn(uses, move |a, b| {
                *b = mix(*a, key);
                given(fails, *b)
            });
            (task, Some(told(is_bad, data[b].now)))
        }
        1 => {
            let is_bad = data[a].is_bad || data[b].is_bad || data[c].is_bad;
            let other = data[a].now.wrapping_add(data[b].now);
            write([&mut data[c]], !is_bad && !fails, |c| mix(c, other));
            let uses = (d.read(&all.data[a]), d.read(&all.data[b]), d.write(&all.data[c]));
            let task = d.spawn(uses, move |a, b, c| {
                *c = mix(*c, a.wrapping_add(*b));
                given(fails, *c)
            });
            (task, Some(told(is_bad, data[c].now)))
        }
        2 => {
            let is_bad = data[a].is_bad || data[b].is_bad;
            data.swap(a, b);
            for i in [a, b] {
                data[i].is_bad = is_bad || fails;
            }
            let task = d.spawn((d.write_all([&all.data[a], &all.data[b]]),), move |mut both| {
                let (first, second) = both.split_at_mut(1);
                std::mem::swap(first[0], second[0]);
                given(fails, *first[0])
            });
            (task, Some(told(is_bad, data[a].now)))
        }
        // Of those that fail only what comes after is known: others may have run, or not.
        3 | 4 => {
            let goes_well = !data[a].is_bad && !fails;
            write([&mut data[a]], goes_well, |x| x.wrapping_add(key));
            let task = d.spawn((d.commute(&all.data[a]),), move |x| {
                *x = x.wrapping_add(key);
                given(fails, 0)
            });
            (task, None)
        }
        // Of these, one could take the failure of one of the data to the other.
        5 if failures == 0.0 => {
            for i in [a, b] {
                write([&mut data[i]], true, |x| x.wrapping_add(key));
            }
            let uses = (d.commute(&all.data[b]), d.commute(&all.data[a]));
            let task = d.spawn(uses, move |x, y| {
                *x = x.wrapping_add(key);
                *y = y.wrapping_add(key);
                Ok(0)
            });
            (task, None)
        }
        5..=7 => {
            let Value { now, is_bad } = data[b];
            let goes_well = !data[a].is_bad && !is_bad && !fails;
            write([&mut data[a]], goes_well, |x| mix(x, now ^ key));
            let part = d.reduce(&all.data[a], move || key, |sum, part| *sum = mix(*sum, part));
            let task = d.spawn((part, d.read(&all.data[b])), move |part, b| {
                *part ^= *b;
                given(fails, *part)
            });
            (task, Some(told(is_bad, now ^ key)))
        }
        8 => {
            let (other, bad) = sum(&slice[part.clone()]);
            let is_bad = bad || data[a].is_bad;
            write([&mut data[a]], !is_bad && !fails, |x| mix(x, other));
            let uses = (d.write(&all.data[a]), d.read(all.slice.range(part)));
            let task = d.spawn(uses, move |a, part| {
                *a = mix(*a, part.iter().fold(0, |sum, x| mix(sum, *x)));
                given(fails, *a)
            });
            (task, Some(told(is_bad, data[a].now)))
        }
        9 => {
            let is_bad = sum(&slice[part.clone()]).1;
            write(&mut slice[part.clone()], !is_bad && !fails, |x| mix(x, key));
            let task = d.spawn((d.write(all.slice.range(part)),), move |part| {
                part.iter_mut().for_each(|x| *x = mix(*x, key));
                given(fails, 0)
            });
            (task, Some(told(is_bad, 0)))
        }
        10 => {
            write(&mut slice[part.clone()], !fails, |_| key);
            let task = d.spawn((d.overwrite(all.slice.range(part)),), move |part| {
                part.fill(key);
                given(fails, 0)
            });
            (task, Some(told(false, 0)))
        }
        _ => {
            let is_bad = tile.iter().any(|i| matrix[*i].is_bad);
            let overwrites = random.bool();
            let goes_well = !fails && (overwrites || !is_bad);
            for i in &tile {
                write([&mut matrix[*i]], goes_well, |x| if overwrites { key } else { mix(x, key) });
            }
            let view = all.matrix.tile(rows, columns);
            let uses = if overwrites { d.overwrite(view) } else { d.write(view) };
            let task = d.spawn((uses,), move |tile| {
                for x in tile.into_iter().flatten() {
                    *x = if overwrites { key } else { mix(*x, key) };
                }
                given(fails, 0)
            });
            (task, Some(told(is_bad && !overwrites, 0)))
        }
    })
}

/// A program of two regions.
fn program(ctx: &Ctx, seed: u64, failures: f64) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut model = Model {
        data: Default::default(),
        slice: [Value::default(); LEN],
        matrix: [Value::default(); ROWS * COLUMNS],
    };
    let (mut slice, mut matrix) = ([0; LEN], [0; ROWS * COLUMNS]);
    let mut all = Shared {
        data: Default::default(),
        slice: DataSlice::new(&mut slice),
        matrix: DataMatrix::new(&mut matrix, COLUMNS)?,
    };
    for _ in 0..2 {
        ctx.datadeps(|d| {
            let mut tasks = Vec::new();
            for _ in 0..200 {
                tasks.extend(step(d, &all, &mut model, &mut random, failures));
                if random.u8(..) < 10 {
                    check(tasks.drain(..), seed)?;
                }
            }
            check(tasks, seed)
        })?;
    }
    let same = |value: &Value, now: u64| value.is_bad || value.now == now;
    for (value, data) in model.data.iter().zip(&mut all.data) {
        assert!(same(value, *data.get_mut()), "seed {seed}");
    }
    drop(all);
    let arrays = model.slice.iter().zip(slice).chain(model.matrix.iter().zip(matrix));
    for (value, now) in arrays {
        assert!(same(value, now), "seed {seed}");
    }
    Ok(())
}

fn check<'s>(tasks: impl IntoIterator<Item = Told<'s>>, seed: u64) -> Result<()> {
    for (task, told) in tasks {
        match (task.take(), told) {
            (Ok(value), Some(told)) => assert_eq!(Some(value), told, "seed {seed}"),
            (Err(error), Some(told)) => assert_eq!(told, None, "seed {seed}: {error}"),
            (_, None) => {}
        }
    }
    Ok(())
}

/// Of each kind; with a sanitizer one takes several times as long, and shows the same of memory.
const PROGRAMS: u64 = if cfg!(sanitizer) { 12 } else { 60 };

#[test]
fn programs_that_go_well() -> Result<()> {
    let all = |ctx: &Ctx| (0..PROGRAMS).try_for_each(|seed| program(ctx, seed, 0.0));
    World::default().everywhere("programs::programs_that_go_well", &[1, 2, 4], all)?;
    processes("programs::programs_that_go_well", 1, &[("SPMD_CORES", "1")], all)
}

#[test]
fn programs_with_failures() -> Result<()> {
    let all = |ctx: &Ctx| (100..100 + PROGRAMS).try_for_each(|seed| program(ctx, seed, 0.05));
    World::default().everywhere("programs::programs_with_failures", &[1, 2, 4], all)?;
    processes("programs::programs_with_failures", 1, &[("SPMD_CORES", "1")], all)
}
