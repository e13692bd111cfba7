//! Two threads cannot share a communicator; each needs one of its own (`dup`), which it may take.

use spmd::prelude::*;

fn main() -> Result<()> {
    spmd(2, |ctx| {
        let own = ctx.dup()?;
        let shared = ctx.dup()?;
        std::thread::scope(|scope| {
            scope.spawn(move || own.barrier());
            scope.spawn(|| shared.barrier());
        });
        Ok(())
    })?;
    Ok(())
}
