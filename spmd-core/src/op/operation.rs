//! What an operation is.

use std::marker::PhantomData;
use std::panic::Location;

use super::identity;
use crate::element::Element;
#[cfg(doc)]
use crate::op::{Op, Sum};

/// An associative operation on elements of type `T`.
///
/// Built-in ones are [`Sum`](struct@Sum) and its siblings; [`Op::new`] makes one of a closure. `combine` must
/// be associative, as far as the program cares: ranks are combined in a fixed order, but not from
/// left to right. It must not communicate.
///
/// ```
/// use spmd::prelude::*;
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

    /// What tells it from other operations: its name, and that of its type without crate and
    /// modules.
    #[doc(hidden)]
    #[inline]
    fn identity(&self) -> u64 {
        // Turned, as the two are often the same.
        let of_type = identity::of_type(std::any::type_name::<Self>()).rotate_left(32);
        of_type ^ identity::hash(Self::NAME)
    }

    /// Where it was made, where that is known.
    #[doc(hidden)]
    #[inline]
    fn site(&self) -> Option<&'static Location<'static>> {
        None
    }

    /// How a device does it, where that is not known from its name.
    #[doc(hidden)]
    #[inline]
    fn device_body(&self) -> Option<DeviceBody> {
        None
    }
}

/// The body of a function of a device. This crate alone makes one, where somebody has promised that it is
/// right.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct DeviceBody(pub(super) &'static str);

/// Says of an operation `O` on `T` that it may run unguarded. This crate alone can say yes.
#[doc(hidden)]
#[expect(missing_debug_implementations, reason = "hidden: no user holds one")]
pub struct Trust<O: ?Sized, T>(bool, PhantomData<fn(*const O, T)>);

impl<O: ?Sized, T> Trust<O, T> {
    pub(crate) const fn yes() -> Self {
        Trust(true, PhantomData)
    }

    pub(crate) const fn no() -> Self {
        Trust(false, PhantomData)
    }

    pub const fn is_trusted(&self) -> bool {
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

    #[inline]
    fn device_body(&self) -> Option<DeviceBody> {
        O::device_body(self)
    }
}
