//! Calls that some ranks make in place and others not: which form a rank takes is its own matter.

use crate::prelude::*;

/// Every collective that has a form in place and serves all ranks, on short data and on long.
pub fn forms(ctx: &Ctx) -> Result<()> {
    for count in [1, 1000, 40_000] {
        for odd in [0, 1] {
            of_length(ctx, count, ctx.rank() % 2 == odd)?;
        }
    }
    Ok(())
}

fn of_length(ctx: &Ctx, count: usize, in_place: bool) -> Result<()> {
    let (n, me) = (ctx.size(), ctx.rank());
    let mine = vec![me as u64 + 1; count];
    let blank = vec![0u64; count];
    let sum = |ranks: usize| (1..=ranks as u64).sum::<u64>();

    let mut buf = if in_place { mine.clone() } else { blank.clone() };
    match in_place {
        true => ctx.allreduce_in_place(&mut buf, Sum)?,
        false => ctx.allreduce(&mine, &mut buf, Sum)?,
    }
    assert!(buf.iter().all(|it| *it == sum(n)), "allreduce of {count}");

    let mut buf = if in_place { mine.clone() } else { blank };
    match in_place {
        true => ctx.scan_in_place(&mut buf, Sum)?,
        false => ctx.scan(&mine, &mut buf, Sum)?,
    }
    assert!(buf.iter().all(|it| *it == sum(me + 1)), "scan of {count}");

    let mut all = vec![0; n * count];
    match in_place {
        true => {
            all[me * count..][..count].copy_from_slice(&mine);
            ctx.allgather_in_place(&mut all)?;
        }
        false => ctx.allgather(&mine, &mut all)?,
    }
    let expected = (0..n * count).map(|index| (index / count) as u64 + 1);
    assert!(all.iter().copied().eq(expected), "allgather of {count}");
    Ok(())
}
