//! Every rank says hello, hears from its neighbour, and agrees with all others on a sum.
//!
//!     cargo run --example hello                                   one rank
//!     SPMD_RANKS=4 cargo run --example hello                      four threads
//!     SPMD_RANKS=4 SPMD_AS=virtual cargo run --example hello      four virtual ranks
//!     spmdrun --ranks 4 target/debug/examples/hello               four processes

use spmd::prelude::*;

fn main() -> Result<()> {
    // Every rank runs this closure; `ctx` tells it which one it is.
    spmd::run(|ctx| {
        let (rank, size) = (ctx.rank(), ctx.size());

        // A message: around a ring, each rank tells the next one its number. `sendrecv` does both
        // at once, so the ring cannot block.
        let (right, left) = ((rank + 1) % size, (rank + size - 1) % size);
        let mut heard = [0];
        ctx.sendrecv(&[rank], right, 0, &mut heard, left, 0)?;
        println!("hello from rank {rank} of {size}; my left neighbour is rank {}", heard[0]);

        // A collective: all ranks make the same call, and all get the result.
        let sum = ctx.allreduce_value(rank, Sum)?;

        // An error that one rank returns ends the call of every other rank, and the program.
        if heard[0] != left || sum != size * (size - 1) / 2 {
            return Err(format!("rank {rank} heard {} and got the sum {sum}", heard[0]).into());
        }
        Ok(())
    })?;
    Ok(())
}
