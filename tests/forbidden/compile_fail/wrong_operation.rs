//! Numbers with a fraction have no bits to combine.

use spmd::prelude::*;

fn main() -> Result<()> {
    spmd(2, |ctx| ctx.allreduce_value(1.5f64, BitAnd))?;
    Ok(())
}
