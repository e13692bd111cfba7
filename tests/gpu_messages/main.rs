//! What goes by way of the host on device buffers: requests of messages, windows, and calls that give a
//! `Vec`. Without a device the tests say that they are skipped; `SPMD_REQUIRE_GPU=1` makes that a failure.

#[path = "../support/card.rs"]
mod card;
mod failures;
mod requests;
#[path = "../support/mod.rs"]
mod support;
mod vectors;
mod windows;

use spmd::Progress;
use spmd::prelude::*;
use spmd_conformance::element::{Sample, bytes, random};
use spmd_gpu::DeviceBuffer;
use support::World;

/// Runs a case on ranks of every kind, with and without threads beside them.
fn everywhere(test: &str, ranks: &[usize], case: fn(&Ctx) -> Result<()>) -> Result<()> {
    if !card::gpu() {
        return Ok(());
    }
    for progress in [Progress::Calls, Progress::Thread] {
        let world = World { progress, segment: Some(1024), ..World::default() };
        world.everywhere(test, ranks, case)?;
    }
    Ok(())
}

/// Values that the number determines.
fn values<T: Sample>(number: usize, count: usize) -> Vec<T> {
    (0..count).map(|index| T::made(random(9, number, index))).collect()
}

fn same<T: Sample>(one: &[T], other: &[T]) -> bool {
    bytes(one) == bytes(other)
}

/// Whether a buffer has these elements.
fn holds<T: Sample>(buffer: &DeviceBuffer<T>, expected: &[T]) -> Result<bool> {
    Ok(same(&buffer.to_vec()?, expected))
}

/// The ranks before and after this one.
fn around(ctx: &Ctx) -> (usize, usize) {
    let (me, n) = (ctx.rank(), ctx.size());
    ((me + n - 1) % n, (me + 1) % n)
}
