//! Operations that reductions combine elements with, and the one order in which they do.
//!
//! Which of the built-in ones works on which type stands in the table of
//! [`element`](crate::element). All give the same bits on every machine, except the payload of
//! a NaN:
//!
//! - [`Sum`](struct@Sum) and [`Prod`](struct@Prod) of integers wrap; of `f16` and `bf16`, each step is computed in `f32` and
//!   rounded.
//! - [`Min`](struct@Min) and [`Max`](struct@Max) of floating-point numbers are the `minimum` and `maximum` of IEEE 754-2019:
//!   NaN wins over every number, and −0 is less than +0.
//! - [`MinLoc`] and [`MaxLoc`] choose by value as [`Min`](struct@Min) and [`Max`](struct@Max) do, and among equal values (all
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

/// Makes [`Sum`](struct@Sum) an operation on a struct: each field is the sum of this field.
///
/// All fields have types that `Sum` works on: numbers, arrays of them, other structs with this derive.
/// The struct is an [`Element`](trait@crate::Element). Results have the same bits wherever ranks are, as
/// those of each field have. An enum, and a field without a sum, are errors at compile time.
///
/// ```
/// use spmd::prelude::*;
///
/// #[derive(Clone, Copy, Debug, PartialEq, Element, Sum)]
/// #[repr(C)]
/// struct Moments {
///     count: u64,
///     sum: f64,
///     squares: f64,
/// }
/// let all = spmd(3, |ctx| {
///     let x = ctx.rank() as f64;
///     ctx.allreduce_value(Moments { count: 1, sum: x, squares: x * x }, Sum)
/// })?;
/// assert_eq!(all, [Moments { count: 3, sum: 3.0, squares: 5.0 }; 3]);
/// # Ok::<(), Error>(())
/// ```
///
/// What carries out calls by other means, MPI or a plane of a device, takes it for an operation of the
/// program's own: buffers on devices go by way of the host.
///
/// ```compile_fail,E0277
/// use spmd::prelude::*;
///
/// #[derive(Clone, Copy, Element, Sum)]
/// #[repr(C)]
/// struct Flag {
///     set: bool,
/// }
/// ```
pub use spmd_derive::Sum;

/// Makes [`Prod`](struct@Prod) an operation on a struct: each field is the product of this field.
///
/// What holds of fields, results and errors is that of [`derive(Sum)`](derive@Sum).
///
/// ```
/// use spmd::prelude::*;
///
/// #[derive(Clone, Copy, Element, Prod)]
/// #[repr(C)]
/// struct Odds<T> {
///     win: T,
///     lose: T,
/// }
/// let all = spmd(3, |ctx| ctx.allreduce_value(Odds { win: 0.5, lose: 2.0 }, Prod))?;
/// assert_eq!((all[0].win, all[0].lose), (0.125, 8.0));
/// # Ok::<(), Error>(())
/// ```
pub use spmd_derive::Prod;

/// Makes [`Min`](struct@Min) an operation on a struct, of which it takes the least of each field by
/// itself, or on an enum without fields, of which it takes the variant with the least value.
///
/// What holds of fields, results and errors is that of [`derive(Sum)`](derive@Sum); an enum has an
/// integer as its representation. [`MinLoc`] tells who has the least.
///
/// ```
/// use spmd::prelude::*;
///
/// #[derive(Clone, Copy, Element, Min)]
/// #[repr(C)]
/// struct Corner {
///     at: [f64; 2],
/// }
/// let all = spmd(2, |ctx| {
///     let x = ctx.rank() as f64;
///     ctx.allreduce_value(Corner { at: [x, -x] }, Min)
/// })?;
/// assert_eq!(all[0].at, [0.0, -1.0]);
/// # Ok::<(), Error>(())
/// ```
pub use spmd_derive::Min;

/// Makes [`Max`](struct@Max) an operation on a struct, of which it takes the greatest of each field by
/// itself, or on an enum without fields, of which it takes the variant with the greatest value.
///
/// What holds of fields, results and errors is that of [`derive(Min)`](derive@Min).
///
/// ```
/// use spmd::prelude::*;
///
/// #[derive(Clone, Copy, Debug, PartialEq, Element, Max)]
/// #[repr(u8)]
/// enum State {
///     Fine,
///     Diverged,
/// }
/// let states = spmd(3, |ctx| {
///     let mine = if ctx.rank() == 1 { State::Diverged } else { State::Fine };
///     ctx.allreduce_value(mine, Max)
/// })?;
/// assert_eq!(states, [State::Diverged; 3]);
/// # Ok::<(), Error>(())
/// ```
pub use spmd_derive::Max;

#[cfg(test)]
mod tests;
