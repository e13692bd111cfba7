//! The built-in operations, and how each element type is combined by them.

use std::array;

use half::{bf16, f16};
use num_complex::Complex;

use super::erased::ErasedOp;
use super::half_floats::HalfFloat;
use super::operation::{Operation, Trust};
use crate::element::{Element, Located};

macro_rules! declare {
    ($($(#[$doc:meta])* $op:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $op;

        impl<T: Element, const N: usize> Operation<[T; N]> for $op
        where
            $op: Operation<T>,
        {
            const NAME: &'static str = stringify!($op);

            #[inline(always)]
            fn identity(&self) -> u64 {
                const { ErasedOp::id_of(stringify!($op)) }
            }

            #[inline(always)]
            fn combine(&self, left: [T; N], right: [T; N]) -> [T; N] {
                array::from_fn(|lane| self.combine(left[lane], right[lane]))
            }
        }
    )*};
}

declare! {
    /// The sum: of integers it wraps.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// assert_eq!(Sum.combine(250u8, 10), 4);
    /// ```
    Sum;
    /// The product: of integers it wraps.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// assert_eq!(Prod.combine(1.5, 4.0), 6.0);
    /// ```
    Prod;
    /// The least element: NaN before any number, −0 before +0.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// assert_eq!(Min.combine([3, 8], [5, 2]), [3, 2]);
    /// ```
    Min;
    /// The greatest element: NaN after any number, +0 after −0.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// assert_eq!(Max.combine('a', 'z'), 'z');
    /// ```
    Max;
    /// Bitwise and.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// assert_eq!(BitAnd.combine(0b1100, 0b1010), 0b1000);
    /// ```
    BitAnd;
    /// Bitwise or.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// assert_eq!(BitOr.combine(0b1100, 0b1010), 0b1110);
    /// ```
    BitOr;
    /// Bitwise exclusive or.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// assert_eq!(BitXor.combine(0b1100, 0b1010), 0b0110);
    /// ```
    BitXor;
    /// Whether all are true, or not 0; of integers it gives 1 or 0.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// assert_eq!(LogicalAnd.combine(true, false), false);
    /// ```
    LogicalAnd;
    /// Whether any is true, or not 0; of integers it gives 1 or 0.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// assert_eq!(LogicalOr.combine(0, 7), 1);
    /// ```
    LogicalOr;
    /// The least value with the lowest of its indices.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// assert_eq!(MinLoc.combine(Located::new(2.5, 9), Located::new(2.5, 4)), Located::new(2.5, 4));
    /// ```
    MinLoc;
    /// The greatest value with the lowest of its indices.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// assert_eq!(MaxLoc.combine(Located::new(2.5, 9), Located::new(7.0, 4)), Located::new(7.0, 4));
    /// ```
    MaxLoc;
}

/// `Op(type, ..) |left, right| expression;` implements the operation for each of the types.
macro_rules! implement {
    ($($op:ident($($t:ty),+) |$left:ident, $right:ident| $result:expr;)*) => {$($(
        impl Operation<$t> for $op {
            const NAME: &'static str = stringify!($op);
            const TRUST: Trust<$op, $t> = Trust::yes();

            #[inline(always)]
            fn identity(&self) -> u64 {
                const { ErasedOp::id_of(stringify!($op)) }
            }

            #[inline(always)]
            fn combine(&self, $left: $t, $right: $t) -> $t {
                $result
            }
        }
    )+)*};
}

macro_rules! integers {
    ($($t:ty)*) => {$(
        implement! {
            Sum($t) |left, right| left.wrapping_add(right);
            Prod($t) |left, right| left.wrapping_mul(right);
            Min($t) |left, right| left.min(right);
            Max($t) |left, right| left.max(right);
            BitAnd($t) |left, right| left & right;
            BitOr($t) |left, right| left | right;
            BitXor($t) |left, right| left ^ right;
            LogicalAnd($t) |left, right| <$t>::from((left != 0) & (right != 0));
            LogicalOr($t) |left, right| <$t>::from((left | right) != 0);
        }
    )*};
}

integers! { u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize }

implement! {
    Min(bool) |left, right| left & right;
    Max(bool) |left, right| left | right;
    BitAnd(bool) |left, right| left & right;
    BitOr(bool) |left, right| left | right;
    BitXor(bool) |left, right| left ^ right;
    LogicalAnd(bool) |left, right| left & right;
    LogicalOr(bool) |left, right| left | right;

    Min(char) |left, right| left.min(right);
    Max(char) |left, right| left.max(right);

    Sum(f32, f64, Complex<f32>, Complex<f64>) |left, right| left + right;
    Prod(f32, f64, Complex<f32>, Complex<f64>) |left, right| left * right;
}

macro_rules! floats {
    ($($t:ty)*) => {$(
        implement! {
            // Equal numbers differ at most in the sign of zero: or keeps −0, and keeps +0.
            Min($t) |left, right| {
                let less = if left < right { left } else { right };
                let less = if left == right {
                    <$t>::from_bits(left.to_bits() | right.to_bits())
                } else {
                    less
                };
                if left.is_nan() { left } else { less }
            };
            Max($t) |left, right| {
                let greater = if left > right { left } else { right };
                let greater = if left == right {
                    <$t>::from_bits(left.to_bits() & right.to_bits())
                } else {
                    greater
                };
                if left.is_nan() { left } else { greater }
            };
        }
    )*};
}

floats! { f32 f64 }

macro_rules! half_floats {
    ($($t:ty)*) => {$(
        implement! {
            Sum($t) |left, right| <$t>::round(left.widen() + right.widen());
            Prod($t) |left, right| <$t>::round(left.widen() * right.widen());
            Min($t) |left, right| <$t>::round(Min.combine(left.widen(), right.widen()));
            Max($t) |left, right| <$t>::round(Max.combine(left.widen(), right.widen()));
        }
    )*};
}

half_floats! { f16 bf16 }

/// The order that `MinLoc` and `MaxLoc` choose by.
trait Rank: Copy {
    /// Whether `Min` strictly prefers `self`.
    fn below(self, other: Self) -> bool;
    /// Whether `Max` strictly prefers `self`.
    fn above(self, other: Self) -> bool;
}

macro_rules! rank_integers {
    ($($t:ty)*) => {$(
        impl Rank for $t {
            fn below(self, other: $t) -> bool {
                self < other
            }

            fn above(self, other: $t) -> bool {
                self > other
            }
        }
    )*};
}

macro_rules! rank_floats {
    ($($t:ty)*) => {$(
        impl Rank for $t {
            fn below(self, other: $t) -> bool {
                let sign = self.is_sign_negative() & other.is_sign_positive();
                self < other || (self == other && sign) || (self.is_nan() && !other.is_nan())
            }

            fn above(self, other: $t) -> bool {
                let sign = self.is_sign_positive() & other.is_sign_negative();
                self > other || (self == other && sign) || (self.is_nan() && !other.is_nan())
            }
        }
    )*};
}

rank_integers! { i8 i16 i32 i64 isize u8 u16 u32 u64 usize }
rank_floats! { f16 bf16 f32 f64 }

macro_rules! locate {
    ($($op:ident by $preferred:ident;)*) => {$(
        impl<T: Rank> Operation<Located<T>> for $op
        where
            Located<T>: Element,
        {
            const NAME: &'static str = stringify!($op);

            #[inline(always)]
            fn identity(&self) -> u64 {
                const { ErasedOp::id_of(stringify!($op)) }
            }

            #[inline]
            fn combine(&self, left: Located<T>, right: Located<T>) -> Located<T> {
                let (l, r) = (left.value(), right.value());
                let tie = !l.$preferred(r) & (left.index() > right.index());
                if r.$preferred(l) | tie { right } else { left }
            }
        }
    )*};
}

locate! {
    MinLoc by below;
    MaxLoc by above;
}
