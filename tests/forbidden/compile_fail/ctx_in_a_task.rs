//! A task is no rank: it takes a communicator of its own.

use spmd::prelude::*;

fn main() {
    let _ = spmd(2, |ctx| {
        ctx.scope(|s| {
            s.spawn(|| ctx.barrier());
            Ok(())
        })
    });
}
