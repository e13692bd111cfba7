//! What `#[spmd::test]` takes.

use spmd::prelude::*;

#[spmd::test(ranks = [1, 0])]
fn no_rank(ctx: &Ctx) -> Result<()> {
    ctx.barrier()
}

#[spmd::test(places = [threads, gpus])]
fn no_place(ctx: &Ctx) -> Result<()> {
    ctx.barrier()
}

#[spmd::test(rank = 2)]
fn no_argument(ctx: &Ctx) -> Result<()> {
    ctx.barrier()
}

#[spmd::test]
fn no_ctx() {}

#[spmd::test]
struct NoFunction;

fn main() {}
