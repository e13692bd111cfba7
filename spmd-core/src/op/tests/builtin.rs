use std::cmp::Ordering;

use super::*;

/// Checks a built-in operation on `T` and `[T; 3]` against `combine`, which is written in other
/// words than the operation is.
fn check<T: Sample, O: Operation<T> + Operation<[T; 3]>>(op: O, combine: fn(T, T) -> T) {
    let lanes = |left: [T; 3], right: [T; 3]| {
        let mut out = left;
        for lane in 0..3 {
            out[lane] = combine(left[lane], right[lane]);
        }
        out
    };
    for ranks in [1, 2, 3, 4, 7, 8] {
        check_ranks(&ErasedOp::new::<T, O>(&op), &combine, ranks, 61, Out::Apart);
        check_ranks(&ErasedOp::new::<T, O>(&op), &combine, ranks, 61, Out::Input(ranks - 1));
        check_ranks(&ErasedOp::new::<[T; 3], O>(&op), &lanes, ranks, 20, Out::Input(0));
    }
}

/// A value by a key that is compared: the first of the smallest.
fn least<T: Copy>(left: T, right: T, order: impl Fn(T, T) -> Ordering) -> T {
    if order(right, left) == Ordering::Less { right } else { left }
}

macro_rules! integers {
    ($($t:ident)*) => {$(
        #[test]
        fn $t() {
            check::<$t, _>(Sum, |a, b| a.overflowing_add(b).0);
            check::<$t, _>(Prod, |a, b| a.overflowing_mul(b).0);
            check::<$t, _>(Min, |a, b| least(a, b, |a, b| a.cmp(&b)));
            check::<$t, _>(Max, |a, b| least(a, b, |a, b| b.cmp(&a)));
            check::<$t, _>(BitAnd, |a, b| !(!a | !b));
            check::<$t, _>(BitOr, |a, b| !(!a & !b));
            check::<$t, _>(BitXor, |a, b| (a & !b) | (!a & b));
            check::<$t, _>(LogicalAnd, |a, b| if a == 0 || b == 0 { 0 } else { 1 });
            check::<$t, _>(LogicalOr, |a, b| if a == 0 && b == 0 { 0 } else { 1 });
        }
    )*};
}

integers! { u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize }

/// Floating-point order with −0 below +0 and NaN below all.
fn nan_first(a: f64, b: f64) -> Ordering {
    (!a.is_nan()).cmp(&!b.is_nan()).then(if a.is_nan() { Ordering::Equal } else { a.total_cmp(&b) })
}

/// The reverse order of numbers, NaN again below all.
fn nan_first_down(a: f64, b: f64) -> Ordering {
    nan_first(if a.is_nan() { a } else { -a }, if b.is_nan() { b } else { -b })
}

macro_rules! floats {
    ($($t:ident: $to:expr, $sum:expr, $prod:expr;)*) => {$(
        #[test]
        fn $t() {
            check::<half_or::$t, _>(Sum, $sum);
            check::<half_or::$t, _>(Prod, $prod);
            check::<half_or::$t, _>(Min, |a, b| least(a, b, |a, b| nan_first($to(a), $to(b))));
            check::<half_or::$t, _>(Max, |a, b| least(a, b, |a, b| nan_first_down($to(a), $to(b))));
        }
    )*};
}

/// The types under one roof, so that a macro can name a test after each.
mod half_or {
    pub(super) use half::{bf16, f16};
    pub(super) use std::primitive::{f32, f64};
}

floats! {
    f32: f64::from, |a, b| a + b, |a, b| a * b;
    f64: |x| x, |a, b| a + b, |a, b| a * b;
    f16: f64::from, |a, b| f16::from_f64(a.to_f64() + b.to_f64()), |a, b| f16::from_f64(a.to_f64() * b.to_f64());
    bf16: f64::from,
        |a, b| bf16::from_f32((a.to_f64() + b.to_f64()) as f32),
        |a, b| bf16::from_f32((a.to_f64() * b.to_f64()) as f32);
}

#[test]
fn extremes_of_floats() {
    assert_eq!(Min.combine(0.0_f64, -0.0).to_bits(), (-0.0_f64).to_bits());
    assert_eq!(Max.combine(-0.0_f32, 0.0).to_bits(), 0.0_f32.to_bits());
    assert!(Operation::<f64>::combine(&Min, f64::NAN, f64::NEG_INFINITY).is_nan());
    assert!(Operation::<f64>::combine(&Max, f64::INFINITY, f64::NAN).is_nan());
}

#[test]
fn complex() {
    fn product<
        T: Copy + std::ops::Mul<Output = T> + std::ops::Add<Output = T> + std::ops::Sub<Output = T>,
    >(
        a: Complex<T>,
        b: Complex<T>,
    ) -> Complex<T> {
        Complex::new(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re)
    }
    check::<Complex<f32>, _>(Sum, |a, b| Complex::new(a.re + b.re, a.im + b.im));
    check::<Complex<f64>, _>(Sum, |a, b| Complex::new(a.re + b.re, a.im + b.im));
    check::<Complex<f32>, _>(Prod, product);
    check::<Complex<f64>, _>(Prod, product);
}

#[test]
fn bool() {
    check::<bool, _>(LogicalAnd, |a, b| a && b);
    check::<bool, _>(BitAnd, |a, b| a && b);
    check::<bool, _>(Min, |a, b| a && b);
    check::<bool, _>(LogicalOr, |a, b| a || b);
    check::<bool, _>(BitOr, |a, b| a || b);
    check::<bool, _>(Max, |a, b| a || b);
    check::<bool, _>(BitXor, |a, b| a != b);
}

#[test]
fn char() {
    check::<char, _>(Min, |a, b| if b < a { b } else { a });
    check::<char, _>(Max, |a, b| if b > a { b } else { a });
}

macro_rules! located {
    ($($t:ident)*) => {$(
        check::<Located<$t>, _>(MinLoc, |a, b| {
            least(a, b, |a, b| a.value().cmp(&b.value()).then(a.index().cmp(&b.index())))
        });
        check::<Located<$t>, _>(MaxLoc, |a, b| {
            least(a, b, |a, b| b.value().cmp(&a.value()).then(a.index().cmp(&b.index())))
        });
    )*};
}

macro_rules! located_floats {
    ($($t:ident)*) => {$(
        check::<Located<$t>, _>(MinLoc, |a, b| {
            least(a, b, |a, b| {
                nan_first(a.value().into(), b.value().into()).then(a.index().cmp(&b.index()))
            })
        });
        check::<Located<$t>, _>(MaxLoc, |a, b| {
            least(a, b, |a, b| {
                nan_first_down(a.value().into(), b.value().into()).then(a.index().cmp(&b.index()))
            })
        });
    )*};
}

#[test]
fn located() {
    located! { i8 i16 i32 i64 isize u8 u16 u32 u64 usize }
    located_floats! { f16 bf16 f32 f64 }
}
