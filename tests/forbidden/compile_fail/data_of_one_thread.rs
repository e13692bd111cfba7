//! Data are used by tasks on any thread.

use std::rc::Rc;

use spmd::prelude::*;

fn main() {
    let _ = spmd(1, |ctx| {
        let data = Data::new(Rc::new(1));
        ctx.datadeps(|d| d.spawn((d.commute(&data),), |_| Ok(())).take())
    });
}
