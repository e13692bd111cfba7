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
//! - [`LogicalAnd`] and [`LogicalOr`] take any integer but 0 as true, and give 0 or 1.

use std::marker::PhantomData;
use std::panic::Location;

use crate::element::Element;

mod builtin;
mod erased;
mod half_floats;
mod identity;
mod order;

pub use builtin::{
    BitAnd, BitOr, BitXor, LogicalAnd, LogicalOr, Max, MaxLoc, Min, MinLoc, Prod, Sum,
};
pub use erased::ErasedOp;
pub use order::{canonical_split, fold_ranks};

/// An associative operation on elements of type `T`.
///
/// Built-in ones are [`Sum`] and its siblings; [`Op::new`] makes one of a closure. `combine` must
/// be associative, as far as the program cares: ranks are combined in a fixed order, but not from
/// left to right. It must not communicate.
///
/// ```
/// use spmd_core::op::{Max, Operation, Sum};
///
/// fn three<O: Operation<f64>>(op: O) -> f64 {
///     op.combine(op.combine(1.0, 2.0), 3.0)
/// }
/// assert_eq!((three(Sum), three(Max)), (6.0, 3.0));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an operation on `{T}`",
    note = "which operation works on which type stands in the table of the module `spmd::element`",
    note = "`Op::new(|a: {T}, b: {T}| ..)` makes an operation of a closure"
)]
pub trait Operation<T: Element>: Sync {
    /// What reports call it.
    const NAME: &'static str;

    /// Combines two elements; `left` comes from lower ranks than `right`.
    fn combine(&self, left: T, right: T) -> T;

    /// Whether `combine(a, b)` is `combine(b, a)`.
    fn commutative(&self) -> bool {
        true
    }

    /// Whether the operation neither panics nor calls the library, so that it may run unguarded.
    #[doc(hidden)]
    const TRUST: Trust<Self, T> = Trust::no();

    /// What reports call this one.
    #[doc(hidden)]
    #[inline]
    fn name(&self) -> &'static str {
        Self::NAME
    }

    /// What tells it from other operations: its name, and that of its type without crate and modules.
    #[doc(hidden)]
    #[inline]
    fn identity(&self) -> u64 {
        identity::of_type(std::any::type_name::<Self>()) ^ identity::hash(Self::NAME)
    }

    /// Where it was made, where that is known.
    #[doc(hidden)]
    #[inline]
    fn site(&self) -> Option<&'static Location<'static>> {
        None
    }
}

/// Says of an operation `O` on `T` that it may run unguarded. This crate alone can say yes.
#[doc(hidden)]
pub struct Trust<O: ?Sized, T>(bool, PhantomData<fn(*const O, T)>);

impl<O: ?Sized, T> Trust<O, T> {
    pub(crate) const fn yes() -> Self {
        Trust(true, PhantomData)
    }

    pub(crate) const fn no() -> Self {
        Trust(false, PhantomData)
    }

    pub(crate) const fn is_trusted(&self) -> bool {
        self.0
    }
}

impl<T: Element, O: Operation<T>> Operation<T> for &O {
    const NAME: &'static str = O::NAME;
    // What it combines by is the same.
    const TRUST: Trust<Self, T> = Trust(O::TRUST.is_trusted(), PhantomData);

    #[inline(always)]
    fn combine(&self, left: T, right: T) -> T {
        O::combine(self, left, right)
    }

    fn commutative(&self) -> bool {
        O::commutative(self)
    }

    #[inline]
    fn name(&self) -> &'static str {
        O::name(self)
    }

    #[inline]
    fn identity(&self) -> u64 {
        O::identity(self)
    }

    #[inline]
    fn site(&self) -> Option<&'static Location<'static>> {
        O::site(self)
    }
}

/// An operation of the program's own.
///
/// ```
/// use spmd_core::op::{Op, Operation};
///
/// // The product of 2 × 2 matrices: associative, but not commutative.
/// let product = Op::new(|a: [f64; 4], b: [f64; 4]| {
///     [
///         a[0] * b[0] + a[1] * b[2],
///         a[0] * b[1] + a[1] * b[3],
///         a[2] * b[0] + a[3] * b[2],
///         a[2] * b[1] + a[3] * b[3],
///     ]
/// })
/// .non_commutative();
/// assert_eq!(product.combine([0., 1., 1., 0.], [1., 2., 3., 4.]), [3., 4., 1., 2.]);
/// ```
#[derive(Clone, Copy)]
pub struct Op<F> {
    combine: F,
    commutative: bool,
    name: Option<&'static str>,
    site: &'static Location<'static>,
}

impl<F> Op<F> {
    /// An associative and commutative operation that combines two elements by `combine`.
    ///
    /// All ranks must pass the same operation. One is known by whether it is commutative and
    ///
    /// - by the name that [`Op::named`] has given it, else
    /// - of a function, by its name without crate and modules: `Op::new(longest)` is one operation
    ///   wherever it stands;
    /// - of a closure or a pointer to a function, by the place of this call (file, line, column), as
    ///   its type does not tell what it does. That two of them made at one place differ is not seen.
    ///
    /// ```
    /// use spmd_core::op::{Op, Operation};
    ///
    /// let longest = Op::new(|a: f64, b: f64| if b.abs() > a.abs() { b } else { a });
    /// assert_eq!(longest.combine(2.0, -3.0), -3.0);
    /// ```
    #[track_caller]
    pub const fn new<T: Element>(combine: F) -> Op<F>
    where
        F: Fn(T, T) -> T + Sync,
    {
        Op { combine, commutative: true, name: None, site: Location::caller() }
    }

    /// The same operation under a name of its own, by which alone all ranks know it from then on,
    /// wherever they made it: on different lines, or in different programs of one job. Reports call
    /// it so.
    ///
    /// ```
    /// use spmd_core::op::{ErasedOp, Op};
    ///
    /// // One of a master and one of its workers, each with sources of its own.
    /// let here = Op::new(|a: f64, b: f64| a.hypot(b)).named("hypot");
    /// let there = Op::new(|a: f64, b: f64| (a * a + b * b).sqrt()).named("hypot");
    /// let (here, there) = (ErasedOp::new::<f64, _>(&here), ErasedOp::new::<f64, _>(&there));
    /// assert_eq!((here.id(), here.name()), (there.id(), "hypot"));
    /// ```
    pub fn named(self, name: &'static str) -> Op<F> {
        Op { name: Some(name), ..self }
    }

    /// The same operation, declared not to be commutative: `combine(a, b)` may differ from
    /// `combine(b, a)`. No algorithm will swap its arguments.
    ///
    /// ```
    /// use spmd_core::op::{Op, Operation};
    ///
    /// let last = Op::new(|_: i32, b: i32| b).non_commutative();
    /// assert!(!last.commutative());
    /// ```
    pub fn non_commutative(self) -> Op<F> {
        Op { commutative: false, ..self }
    }
}

impl<T: Element, F: Fn(T, T) -> T + Sync> Operation<T> for Op<F> {
    const NAME: &'static str = "user operation";

    #[inline(always)]
    fn combine(&self, left: T, right: T) -> T {
        (self.combine)(left, right)
    }

    fn commutative(&self) -> bool {
        self.commutative
    }

    #[inline]
    fn name(&self) -> &'static str {
        self.name.unwrap_or(<Self as Operation<T>>::NAME)
    }

    #[inline]
    fn identity(&self) -> u64 {
        let function = std::any::type_name::<F>();
        match self.name {
            Some(name) => identity::of_name(name),
            None if identity::tells_function(function) => identity::of_type(function),
            None => identity::of_place(self.site),
        }
    }

    #[inline]
    fn site(&self) -> Option<&'static Location<'static>> {
        Some(self.site)
    }
}

#[cfg(test)]
mod tests;
