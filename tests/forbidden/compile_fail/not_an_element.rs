//! Text has no fixed size, so it is no element; the object calls take it.

use spmd::prelude::*;

fn main() -> Result<()> {
    spmd(2, |ctx| {
        let names = vec![format!("rank {}", ctx.rank())];
        ctx.send(&names, 0, 0)
    })?;
    Ok(())
}
