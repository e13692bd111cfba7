//! An operation is derived where each field has it.

use spmd::prelude::*;

#[derive(Clone, Copy, Element, Sum)]
#[repr(C)]
struct Moments {
    sum: f64,
    changed: [bool; 8],
}

#[derive(Clone, Copy, Element, Max, Prod)]
#[repr(u8)]
enum State {
    Fine,
    Lost,
}

#[derive(Clone, Copy, Sum)]
struct Unsent {
    x: f64,
}

fn main() {}
