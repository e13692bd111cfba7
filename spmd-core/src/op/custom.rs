//! Operations of a program's own.

use std::fmt;
use std::panic::Location;

use super::identity;
use super::operation::{DeviceBody, Operation};
use crate::element::Element;

/// An operation of the program's own.
///
/// ```
/// use spmd::prelude::*;
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
#[must_use]
pub struct Op<F> {
    combine: F,
    commutative: bool,
    name: Option<&'static str>,
    on_device: Option<&'static str>,
    site: &'static Location<'static>,
}

impl<F> fmt::Debug for Op<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("Op");
        match self.name {
            Some(name) => fields.field("name", &name),
            None => fields.field("site", &format_args!("{}", self.site)),
        };
        fields.field("commutative", &self.commutative).finish_non_exhaustive()
    }
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
    /// use spmd::prelude::*;
    ///
    /// let longest = Op::new(|a: f64, b: f64| if b.abs() > a.abs() { b } else { a });
    /// assert_eq!(longest.combine(2.0, -3.0), -3.0);
    /// ```
    #[track_caller]
    pub const fn new<T: Element>(combine: F) -> Op<F>
    where
        F: Fn(T, T) -> T + Sync,
    {
        Op { combine, commutative: true, name: None, on_device: None, site: Location::caller() }
    }

    /// The same operation under a name of its own, by which alone all ranks know it from then on,
    /// wherever they made it: on different lines, or in different programs of one job. Reports call
    /// it so.
    ///
    /// ```
    /// use spmd::prelude::*;
    /// use spmd::op::ErasedOp;
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
    /// use spmd::prelude::*;
    ///
    /// let last = Op::new(|_: i32, b: i32| b).non_commutative();
    /// assert!(!last.commutative());
    /// ```
    pub fn non_commutative(self) -> Op<F> {
        Op { commutative: false, ..self }
    }

    /// The same operation for numbers in the memory of a GPU, too: the body of a function in CUDA C++,
    /// which returns what it makes of `left` and `right`, of the type `ELEMENT`. It is compiled into the
    /// kernel that folds what ranks on one GPU bring, where products and sums are rounded each, as on the
    /// host; other ranks' elements go by way of the host, where `combine` does it.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let larger = |a: f64, b: f64| if b.abs() > a.abs() { b } else { a };
    /// // SAFETY: it computes the same, and touches no memory.
    /// let larger = unsafe {
    ///     Op::new(larger).on_device("return fabs(right) > fabs(left) ? right : left;")
    /// };
    /// # let _ = larger;
    /// ```
    ///
    /// # Safety
    /// It does nothing but give a value of the elements' type, the one that `combine` gives.
    pub unsafe fn on_device(self, body: &'static str) -> Op<F> {
        Op { on_device: Some(body), ..self }
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

    #[inline]
    fn device_body(&self) -> Option<DeviceBody> {
        self.on_device.map(DeviceBody)
    }
}
