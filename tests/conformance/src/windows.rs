//! What windows must do, for any world to run.

use std::ops::Range;

use num_complex::Complex;
use spmd::prelude::*;

/// All cases.
pub fn all(ctx: &Ctx) -> Result<()> {
    for case in [
        lengths,
        every_type,
        gaps,
        ring_of_puts,
        operations,
        replaced_and_read,
        tickets,
        long_elements,
        exclusion,
        readers_and_writers,
        locks_of_several,
        flushes,
        notifications,
        gathered,
        many_windows,
        ends,
        random_programs,
    ] {
        case(ctx)?;
        ctx.barrier()?;
    }
    Ok(())
}

/// How many elements a rank gives.
fn length(rank: usize) -> usize {
    rank * 37 % 50
}

/// Parts of different lengths, some empty, all zero.
fn lengths(ctx: &Ctx) -> Result<()> {
    let window = ctx.window::<f32>(length(ctx.rank()))?;
    assert_eq!(window.len(), length(ctx.rank()));
    assert_eq!(window.is_empty(), length(ctx.rank()) == 0);
    window.fence()?;
    for rank in 0..ctx.size() {
        assert_eq!(window.len_of(rank)?, length(rank));
        let mut all = vec![1.0; length(rank)];
        window.get(&mut all, rank, 0)?;
        assert_eq!(all, vec![0.0; length(rank)]);
        // Nothing, at the end.
        window.put(&[0.0f32; 0], rank, length(rank))?;
        window.get(&mut [0.0f32; 0], rank, length(rank))?;
    }
    window.fence()?;
    let empty = ctx.window::<[u64; 3]>(0)?;
    empty.fence()?;
    assert_eq!(empty.read(..)?, [] as [[u64; 3]; 0]);
    empty.free()
}

fn every_type(ctx: &Ctx) -> Result<()> {
    of_type(ctx, |i| i as u8)?;
    of_type(ctx, |i| i as i16 - 50)?;
    of_type(ctx, |i| i as i32 - 50)?;
    of_type(ctx, |i| i as u64 * 1_000_000_007)?;
    of_type(ctx, |i| i as f64 / 3.0)?;
    of_type(ctx, |i| i as u128 * 1_000_000_000_000_000_000_000)?;
    of_type(ctx, |i| Complex::new(i as f32, -1.0))?;
    of_type(ctx, |i| Complex::new(i as f64, -1.0))?;
    of_type(ctx, |i| [i as f32, 1.5, -1.0])?;
    of_type(ctx, |i| [i as u8; 5])?;
    of_type(ctx, |i| i % 3 == 0)?;
    of_type(ctx, |i| char::from_u32(0x3b1 + i as u32).unwrap_or('x'))?;
    of_type(ctx, |i| Located::new(i as f64, i))
}

/// Writes and reads elements at many places and of many lengths, in the next rank's part.
fn of_type<T: Element + PartialEq + std::fmt::Debug>(
    ctx: &Ctx,
    value: impl Fn(usize) -> T,
) -> Result<()> {
    let n = 3000;
    let (next, from) = ((ctx.rank() + 1) % ctx.size(), (ctx.rank() + ctx.size() - 1) % ctx.size());
    let window = ctx.window::<T>(n)?;
    let pieces: [Range<usize>; 9] =
        [0..1, 1..2, 5..5, 7..8, 9..12, 13..300, 301..302, 302..1500, 1501..3000];
    window.fence()?;
    for piece in &pieces {
        let values: Vec<T> = piece.clone().map(|i| value(i + ctx.rank())).collect();
        window.put(&values, next, piece.start)?;
    }
    window.fence()?;
    let own = window.read(..)?;
    for piece in &pieces {
        for i in piece.clone() {
            assert_eq!(own[i], value(i + from), "element {i}");
        }
        let mut back = vec![value(0); piece.len()];
        window.get(&mut back, next, piece.start)?;
        let expected: Vec<T> = piece.clone().map(|i| value(i + ctx.rank())).collect();
        assert_eq!(back, expected);
    }
    window.fence()?;
    window.write(2, &[value(77)])?;
    assert_eq!(window.read(2..=2)?, [value(77)]);
    // Whether it is there is seen by its bytes.
    window.lock(next)?;
    let there = value(9 + ctx.rank());
    assert_eq!(window.compare_and_swap(there, value(88), next, 9)?, there);
    assert_eq!(window.compare_and_swap(value(99), value(3), next, 9)?, value(88));
    assert_eq!(window.fetch_and_op(value(0), next, 9, NoOp)?, value(88));
    window.unlock(next)
}

/// Patterns on both sides.
fn gaps(ctx: &Ctx) -> Result<()> {
    let (next, n) = ((ctx.rank() + 1) % ctx.size(), 20_000);
    let window = ctx.window::<u32>(n)?;
    window.write(0, &vec![9; n])?;
    window.fence()?;
    let source: Vec<u32> = (0..n as u32).collect();
    // One column, a block of columns, long runs, from memory without and with gaps.
    window.put(&source[..5], next, At::strided(3, 5, 1, 7))?;
    window.put(&strided(&source, 6, 2, 5)?, next, At::strided(100, 3, 4, 10))?;
    window.put(&strided(&source, 4, 1000, 4000)?, next, At::strided(1000, 2, 2000, 9000))?;
    window.put(&subarray(&source, &[100, 200], &[10..12, 5..8])?, next, 200)?;
    window.fence()?;
    let mut expected = vec![9; n];
    (0..5).for_each(|i| expected[3 + 7 * i] = i as u32);
    for i in 0..12 {
        expected[100 + i / 4 * 10 + i % 4] = (i / 2 * 5 + i % 2) as u32;
    }
    for i in 0..4000 {
        expected[1000 + i / 2000 * 9000 + i % 2000] = (i / 1000 * 4000 + i % 1000) as u32;
    }
    for (i, place) in [2005, 2006, 2007, 2205, 2206, 2207].into_iter().enumerate() {
        expected[200 + i] = place;
    }
    assert!(window.read(..)? == expected);
    let mut back = vec![0; n];
    window.get(&mut strided_mut(&mut back, 3, 4, 5)?, next, At::strided(100, 3, 4, 10))?;
    window.get(&mut strided_mut(&mut back[100..], 5, 1, 2)?, next, At::strided(3, 5, 1, 7))?;
    assert_eq!(back[..14], [0, 1, 5, 6, 0, 10, 11, 15, 16, 0, 20, 21, 25, 26]);
    assert_eq!(back[100..109], [0, 0, 1, 0, 2, 0, 3, 0, 4]);
    // A pattern of no blocks, and blocks without elements.
    window.get(&mut [0; 0], next, At::strided(n, 0, 5, 7))?;
    window.get(&mut [0; 0], next, At::strided(0, 5, 0, 7))?;
    window.fence()?;
    let flags = ctx.window::<bool>(100)?;
    flags.fence()?;
    flags.put(&strided(&[true, false].repeat(20), 20, 1, 2)?, next, At::strided(1, 20, 1, 3))?;
    flags.fence()?;
    let mut back = [false; 60];
    flags.get(&mut strided_mut(&mut back, 30, 1, 2)?, next, 0)?;
    assert_eq!(back.iter().filter(|flag| **flag).count(), 10);
    flags.fence()
}

/// Who has met in a fence sees all that was put before.
fn ring_of_puts(ctx: &Ctx) -> Result<()> {
    let (me, n) = (ctx.rank(), ctx.size());
    let window = ctx.window::<usize>(n)?;
    window.fence()?;
    for turn in 0..50 {
        (0..n).try_for_each(|rank| window.put(&[turn * 1000 + me], rank, me))?;
        window.fence()?;
        let expected: Vec<usize> = (0..n).map(|rank| turn * 1000 + rank).collect();
        assert_eq!(window.read(..)?, expected);
        // Nobody writes the next turn before all have read this one.
        window.fence()?;
    }
    Ok(())
}

fn operations(ctx: &Ctx) -> Result<()> {
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

fn replaced_and_read(ctx: &Ctx) -> Result<()> {
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
fn tickets(ctx: &Ctx) -> Result<()> {
    let turns = 10_000;
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
fn long_elements(ctx: &Ctx) -> Result<()> {
    let turns = 300;
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

/// Two words that are only ever changed together, under a lock.
fn exclusion(ctx: &Ctx) -> Result<()> {
    let (turns, target) = (300, ctx.size() / 2);
    let window = ctx.window::<u64>(2)?;
    for _ in 0..turns {
        window.lock(target)?;
        let mut pair = [0; 2];
        window.get(&mut pair, target, 0)?;
        assert_eq!(pair[0] * 3, pair[1]);
        window.put(&[pair[0] + 1], target, 0)?;
        window.put(&[pair[1] + 3], target, 1)?;
        window.unlock(target)?;
    }
    ctx.barrier()?;
    if ctx.rank() == target {
        let all = turns * ctx.size() as u64;
        assert_eq!(window.read(..)?, [all, 3 * all]);
    }
    Ok(())
}

/// Some change two words under an exclusive lock, the others look under the two kinds of shared ones.
fn readers_and_writers(ctx: &Ctx) -> Result<()> {
    let window = ctx.window::<i32>(2)?;
    for turn in 0..200 {
        match (ctx.rank() + turn) % 3 {
            0 => {
                window.lock(0)?;
                let mut pair = [0; 2];
                window.get(&mut pair, 0, 0)?;
                assert_eq!(pair[0], -pair[1]);
                window.put(&[pair[0] + 1, pair[1] - 1], 0, 0)?;
                window.unlock(0)?;
            }
            by => {
                if by == 1 {
                    window.lock_shared(0)?
                } else {
                    window.lock_all()?
                }
                let mut pair = [0; 2];
                window.get(&mut pair, 0, 0)?;
                assert_eq!(pair[0], -pair[1]);
                if by == 1 { window.unlock(0)? } else { window.unlock_all()? }
            }
        }
    }
    ctx.barrier()
}

/// Locks of several parts at a time, in the order of the ranks.
fn locks_of_several(ctx: &Ctx) -> Result<()> {
    let n = ctx.size();
    let window = ctx.window::<u64>(1)?;
    for _ in 0..50 {
        (0..n).try_for_each(|rank| window.lock(rank))?;
        for rank in 0..n {
            let mut count = [0];
            window.get(&mut count, rank, 0)?;
            window.put(&[count[0] + 1], rank, 0)?;
        }
        (0..n).try_for_each(|rank| window.unlock(rank))?;
    }
    // A fence, an epoch without accesses, locks, and a fence again.
    window.fence()?;
    window.lock_shared(0)?;
    window.unlock(0)?;
    window.fence()?;
    assert_eq!(window.read(..)?, [50 * n as u64]);
    Ok(())
}

/// Data that are flushed are there when a flag is.
fn flushes(ctx: &Ctx) -> Result<()> {
    let (me, n) = (ctx.rank(), ctx.size());
    let window = ctx.window::<u64>(200)?;
    window.lock_all()?;
    for turn in 1..20u64 {
        if me == 0 {
            for rank in 1..n {
                window.put(&[turn; 100], rank, 10)?;
                window.flush(rank)?;
                window.put(&[turn], rank, 0)?;
            }
            window.flush_all()?;
        } else {
            while window.fetch_and_op(0, me, 0, NoOp)? < turn {
                window.flush(me)?;
            }
            assert!(window.read(10..110)?.iter().all(|it| *it >= turn));
        }
    }
    window.unlock_all()
}

fn notifications(ctx: &Ctx) -> Result<()> {
    let (me, n) = (ctx.rank(), ctx.size());
    let window = ctx.window::<usize>(100 * n)?;
    window.fence()?;
    let (next, from) = ((me + 1) % n, (me + n - 1) % n);
    for turn in 0..20 {
        window.put_notify(&[turn + me; 100], next, 100 * me, turn as u32)?;
        let status = window.wait_notify(from, turn as u32)?;
        assert_eq!((status.source(), status.tag(), status.len()), (from, turn as u32, 0));
        assert_eq!(window.read(100 * from..100 * (from + 1))?, vec![turn + from; 100]);
        // Its sender may write there again.
        window.put_notify(&[0usize; 0], from, 0, 1000)?;
        window.wait_notify(next, 1000)?;
    }
    // Another order than that in which they were sent.
    for tag in 0..10 {
        window.put_notify(&[7], next, At::strided(99, 1, 1, 1), tag)?;
    }
    for tag in (0..9).rev() {
        assert_eq!(window.wait_notify(ANY, tag)?.source(), from);
    }
    assert_eq!(window.wait_notify(ANY, ANY)?.tag(), 9);
    window.fence()
}

fn gathered(ctx: &Ctx) -> Result<()> {
    let (me, n) = (ctx.rank(), ctx.size());
    let window = ctx.window::<u32>(64)?;
    window.fence()?;
    let updates = 1000;
    let place = |i: usize| ((i * 7 + me) % n, i * 13 % 64);
    window.aggregate(|a| {
        for i in 0..updates {
            let (rank, at) = place(i);
            a.accumulate(1, rank, at, Sum)?;
        }
        Ok(())
    })?;
    window.fence()?;
    let own: u32 = window.read(..)?.iter().sum();
    assert_eq!(ctx.allreduce_value(own, Sum)?, (updates * n) as u32);
    let mut counts = vec![0; updates];
    window.aggregate(|a| {
        counts.iter_mut().enumerate().try_for_each(|(i, count)| {
            let (rank, at) = place(i);
            a.get(count, rank, at)
        })
    })?;
    for (i, count) in counts.iter().enumerate() {
        let (mut there, (rank, at)) = ([0], place(i));
        window.get(&mut there, rank, at)?;
        assert_eq!(there, [*count]);
    }
    window.fence()?;
    // What an error ends is carried out as far as it came.
    let ended = window.aggregate(|a| {
        a.put(77, me, 3)?;
        Err::<(), _>("deliberate".into())
    });
    assert!(ended.unwrap_err().to_string().contains("deliberate"));
    assert_eq!(window.read(3..4)?, [77]);
    window.fence()?;
    let long = ctx.window::<[u16; 3]>(5)?;
    long.fence()?;
    let mut read = [[0; 3]; 2];
    long.aggregate(|a| {
        (0..30).try_for_each(|i| a.accumulate([1, 2, 3], (me + 1) % n, i % 5, Sum))?;
        read.iter_mut().try_for_each(|it| a.get(it, (me + 1) % n, 2))
    })?;
    assert_eq!(read, [[6, 12, 18]; 2]);
    long.fence()
}

/// Windows that are made and dropped, in different orders and without meetings.
fn many_windows(ctx: &Ctx) -> Result<()> {
    let mut kept = Vec::new();
    for turn in 0..60 {
        let window = ctx.window::<u8>(turn * 100)?;
        window.lock_all()?;
        window.put(&vec![turn as u8; turn * 100], (ctx.rank() + 1) % ctx.size(), 0)?;
        window.unlock_all()?;
        if (turn + ctx.rank()).is_multiple_of(7) {
            kept.push(window);
        }
        if kept.len() > 3 {
            kept.remove(ctx.rank() % 3);
        }
    }
    Ok(())
}

/// A part is there as long as somebody has the window.
fn ends(ctx: &Ctx) -> Result<()> {
    let window = ctx.window::<u64>(1000)?;
    if ctx.rank() == 0 {
        drop(window);
    } else {
        window.lock(0)?;
        // Rank 0 may have gone on, and made memory of its own.
        window.put(&[u64::MAX; 1000], 0, 0)?;
        window.unlock(0)?;
    }
    let own = vec![7u64; 100_000];
    ctx.barrier()?;
    assert!(own.iter().all(|it| *it == 7));
    Ok(())
}

/// SplitMix64: all ranks draw the same numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) as usize % bound
    }
}

/// Random epochs of random calls against plain memory: each rank carries out its own calls, and
/// computes what all do. In an epoch, an element is put by one rank, or changed by any in one way
/// whose order does not matter, or read.
fn random_programs(ctx: &Ctx) -> Result<()> {
    let programs = if crate::full() { 300 } else { 30 };
    (0..programs).try_for_each(|seed| random_program(ctx, seed))
}

fn random_program(ctx: &Ctx, seed: u64) -> Result<()> {
    let (me, n, mut random) = (ctx.rank(), ctx.size(), Random(seed));
    let lengths: Vec<usize> = (0..n).map(|_| random.below(200)).collect();
    let mut expected: Vec<Vec<i64>> = lengths.iter().map(|len| vec![0; *len]).collect();
    let window = ctx.window::<i64>(lengths[me])?;
    window.fence()?;
    for _ in 0..4 {
        let passive = random.below(2) == 0;
        if passive {
            window.lock_all()?;
        }
        // Which rank puts what element, who changes it (n, n + 1), or that it is read (n + 2).
        let mut plan = |len: &usize| (0..*len).map(|_| random.below(n + 3)).collect();
        let plans: Vec<Vec<usize>> = lengths.iter().map(&mut plan).collect();
        for _ in 0..30 * n {
            let (by, target) = (random.below(n), random.below(n));
            let (first, block) = (random.below(200), 1 + random.below(8));
            let (count, stride) = (1 + random.below(3), block + random.below(5));
            let given = random.below(1000) as i64;
            let places = |i: usize| first + i / block * stride + i % block;
            let all = count * block;
            let plan = |i: usize| plans[target].get(places(i)).copied();
            let Some(kind) = plan(0) else { continue };
            // As long as one kind of call fits.
            let all = (0..all).take_while(|i| plan(*i) == Some(kind)).count();
            let at = if all == count * block && count > 1 {
                At::strided(first, count, block, stride)
            } else {
                At::from(first)
            };
            let all = if at == At::from(first) { all.min(block) } else { all };
            let values: Vec<i64> = (0..all).map(|i| given + i as i64).collect();
            let old: Vec<i64> = (0..all).map(|i| expected[target][places(i)]).collect();
            if kind == by || (n..n + 2).contains(&kind) {
                for (i, value) in values.iter().enumerate() {
                    let there = &mut expected[target][places(i)];
                    *there = match kind {
                        kind if kind == by => *value,
                        kind if kind == n => *there + value,
                        _ => (*there).max(*value),
                    };
                }
            }
            if by != me {
                continue;
            }
            if kind == by {
                window.put(&values, target, at)?;
            } else if kind == n {
                window.accumulate(&values, target, at, Sum)?;
            } else if kind == n + 1 {
                window.accumulate(&values, target, at, Max)?;
            } else if kind == n + 2 {
                let mut there = vec![0; all];
                window.get(&mut there, target, at)?;
                assert_eq!(there, old, "seed {seed}");
            }
        }
        if passive {
            window.unlock_all()?;
        }
        window.fence()?;
        assert_eq!(window.read(..)?, expected[me], "seed {seed}");
        window.fence()?;
    }
    Ok(())
}
