//! What windows must do, for any world to run.

mod atomics;
mod random;
mod synchronization;

use std::ops::Range;

use crate::prelude::*;
use num_complex::Complex;

pub(crate) use random::RandomWindow;

/// All cases.
pub fn all(ctx: &Ctx) -> Result<()> {
    for case in [
        lengths,
        every_type,
        gaps,
        ring_of_puts,
        atomics::operations,
        atomics::replaced_and_read,
        atomics::tickets,
        atomics::long_elements,
        synchronization::exclusion,
        synchronization::readers_and_writers,
        synchronization::locks_of_several,
        synchronization::flushes,
        synchronization::one_of_two_sees_the_other,
        synchronization::notifications,
        gathered,
        many_windows,
        of_parts,
        ends,
        random::random_programs,
    ] {
        case(ctx)?;
        ctx.barrier()?;
    }
    Ok(())
}

/// So many turns, or fewer where other processes answer what is asked in each.
fn turns(ctx: &Ctx, beside: usize) -> usize {
    if ctx.mpi_handle().is_some() { beside / 10 } else { beside }
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

fn gathered(ctx: &Ctx) -> Result<()> {
    let (me, n) = (ctx.rank(), ctx.size());
    let window = ctx.window::<u32>(64)?;
    window.fence()?;
    let updates = turns(ctx, 1000);
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

/// Windows of parts of the ranks and of all, at the same time.
fn of_parts(ctx: &Ctx) -> Result<()> {
    let (me, n) = (ctx.rank(), ctx.size());
    for color in [me / 2, me % 2] {
        let part = ctx.split(Some(color as u32), -(me as i32))?.expect("a color");
        let (own, all) = (part.window::<usize>(part.size())?, ctx.window::<usize>(n)?);
        own.fence()?;
        all.fence()?;
        (0..part.size()).try_for_each(|rank| own.put(&[me], rank, part.rank()))?;
        (0..n).try_for_each(|rank| all.put(&[part.rank()], rank, me))?;
        own.fence()?;
        all.fence()?;
        assert_eq!(own.read(..)?, part.allgather_value(me)?);
        assert_eq!(all.read(..)?, ctx.allgather_value(part.rank())?);
        drop(part);
        own.free()?;
        all.free()?;
    }
    Ok(())
}

/// Rank 0 uses the part of the last one, which meanwhile is in a barrier of all ranks.
pub fn used_during_barriers(ctx: &Ctx) -> Result<()> {
    type Use = fn(&Window<u64>, usize) -> Result<()>;
    let last = ctx.size() - 1;
    let uses: [Use; 3] = [
        |window, target| {
            window.lock(target)?;
            window.unlock(target)
        },
        |window, target| window.get(&mut [0], target, 0),
        |window, target| {
            // That locks something on rank 0.
            window.lock_all()?;
            window.put(&[1], target, 0)?;
            window.flush(target)?;
            window.unlock_all()
        },
    ];
    let window = ctx.window::<u64>(1)?;
    for used in uses {
        window.fence()?;
        ctx.barrier()?;
        if ctx.rank() == 0 {
            used(&window, last)?;
        }
        ctx.barrier()?;
    }
    window.fence()
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
