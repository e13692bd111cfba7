//! Communicators made from others, while others are busy.

use crate::prelude::*;

use super::cases::cases_on;

/// Halves, thirds and copies at work, with messages on the way on a communicator of their own.
pub fn busy(ctx: &Ctx) -> Result<()> {
    let (n, me) = (ctx.size(), ctx.rank());
    let letters = ctx.dup()?;
    let next = (me + 1) % n;
    (0..20).try_for_each(|tag| letters.send(&vec![me; 40], next, tag))?;

    // In reverse order: the last rank of the world is the first of its half.
    let half = ctx.split(Some(me as u32 % 2), -(me as i32))?.expect("every rank has a color");
    assert_eq!(half.world_rank(half.rank()), me);
    assert_eq!(half.rank(), (half.size() - 1) - me / 2);
    cases_on(Some(ctx), &half)?;
    if me.is_multiple_of(2) {
        // The other half is ahead, in the calls below.
        cases_on(Some(ctx), &half.dup()?)?;
    }

    // Some ranks stay outside; with 3 ranks and more, the part wraps around them.
    let inside = me % 3 != 1;
    let part = ctx.split(inside.then_some(7), 0)?;
    assert_eq!(part.is_some(), inside);
    if let Some(part) = &part {
        let quarter = part.split(Some(part.rank() as u32 / 2), 0)?.expect("a color");
        cases_on(None, &quarter)?;
        cases_on(Some(ctx), part)?;
    }
    drop(part);
    assert_eq!(ctx.split(None, 0)?.map(|comm| comm.size()), None);

    let last = (me + n - 1) % n;
    for tag in (0..20).rev() {
        let mut got = [0; 40];
        let status = letters.recv(&mut got, last, tag)?;
        assert_eq!((got, status.source(), status.tag()), ([last; 40], last, tag));
    }
    assert_eq!(ctx.split_host()?.size(), n);
    ctx.barrier()
}

/// Several threads of each rank, each with a communicator of its own, and the rank itself.
pub fn agents(ctx: &Ctx) -> Result<()> {
    let mut threads = Vec::new();
    for _ in 0..3 {
        let comm = ctx.dup()?;
        threads.push(std::thread::spawn(move || cases_on(None, &comm)));
    }
    cases_on(Some(ctx), ctx)?;
    // A virtual rank must not block its worker, on which others run.
    while threads.iter().any(|thread| !thread.is_finished()) {
        ctx.iprobe(ANY, ANY)?;
    }
    threads.into_iter().try_for_each(|thread| thread.join().expect("a failure is an error"))
}
