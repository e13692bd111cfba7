//! What a rank returns cannot borrow from what ends with the rank.

use spmd::prelude::*;

fn main() -> Result<()> {
    let firsts = spmd(2, |ctx| {
        let mine = vec![ctx.rank()];
        Ok(&mine[0])
    })?;
    println!("{firsts:?}");
    Ok(())
}
