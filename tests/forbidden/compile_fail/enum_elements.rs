//! An enum whose variants have fields, or whose representation is not fixed, is no element.

use spmd::prelude::*;

#[derive(Clone, Copy, Element)]
#[repr(u8)]
enum Shape {
    Point,
    Circle(f64),
}

#[derive(Clone, Copy, Element)]
enum State {
    Fine,
    Lost,
}

fn main() {}
