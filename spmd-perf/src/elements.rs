//! Element types and operations, and the values that ranks send.

use clap::ValueEnum;
use spmd::Element;

/// The element type of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    F64,
    F32,
    I32,
    U8,
}

impl Kind {
    /// Bytes of an element.
    pub(crate) fn size(self) -> usize {
        match self {
            Kind::F64 => 8,
            Kind::F32 | Kind::I32 => 4,
            Kind::U8 => 1,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::F64 => "f64",
            Kind::F32 => "f32",
            Kind::I32 => "i32",
            Kind::U8 => "u8",
        }
    }
}

/// The operation of a reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Operator {
    Sum,
    Min,
    Max,
}

impl Operator {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Operator::Sum => "sum",
            Operator::Min => "min",
            Operator::Max => "max",
        }
    }
}

/// An element type that a small whole number fits into.
pub(crate) trait Number: Element + PartialEq {
    /// The number, wrapped around where the type is too small for it.
    fn of(number: u64) -> Self;
}

macro_rules! number {
    ($($type:ty),*) => {$(
        impl Number for $type {
            fn of(number: u64) -> $type {
                number as $type
            }
        }
    )*};
}
number!(f64, f32, i32, u8);

/// What a rank sends at a place in its turn: small, so that sums of many are exact.
pub(crate) fn value(rank: usize, turn: usize, index: usize) -> u64 {
    (rank + turn % 7 + index % 11) as u64
}

/// The fold of the values of ranks `0..ranks`.
pub(crate) fn folded(op: Operator, ranks: usize, turn: usize, index: usize) -> u64 {
    let values = (0..ranks).map(|rank| value(rank, turn, index));
    match op {
        Operator::Sum => values.sum(),
        Operator::Min => values.min().unwrap_or(0),
        Operator::Max => values.max().unwrap_or(0),
    }
}
