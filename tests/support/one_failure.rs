//! What ranks do of which those of one process fail, and how the others go on.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use spmd::prelude::*;

use crate::use_all::use_all;

/// How long a survivor may take to learn of a failure; with a sanitizer all takes several times as long.
pub const BOUND: Duration = Duration::from_secs(if cfg!(sanitizer) { 25 } else { 5 });

/// Makes communicators of all ranks until that fails.
pub fn split_for_ever(ctx: &Ctx) -> Result<Infallible> {
    loop {
        ctx.split(Some(0), 0)?;
    }
}

/// Meets all, and lets the process of `victim`, one of `each` ranks, `fail`. The others wait `at`
/// something, learn of the failure, and go on without that process. Whether this rank has done so.
pub fn survived(
    ctx: &Ctx,
    (at, victim, each): (&str, usize, usize),
    fail: impl FnOnce() -> Result<()>,
) -> Result<bool> {
    let met = ctx.barrier();
    if ctx.rank() == victim {
        return fail().map(|()| false);
    }
    let start = Instant::now();
    let failed = match at {
        // It was gone before all had heard from it in the barrier.
        _ if met.is_err() => met.unwrap_err(),
        "collective" => ctx.allreduce_in_place(&mut vec![1.0; 200_000], Sum).unwrap_err(),
        "receive" => ctx.recv(&mut [0], victim, 0).unwrap_err(),
        "send" => ctx.send(&vec![0u8; 3_000_000], victim, 0).unwrap_err(),
        "split" => split_for_ever(ctx).unwrap_err(),
        // From another survivor, which sends nothing.
        "other" => ctx.recv(&mut [0], (victim + 1) % ctx.size(), 0).unwrap_err(),
        _ => {
            std::thread::sleep(Duration::from_secs(1));
            ctx.barrier().unwrap_err()
        }
    };
    assert!(start.elapsed() < BOUND, "{:?}", start.elapsed());
    // A process is missed with all its ranks.
    let of_it = |rank| rank / each == victim / each;
    assert!(matches!(&failed, Error::PeerFailed(peer) if of_it(peer.rank)), "{failed}");
    let comm = ctx.shrink()?;
    assert_eq!(comm.size(), ctx.size() - each);
    use_all(&comm)?;
    let again = comm.shrink()?;
    assert_eq!((again.rank(), again.size()), (comm.rank(), comm.size()));
    use_all(&again)?;
    Ok(true)
}
