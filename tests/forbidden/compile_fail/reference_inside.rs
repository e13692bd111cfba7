//! A reference means nothing to another process.

use spmd::prelude::*;

#[derive(Clone, Copy, Element)]
#[repr(C)]
struct Named {
    name: &'static str,
}

fn main() {
    let _ = Named { name: "x" };
}
