//! Mistakes that ranks of several processes make, and what must be said of each.
//!
//! It is the last rank's, unless all make it. Who is through with it goes on to a barrier.

use spmd::prelude::*;

/// What a rank does wrong, and what must be said of it.
pub type Mistake = (&'static str, fn(&Ctx) -> Result<()>, &'static [&'static str]);

pub fn is_last(ctx: &Ctx) -> bool {
    ctx.rank() + 1 == ctx.size()
}

pub const MISTAKES: &[Mistake] = &[
    ("a panic", |ctx| if is_last(ctx) { panic!("oh no") } else { Ok(()) }, &["panicked", "oh no"]),
    (
        "an error",
        |ctx| if is_last(ctx) { Err("no more data".into()) } else { Ok(()) },
        &["failed: it returned an error: no more data"],
    ),
    (
        "an early exit",
        |ctx| if is_last(ctx) { std::process::exit(7) } else { Ok(()) },
        &["failed: its process exited with status 7"],
    ),
    (
        "a rank that leaves",
        |ctx| if is_last(ctx) { Ok(()) } else { ctx.barrier() },
        &["ended its block while another rank waited for it", "barrier at tests/"],
    ),
    (
        "different calls",
        |ctx| if is_last(ctx) { ctx.broadcast(&mut [1], ctx.rank()) } else { ctx.barrier() },
        &["do not match", "barrier at tests/", "support/mistakes.rs", "broadcast of 1 i32"],
    ),
    (
        "different operations",
        |ctx| match is_last(ctx) {
            true => ctx.allreduce_value(1, Max).map(drop),
            false => ctx.allreduce_value(1, Sum).map(drop),
        },
        &[
            "do not match",
            "with Max at tests/",
            "support/mistakes.rs",
            "with Sum at tests/",
            "support/mistakes.rs",
        ],
    ),
    (
        "different counts",
        |ctx| {
            let count = if is_last(ctx) { 1 } else { 2 };
            ctx.allreduce(&vec![1; count], &mut vec![0; count], Sum)
        },
        &["do not match", "allreduce of 1 i32", "allreduce of 2 i32"],
    ),
    (
        "different roots",
        |ctx| ctx.broadcast(&mut [1], if is_last(ctx) { 1 } else { 0 }),
        &["do not match", "root 0", "root 1"],
    ),
    (
        "a circle of receives",
        |ctx| ctx.recv(&mut [0], (ctx.rank() + 1) % ctx.size(), 0).map(drop),
        &["deadlock", "rank 0: recv", "rank 1: recv", "support/mistakes.rs"],
    ),
    (
        "a circle of synchronous sends",
        |ctx| ctx.ssend(&[0], (ctx.rank() + 1) % ctx.size(), 0),
        &["deadlock", "rank 0: ssend", "rank 1: ssend", "support/mistakes.rs"],
    ),
    (
        "a receive while the others meet",
        |ctx| if is_last(ctx) { ctx.recv(&mut [0], ANY, 0).map(drop) } else { ctx.barrier() },
        &["deadlock", "recv of 1 i32 from any rank", "barrier at tests/", "support/mistakes.rs"],
    ),
    (
        "a message of another type",
        |ctx| match ctx.rank() {
            0 => ctx.recv(&mut [0i32], ctx.size() - 1, 0).map(drop),
            _ if is_last(ctx) => ctx.send(&[0f32], 0, 0),
            _ => Ok(()),
        },
        &["carries f32", "sent at tests/", "support/mistakes.rs"],
    ),
    (
        "a message that is too long",
        |ctx| match ctx.rank() {
            0 => ctx.recv(&mut [0], ctx.size() - 1, 0).map(drop),
            _ if is_last(ctx) => ctx.send(&[0; 5], 0, 0),
            _ => Ok(()),
        },
        &["has 5 elements and the buffer holds 1"],
    ),
    (
        "going on after failures",
        |ctx| ctx.shrink().map(drop),
        &["shrink at", "mistakes.rs", "is not available", "ULFM"],
    ),
    (
        "a message that nobody receives",
        |ctx| if is_last(ctx) { ctx.send(&[0], 0, 0) } else { Ok(()) },
        &["never received", "sent at tests/", "support/mistakes.rs"],
    ),
];
