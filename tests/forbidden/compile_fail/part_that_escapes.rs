//! A part of an array ends with its task.

use spmd::prelude::*;
use spmd::tasks::DataMatrix;

fn main() {
    let mut numbers = [1, 2, 3, 4];
    let data = DataMatrix::new(&mut numbers, 2).unwrap();
    let _ = spmd(1, |ctx| {
        ctx.datadeps(|d| {
            let row = d.spawn((d.write(data.tile(.., ..1)),), |mut tile| Ok(tile.remove(0)));
            row.take().map(drop)
        })
    });
}
