//! What a task borrows must be there until it is over: only a scope knows that.

use spmd::prelude::*;

fn main() {
    let _ = spmd(1, |ctx| {
        let data = vec![1, 2, 3];
        let task = ctx.spawn(|| Ok(data.len()));
        drop(data);
        task.take()
    });
}
