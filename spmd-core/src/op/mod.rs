//! Operations that reductions combine elements with, and the one order in which they do.
//!
//! Which of the built-in ones works on which type stands in the table of
//! [`element`](crate::element). All give the same bits on every machine, except the payload of
//! a NaN:
//!
//! - [`Sum`] and [`Prod`] of integers wrap; of `f16` and `bf16`, each step is computed in `f32` and
//!   rounded.
//! - [`Min`] and [`Max`] of floating-point numbers are the `minimum` and `maximum` of IEEE 754-2019:
//!   NaN wins over every number, and −0 is less than +0.
//! - [`MinLoc`] and [`MaxLoc`] choose by value as [`Min`] and [`Max`] do, and among equal values (all
//!   NaNs are equal) the lowest index.
//! - [`Replace`] and [`NoOp`] work on every type.
//! - [`LogicalAnd`] and [`LogicalOr`] take any integer but 0 as true, and give 0 or 1.

mod builtin;
mod custom;
mod erased;
mod half_floats;
mod identity;
mod native;
mod operation;
mod order;
mod replacing;

pub use builtin::{
    BitAnd, BitOr, BitXor, LogicalAnd, LogicalOr, Max, MaxLoc, Min, MinLoc, Prod, Sum,
};
pub use custom::Op;
pub use erased::ErasedOp;
#[doc(hidden)]
pub use native::Native;
pub use operation::{DeviceBody, Operation, Trust};
pub use order::{canonical_split, fold_ranks};
pub use replacing::{NoOp, Replace};

#[cfg(test)]
mod tests;
