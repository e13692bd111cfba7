//! Nor does a thread that outlives the block take the rank with it.

use spmd::prelude::*;

fn main() {
    let _ = spmd(2, |ctx| {
        std::thread::spawn(move || ctx.rank());
        Ok(())
    });
}
