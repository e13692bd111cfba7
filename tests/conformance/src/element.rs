//! Values of every element type, each a function of a random number.

use half::{bf16, f16};
use num_complex::Complex;
use spmd_core::{Element, Located};

/// An element type that tests can make values of.
pub trait Sample: Element {
    /// A value; its distribution is that of `random`'s bits, as far as the type has them.
    fn made(random: u64) -> Self;

    /// The same with one payload for every NaN: which one an operation gives is the processor's.
    #[must_use]
    fn without_payloads(self) -> Self {
        self
    }

    /// Whether this is `exact` but for the rounding of a sum or product of `terms` such values.
    fn is_close(&self, exact: &Self, _terms: usize) -> bool {
        bytes(std::slice::from_ref(self)) == bytes(std::slice::from_ref(exact))
    }
}

/// A random number that these three determine.
pub fn random(stream: u64, rank: usize, index: usize) -> u64 {
    let mixed =
        (stream << 40 ^ (rank as u64) << 28 ^ index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 31).wrapping_mul(0xd6e8_feb8_6659_fd93).rotate_right(23)
}

/// So many elements, each made from its index.
///
/// By a plain loop, as are all those here that go through many elements: where nothing is optimised,
/// an iterator takes ten calls a step.
pub fn made_by<T: Sample>(count: usize, make: impl Fn(usize) -> T) -> Vec<T> {
    let mut made = [T::made(0)].repeat(count);
    let (into, mut index) = (&mut made[..], 0);
    while index < count {
        into[index] = make(index);
        index += 1;
    }
    made
}

/// The bytes of these values.
pub fn bytes<T: Element>(values: &[T]) -> &[u8] {
    // SAFETY: an `Element` has no padding, so that all bytes of the slice are initialised; the
    // result borrows it.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

macro_rules! integers {
    ($($t:ty)*) => {$(
        impl Sample for $t {
            fn made(random: u64) -> $t {
                (u128::from(random) << 70 | u128::from(random)) as $t
            }
        }
    )*};
}

integers! { u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize }

impl Sample for f64 {
    /// 0.5 to 1.8 or the negative of it, so that no product of some ranks overflows; now and then
    /// −0, 0 or NaN.
    fn made(random: u64) -> f64 {
        match random % 101 {
            0 => f64::NAN,
            1 => -0.0,
            2 => 0.0,
            sign => {
                let size = 0.5 + (random >> 11) as f64 / (1u64 << 53) as f64 * 1.3;
                if sign % 2 == 0 { size } else { -size }
            }
        }
    }

    fn without_payloads(self) -> f64 {
        if self.is_nan() { f64::NAN } else { self }
    }

    fn is_close(&self, exact: &f64, terms: usize) -> bool {
        are_close(*self, *exact, terms, f64::EPSILON)
    }
}

impl Sample for f32 {
    fn made(random: u64) -> f32 {
        f64::made(random) as f32
    }

    fn without_payloads(self) -> f32 {
        if self.is_nan() { f32::NAN } else { self }
    }

    fn is_close(&self, exact: &f32, terms: usize) -> bool {
        are_close((*self).into(), (*exact).into(), terms, f32::EPSILON.into())
    }
}

/// Whether these differ by no more than the rounding of that many values as `made` makes them.
fn are_close(value: f64, exact: f64, terms: usize, epsilon: f64) -> bool {
    let bound = 2.0 * epsilon * (terms * terms) as f64 * exact.abs().max(1.0);
    value.is_nan() == exact.is_nan() && (exact.is_nan() || (value - exact).abs() <= bound)
}

impl Sample for f16 {
    fn made(random: u64) -> f16 {
        f16::from_f64(f64::made(random))
    }

    fn without_payloads(self) -> f16 {
        if self.is_nan() { f16::NAN } else { self }
    }
}

impl Sample for bf16 {
    fn made(random: u64) -> bf16 {
        bf16::from_f64(f64::made(random))
    }

    fn without_payloads(self) -> bf16 {
        if self.is_nan() { bf16::NAN } else { self }
    }
}

impl Sample for bool {
    fn made(random: u64) -> bool {
        random & 12 != 0
    }
}

impl Sample for char {
    fn made(random: u64) -> char {
        char::from_u32((random % 0xd7ff) as u32).expect("below the surrogates")
    }
}

impl<T: Sample> Sample for Complex<T>
where
    Complex<T>: Element,
{
    fn made(random: u64) -> Complex<T> {
        Complex::new(T::made(random), T::made(random.rotate_left(17)))
    }

    fn without_payloads(self) -> Complex<T> {
        Complex::new(self.re.without_payloads(), self.im.without_payloads())
    }

    fn is_close(&self, exact: &Complex<T>, terms: usize) -> bool {
        self.re.is_close(&exact.re, terms) && self.im.is_close(&exact.im, terms)
    }
}

impl<T: Sample, const N: usize> Sample for [T; N] {
    fn made(random: u64) -> [T; N] {
        let mut lanes = [T::made(random); N];
        for (lane, value) in lanes.iter_mut().enumerate() {
            *value = T::made(random.rotate_left(13 * lane as u32));
        }
        lanes
    }

    fn without_payloads(self) -> [T; N] {
        self.map(T::without_payloads)
    }
}

macro_rules! located {
    ($($t:ty)*) => {$(
        impl Sample for Located<$t> {
            /// Few values, so that many are equal and the index decides.
            fn made(random: u64) -> Located<$t> {
                Located::new((random % 5) as $t, (random >> 32) as usize)
            }
        }
    )*};
}

located! { f64 f32 i32 u8 i64 }

/// A struct all bytes of which are values.
#[derive(Clone, Copy, Element)]
#[spmd(crate = spmd_core)]
#[repr(C)]
pub struct Particle {
    pub position: [f64; 3],
    pub charge: i32,
    pub cell: u32,
}

impl Sample for Particle {
    fn made(random: u64) -> Particle {
        Particle { position: Sample::made(random), charge: random as i32, cell: !random as u32 }
    }
}

/// A struct not all bytes of which are values: what comes from another process is looked at.
#[derive(Clone, Copy, Element)]
#[spmd(crate = spmd_core)]
#[repr(C)]
pub struct Flagged {
    pub letter: char,
    pub on: [bool; 3],
    pub weight: u8,
}

impl Sample for Flagged {
    fn made(random: u64) -> Flagged {
        Flagged { letter: char::made(random), on: Sample::made(random >> 3), weight: random as u8 }
    }
}
