//! The device of the first rank, and what it can do at most.

use std::time::Instant;

use spmd::prelude::*;
use spmd_gpu::OnDevice;

/// The buffer that is copied, larger than any cache of a device: less where that has not four times as much.
const MOST: usize = 1 << 30;
/// Copies of it in each of some rounds.
const COPIES: usize = 10;
const ROUNDS: usize = 5;

/// A device that collectives are measured on.
pub(crate) struct Card {
    pub(crate) name: String,
    /// Bytes per second that copies from memory to memory of it read and write, the best of some rounds,
    /// where all ranks are on it.
    pub(crate) copy_rate: Option<f64>,
}

impl Card {
    /// That of the first rank, which measures it. All ranks call this.
    pub(crate) fn new(ctx: &Ctx) -> Result<Card> {
        Ok(Card { name: ctx.device()?.name()?, copy_rate: copy_rate(ctx)? })
    }
}

fn copy_rate(ctx: &Ctx) -> Result<Option<f64>> {
    if !is_shared(ctx)? {
        return Ok(None);
    }
    let mut best: f64 = 0.0;
    if ctx.rank() == 0 {
        let device = ctx.device()?;
        let bytes = MOST.min(device.memory()?.0 / 4);
        let from = device.zeros::<u8>(bytes)?;
        let mut into = device.zeros::<u8>(bytes)?;
        for _ in 0..ROUNDS {
            device.synchronize()?;
            let start = Instant::now();
            for _ in 0..COPIES {
                into.copy_from_buffer(&from)?;
            }
            device.synchronize()?;
            best = best.max((2 * COPIES * bytes) as f64 / start.elapsed().as_secs_f64());
        }
    }
    ctx.broadcast_value(Some(best), 0).map(Some)
}

/// Whether all ranks are on one device.
fn is_shared(ctx: &Ctx) -> Result<bool> {
    let ordinal = ctx.device()?.ordinal() as usize;
    let uuid = spmd_gpu::devices()?.into_iter().nth(ordinal).map(|it| it.uuid).unwrap_or_default();
    let mut own = [0; 64];
    own.iter_mut().zip(uuid.bytes()).for_each(|(place, byte)| *place = byte);
    let (mut first, mut last) = (own, own);
    ctx.allreduce_in_place(&mut first, Min)?;
    ctx.allreduce_in_place(&mut last, Max)?;
    Ok(first == last)
}
