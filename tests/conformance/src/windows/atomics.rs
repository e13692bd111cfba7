//! What is atomic: operations on elements of others.

use crate::prelude::*;
use num_complex::Complex;

use super::turns;

pub(super) fn operations(ctx: &Ctx) -> Result<()> {
    each_operation(ctx, |i| i as u8)?;
    each_operation(ctx, |i| i as i32 - 5)?;
    each_operation(ctx, |i| i as u64)?;
    each_operation(ctx, |i| i as i128 * 1_000_000_000_000)?;
    // Sums of few small numbers are exact in any order.
    let sums = |ctx: &Ctx| -> Result<()> {
        folded(ctx, |i| i as f64, Sum)?;
        folded(ctx, |i| i as f32, Max)?;
        folded(ctx, |i| Complex::new(i as f32, 1.0), Sum)?;
        folded(ctx, |i| Complex::new(i as f64, 1.0), Sum)?;
        folded(ctx, |i| [i as f32, 2.0, 3.0], Sum)?;
        folded(ctx, |i| i % 2 == 0, BitXor)?;
        folded(ctx, |i| i % 3 == 0, LogicalOr)?;
        folded(ctx, |i| Located::new((i % 5) as f32, i), MaxLoc)?;
        folded(ctx, |i| i as u16, Op::new(|a: u16, b: u16| a.wrapping_mul(3) ^ b.wrapping_mul(3)))
    };
    sums(ctx)
}

fn each_operation<T>(ctx: &Ctx, value: impl Fn(usize) -> T + Copy) -> Result<()>
where
    T: Element + PartialEq + std::fmt::Debug,
    Sum: Operation<T>,
    Prod: Operation<T>,
    Min: Operation<T>,
    Max: Operation<T>,
    BitAnd: Operation<T>,
    BitOr: Operation<T>,
    BitXor: Operation<T>,
    LogicalAnd: Operation<T>,
    LogicalOr: Operation<T>,
{
    folded(ctx, value, Sum)?;
    folded(ctx, value, Prod)?;
    folded(ctx, value, Min)?;
    folded(ctx, value, Max)?;
    folded(ctx, value, BitAnd)?;
    folded(ctx, value, BitOr)?;
    folded(ctx, value, BitXor)?;
    folded(ctx, value, LogicalAnd)?;
    folded(ctx, value, LogicalOr)
}

/// One rank changes each part, in several calls; others do in turn.
fn folded<T, O>(ctx: &Ctx, value: impl Fn(usize) -> T, op: O) -> Result<()>
where
    T: Element + PartialEq + std::fmt::Debug,
    O: Operation<T>,
{
    let (me, n) = (ctx.rank(), ctx.size());
    let next = (me + 1) % n;
    let window = ctx.window::<T>(40)?;
    let start: Vec<T> = (0..40).map(|i| value(i + 7)).collect();
    window.write(0, &start)?;
    window.fence()?;
    let given: Vec<T> = (0..10).map(|i| value(3 * i + me)).collect();
    window.accumulate(&given, next, At::strided(1, 5, 2, 4), &op)?;
    let mut before = vec![value(0); 10];
    window.get_accumulate(&given, &mut before, next, 25, &op)?;
    assert_eq!(before, start[25..35]);
    assert_eq!(window.fetch_and_op(given[1], next, 39, &op)?, start[39]);
    window.fence()?;
    let by = (me + n - 1) % n;
    let mut expected = start.clone();
    for i in 0..10 {
        let given = value(3 * i + by);
        for place in [1 + i / 2 * 4 + i % 2, 25 + i] {
            expected[place] = op.combine(start[place], given);
        }
    }
    expected[39] = op.combine(start[39], value(3 + by));
    assert_eq!(window.read(..)?, expected);
    Ok(())
}

pub(super) fn replaced_and_read(ctx: &Ctx) -> Result<()> {
    let window = ctx.window::<f64>(3)?;
    window.fence()?;
    if ctx.rank() == 0 {
        let target = ctx.size() - 1;
        window.accumulate(&[1.0, 2.0, 3.0], target, 0, Replace)?;
        assert_eq!(window.fetch_and_op(9.0, target, 1, NoOp)?, 2.0);
        let mut gap = [0.0; 6];
        window.get_accumulate(&[7.0; 3], &mut strided_mut(&mut gap, 3, 1, 2)?, target, 0, NoOp)?;
        assert_eq!(gap, [1.0, 0.0, 2.0, 0.0, 3.0, 0.0]);
    }
    window.fence()
}

/// All take tickets at once: each number once.
pub(super) fn tickets(ctx: &Ctx) -> Result<()> {
    let turns = turns(ctx, 10_000) as u64;
    let (n, last) = (ctx.size(), ctx.size() - 1);
    let window = ctx.window::<u64>(3)?;
    let real = ctx.window::<f64>(1)?;
    window.lock_all()?;
    real.lock_all()?;
    let mut least = 0;
    let mut sum = 0;
    for turn in 0..turns {
        let ticket = window.fetch_and_op(1, last, 1, Sum)?;
        assert!(ticket >= least);
        least = ticket + 1;
        sum += ticket;
        if turn % 10 == 0 {
            real.accumulate(&[0.5], 0, 0, Sum)?;
            // One that is free is taken by one rank.
            let mut seen = window.fetch_and_op(0, last, 2, NoOp)?;
            while {
                let there = window.compare_and_swap(seen, seen + 2, last, 2)?;
                let again = there != seen;
                seen = there;
                again
            } {}
        }
    }
    window.unlock_all()?;
    real.unlock_all()?;
    let all = n as u64 * turns;
    assert_eq!(ctx.allreduce_value(sum, Sum)?, all * (all - 1) / 2);
    if ctx.rank() == last {
        assert_eq!(window.read(..)?, [0, all, all / 10 * 2]);
    }
    if ctx.rank() == 0 {
        assert_eq!(real.read(..)?, [(all / 10) as f64 * 0.5]);
    }
    Ok(())
}

/// Elements of several words are changed by one rank at a time.
pub(super) fn long_elements(ctx: &Ctx) -> Result<()> {
    let turns = turns(ctx, 300);
    let window = ctx.window::<[u64; 3]>(2)?;
    window.lock_all()?;
    for _ in 0..turns {
        let before = window.fetch_and_op([1, 10, 100], 0, 1, Sum)?;
        assert_eq!([before[0] * 10, before[0] * 100], [before[1], before[2]]);
    }
    window.unlock_all()?;
    window.fence()?;
    let all = (turns * ctx.size()) as u64;
    let mut sum = [[0; 3]];
    window.get(&mut sum, 0, 1)?;
    assert_eq!(sum, [[all, 10 * all, 100 * all]]);
    window.fence()
}
