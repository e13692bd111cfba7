//! An array belongs to tasks as long as they may use parts of it.

use spmd::prelude::*;
use spmd::tasks::DataSlice;

fn main() {
    let _ = spmd(1, |ctx| {
        let mut numbers = [1, 2, 3];
        let data = DataSlice::new(&mut numbers);
        ctx.datadeps(|d| {
            d.spawn((d.write(data.range(..2)),), |part| Ok(part[0] = 4));
            numbers[0] = 5;
            Ok(())
        })
    });
}
