//! A reference to data ends with its task.

use spmd::prelude::*;

fn main() {
    let data = Data::new(vec![1]);
    let _ = spmd(1, |ctx| {
        ctx.datadeps(|d| {
            let kept = d.spawn((d.write(&data),), |it: &mut Vec<i32>| Ok(it));
            kept.take().map(drop)
        })
    });
}
