//! Locks, flushes and notifications.

use crate::prelude::*;

use super::turns;

/// Two words that are only ever changed together, under a lock.
pub(super) fn exclusion(ctx: &Ctx) -> Result<()> {
    let (turns, target) = (turns(ctx, 300) as u64, ctx.size() / 2);
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
pub(super) fn readers_and_writers(ctx: &Ctx) -> Result<()> {
    let window = ctx.window::<i32>(2)?;
    for turn in 0..turns(ctx, 200) {
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
pub(super) fn locks_of_several(ctx: &Ctx) -> Result<()> {
    let n = ctx.size();
    let window = ctx.window::<u64>(1)?;
    let turns = turns(ctx, 50);
    for _ in 0..turns {
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
    assert_eq!(window.read(..)?, [(turns * n) as u64]);
    Ok(())
}

/// Of two ranks that each write, flush, and then read what the other writes, one sees the other,
/// however they write.
pub(super) fn one_of_two_sees_the_other(ctx: &Ctx) -> Result<()> {
    let window = ctx.window::<u64>(1)?;
    window.lock_all()?;
    let (me, last) = (ctx.rank(), ctx.size() - 1);
    for turn in 1..=turns(ctx, 400) as u64 {
        ctx.barrier()?;
        let mut seen = [0];
        if (me == 0 || me == last) && last > 0 {
            match turn % 3 {
                0 => window.put(&[turn], me, 0)?,
                1 => _ = window.fetch_and_op(turn, me, 0, Replace)?,
                _ => window.accumulate(&[1], me, 0, Sum)?,
            }
            window.flush(me)?;
            window.get(&mut seen, last - me, 0)?;
        }
        let mut most = [0];
        ctx.allreduce(&seen, &mut most, Max)?;
        // Not what ranks bring that do not take part.
        assert!(last == 0 || most == [turn], "{most:?} of {turn}");
    }
    window.unlock_all()
}

/// Data that are flushed are there when a flag is.
pub(super) fn flushes(ctx: &Ctx) -> Result<()> {
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

pub(super) fn notifications(ctx: &Ctx) -> Result<()> {
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
