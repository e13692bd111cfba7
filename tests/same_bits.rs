//! The same bits: a sum of floating-point numbers does not depend on where ranks run, on the
//! algorithm, on the segment, on the memory, or on the run.

mod support;

use spmd::prelude::*;
use spmd_conformance::element::{bytes, random};
use spmd_conformance::full;
use spmd_core::algorithm::find;
use support::World;

const LENGTHS: [usize; 9] = [1, 2, 3, 17, 100, 1000, 1024, 1025, 6000];

/// Numbers of very different sizes, so that the order of additions shows.
fn number(rank: usize, index: usize) -> f32 {
    let random = random(5, rank, index);
    let sign = if random & 1 == 0 { 1.0 } else { -1.0 };
    sign * (1.0 + (random >> 40) as f32 / (1 << 24) as f32) * 2f32.powi((random >> 8) as i32 % 20)
}

fn numbers(rank: usize, count: usize) -> Vec<f32> {
    (0..count).map(|index| number(rank, index)).collect()
}

/// The canonical order: on the left, as many ranks as the largest power of two below their number.
fn sum(lo: usize, hi: usize, index: usize) -> f32 {
    if hi - lo == 1 {
        return number(lo, index);
    }
    let middle = lo + (hi - lo).next_power_of_two() / 2;
    sum(lo, middle, index) + sum(middle, hi, index)
}

fn same(what: &str, got: &[f32], expected: &[f32]) -> Result<()> {
    if bytes(got) == bytes(expected) {
        return Ok(());
    }
    let differ =
        got.iter().zip(expected).filter(|(got, expected)| got.to_bits() != expected.to_bits());
    Err(Error::from(format!("{what}: {} of {} elements differ", differ.count(), got.len())))
}

/// Every reduction, `runs` times for each length.
fn sums(ctx: &Ctx, runs: usize) -> Result<()> {
    let (n, me) = (ctx.size(), ctx.rank());
    for count in LENGTHS {
        let mine = numbers(me, count);
        let all: Vec<f32> = (0..count).map(|index| sum(0, n, index)).collect();
        let up_to_here: Vec<f32> = (0..count).map(|index| sum(0, me + 1, index)).collect();
        let mut shared = ctx.alloc_shared::<f32>(count)?;
        shared.copy_from_slice(&mine);
        let block = count.div_ceil(n);
        let (padded, mut part) = (numbers(me, block * n), vec![0.0; block]);
        let my_part: Vec<f32> = (0..block).map(|at| sum(0, n, me * block + at)).collect();
        for run in 0..runs {
            let mut got = vec![0.0; count];
            ctx.allreduce(&mine, &mut got, Sum)?;
            same("allreduce", &got, &all)?;
            if run % 2 == 0 {
                ctx.allreduce(&shared, &mut got, Sum)?;
                same("allreduce of shared memory", &got, &all)?;
            }
            let root = run % n;
            got.copy_from_slice(&mine);
            ctx.reduce_in_place(&mut got, Sum, root)?;
            same("reduce", &got, if me == root { &all } else { &mine })?;
            ctx.scan(&mine, &mut got, Sum)?;
            same("scan", &got, &up_to_here)?;
            ctx.reduce_scatter(&padded, &mut part, Sum)?;
            same("reduce_scatter", &part, &my_part)?;
        }
    }
    Ok(())
}

fn forced(algorithm: &'static str) -> World {
    let scan = if algorithm == "tree" { "doubling" } else { algorithm };
    let mut forced = vec![
        ("allreduce", algorithm),
        ("reduce", algorithm),
        ("reduce_scatter", algorithm),
        ("scan", scan),
    ];
    forced.retain(|(call, algorithm)| find(call, algorithm).is_ok());
    World { forced, segment: Some(2048), ..Default::default() }
}

/// With twelve kinds of worlds, nine runs in each are more than a hundred.
#[test]
fn sums_of_f32() -> Result<()> {
    let runs = if full() { 100 } else { 9 };
    let all: Vec<usize> = (1..=16).collect();
    let most = if full() { &all[..] } else { &[1, 2, 3, 5, 8, 11, 16] };
    World::default().everywhere("sums_of_f32", most, |ctx| sums(ctx, runs))?;
    let some = if full() { &all[..] } else { &[2, 5, 11] };
    for algorithm in ["flat", "tree", "central", "combining", "chunked"] {
        forced(algorithm).everywhere("sums_of_f32", some, |ctx| sums(ctx, runs))?;
    }
    Ok(())
}

/// A scan gives each rank the bits of a reduction over the ranks up to it.
#[test]
fn scans_are_reductions_over_prefixes() -> Result<()> {
    World::default().everywhere("scans_are_reductions_over_prefixes", &[2, 5, 8, 11], |ctx| {
        for count in [1, 700, 3000] {
            let mine = numbers(ctx.rank(), count);
            let mut scan = vec![0.0; count];
            ctx.scan(&mine, &mut scan, Sum)?;
            for last in 0..ctx.size() {
                let inside = ctx.rank() <= last;
                let Some(prefix) = ctx.split(inside.then_some(0), 0)? else { continue };
                let mut reduced = vec![0.0; count];
                prefix.allreduce(&mine, &mut reduced, Sum)?;
                if ctx.rank() == last {
                    same("scan", &scan, &reduced)?;
                }
            }
        }
        Ok(())
    })
}

/// The numbers show the order: added up from left to right, many sums are others.
#[test]
fn the_order_shows() {
    let left_to_right =
        |index| (1..16).fold(number(0, index), |sum, rank| sum + number(rank, index));
    let others = (0..1000).filter(|index| left_to_right(*index) != sum(0, 16, *index));
    assert!(others.count() > 300);
}
