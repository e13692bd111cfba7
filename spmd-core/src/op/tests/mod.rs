//! Every operation on every type against a recursive oracle, bit for bit.

use std::fmt::Debug;

use fastrand::Rng;
use half::{bf16, f16};
use num_complex::Complex;

use super::*;
use crate::element::{Element, Located};

mod builtin;
mod derived;
mod fold;
mod identity;

/// Types with random values that often are special ones, and equality of bits.
trait Sample: Element + Debug {
    fn sample(random: &mut Rng) -> Self;

    /// Equal to the bit; all NaNs are equal.
    fn same(self, other: Self) -> bool;
}

macro_rules! sample {
    ($($t:ty: [$($special:expr),*], $random:expr, $same:expr;)*) => {$(
        impl Sample for $t {
            fn sample(random: &mut Rng) -> $t {
                let special: &[$t] = &[$($special),*];
                let (choice, bits) = (random.u64(..), random.u64(..));
                match special.get((choice >> 16) as usize % special.len().max(1)) {
                    Some(value) if choice % 3 == 0 => *value,
                    _ => $random(bits),
                }
            }

            fn same(self, other: $t) -> bool {
                $same(self, other)
            }
        }
    )*};
}

macro_rules! sample_integers {
    ($($t:ty)*) => { sample! {$(
        $t: [0, 1, <$t>::MIN, <$t>::MAX], |bits: u64| (bits as $t).wrapping_mul(bits as $t | 1), |a, b| a == b;
    )*} };
}

macro_rules! sample_floats {
    ($($t:ty, $from:expr;)*) => { sample! {$(
        $t: [
            $from(0.0), $from(-0.0), $from(1.0), <$t>::NAN, -<$t>::NAN, <$t>::INFINITY,
            <$t>::NEG_INFINITY, <$t>::MAX, <$t>::MIN, <$t>::MIN_POSITIVE, <$t>::from_bits(1)
        ],
        |bits: u64| $from(bits as i32 as f32 / 65536.0),
        |a: $t, b: $t| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
    )*} };
}

sample_integers! { u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize }
sample_floats! { f32, |x: f32| x; f64, f64::from; f16, f16::from_f32; bf16, bf16::from_f32; }
sample! {
    bool: [], |bits| bits & 1 == 1, |a, b| a == b;
    char: ['\0', char::MAX], |bits| char::from_u32(bits as u32 % 0xd800).unwrap(), |a, b| a == b;
}

impl<T: Sample> Sample for Complex<T>
where
    Complex<T>: Element,
{
    fn sample(random: &mut Rng) -> Complex<T> {
        Complex::new(T::sample(random), T::sample(random))
    }

    fn same(self, other: Complex<T>) -> bool {
        self.re.same(other.re) && self.im.same(other.im)
    }
}

impl<T: Sample> Sample for Located<T>
where
    Located<T>: Element,
{
    fn sample(random: &mut Rng) -> Located<T> {
        Located::new(T::sample(random), random.usize(..5))
    }

    fn same(self, other: Located<T>) -> bool {
        self.value().same(other.value()) && self.index() == other.index()
    }
}

impl<T: Sample, const N: usize> Sample for [T; N] {
    fn sample(random: &mut Rng) -> [T; N] {
        std::array::from_fn(|_| T::sample(random))
    }

    fn same(self, other: [T; N]) -> bool {
        self.into_iter().zip(other).all(|(a, b)| a.same(b))
    }
}

/// Which input `out` is.
#[derive(Clone, Copy, Debug)]
enum Out {
    Apart,
    Input(usize),
}

/// `fold_ranks` on typed arrays, `shift` bytes away from any alignment.
fn folded<T: Sample>(op: &ErasedOp<'_>, inputs: &[Vec<T>], out: Out, shift: usize) -> Vec<T> {
    let count = inputs[0].len();
    let size = size_of::<T>();
    let mut arrays: Vec<Vec<u8>> = inputs
        .iter()
        .map(|input| {
            let mut bytes = vec![0; shift];
            // SAFETY: elements have no padding, so all their bytes are initialised.
            bytes.extend(unsafe {
                std::slice::from_raw_parts(input.as_ptr().cast::<u8>(), count * size)
            });
            bytes
        })
        .collect();
    arrays.push(vec![0; shift + count * size]);
    let starts: Vec<*mut u8> = arrays.iter_mut().map(|bytes| bytes[shift..].as_mut_ptr()).collect();
    let to = match out {
        Out::Apart => starts[inputs.len()],
        Out::Input(rank) => starts[rank],
    };
    let mut scratch = Vec::new();
    // SAFETY: each array has `count` values of `T`, the type of `op`; `to` is one of them or an
    // array of its own.
    unsafe {
        let mut input = |rank: usize| starts[rank].cast_const();
        fold_ranks(op, size, to, count, inputs.len(), &mut input, &mut scratch);
        (0..count).map(|index| to.cast::<T>().add(index).read_unaligned()).collect()
    }
}

/// The fold of one element over ranks in canonical order, by its definition.
fn oracle<T: Copy>(combine: &dyn Fn(T, T) -> T, values: &[T]) -> T {
    if let [value] = values {
        return *value;
    }
    let mut split = 1;
    while split * 2 < values.len() {
        split *= 2;
    }
    let (left, right) = values.split_at(split);
    combine(oracle(combine, left), oracle(combine, right))
}

/// Compares `fold_ranks` with the oracle.
fn check_ranks<T: Sample>(
    op: &ErasedOp<'_>,
    combine: &dyn Fn(T, T) -> T,
    ranks: usize,
    count: usize,
    out: Out,
) {
    let mut random = Rng::with_seed((ranks * 1000 + count) as u64);
    let inputs: Vec<Vec<T>> =
        (0..ranks).map(|_| (0..count).map(|_| T::sample(&mut random)).collect()).collect();
    let result = folded(op, &inputs, out, count % 2);
    assert_eq!(result.len(), count);
    for (index, got) in result.into_iter().enumerate() {
        let column: Vec<T> = inputs.iter().map(|input| input[index]).collect();
        let expected = oracle(combine, &column);
        assert!(
            got.same(expected),
            "{} of {}, {ranks} ranks, {out:?}, element {index}: {column:?} gave {got:?}, not {expected:?}",
            op.name(),
            &T::DTYPE,
        );
    }
}
