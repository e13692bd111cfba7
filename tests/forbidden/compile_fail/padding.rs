//! A struct with bytes between its fields cannot be sent as it lies in memory.

use spmd::prelude::*;

#[derive(Clone, Copy, Element)]
#[repr(C)]
struct Sample {
    weight: f64,
    count: u32,
}

fn main() {
    let _ = Sample { weight: 1.0, count: 1 };
}
