//! A thread cannot capture the rank that starts it: its calls would mix with those of the rank.

use spmd::prelude::*;

fn main() -> Result<()> {
    spmd(2, |ctx| {
        std::thread::scope(|scope| {
            scope.spawn(|| ctx.barrier());
        });
        Ok(())
    })?;
    Ok(())
}
