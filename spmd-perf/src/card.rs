//! What a device can do at most.

use std::time::Instant;

use spmd::prelude::*;
use spmd_gpu::OnDevice;

/// The buffer that is copied, larger than any cache of a device.
const BYTES: usize = 1 << 30;
/// Copies of it in each of some rounds.
const COPIES: usize = 10;
const ROUNDS: usize = 5;

/// Bytes per second that copies from memory to memory of the device read and write, the best of some
/// rounds. The first rank measures it.
pub(crate) fn copy_rate(ctx: &Ctx) -> Result<f64> {
    let mut best: f64 = 0.0;
    if ctx.rank() == 0 {
        let device = ctx.device()?;
        let from = device.zeros::<u8>(BYTES)?;
        let mut into = device.zeros::<u8>(BYTES)?;
        for _ in 0..ROUNDS {
            device.synchronize()?;
            let start = Instant::now();
            for _ in 0..COPIES {
                into.copy_from_buffer(&from)?;
            }
            device.synchronize()?;
            best = best.max((2 * COPIES * BYTES) as f64 / start.elapsed().as_secs_f64());
        }
    }
    ctx.broadcast_value(Some(best), 0)
}
