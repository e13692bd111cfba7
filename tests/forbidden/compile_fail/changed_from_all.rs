//! All ranks run the same closure: none may change what it captures without saying how.

use spmd::prelude::*;

fn main() -> Result<()> {
    let mut total = 0;
    spmd(2, |ctx| {
        total += ctx.rank();
        Ok(())
    })?;
    println!("{total}");
    Ok(())
}
