//! What buffers are made of: the types that may travel between ranks, and their erased form.
//!
//! | element type | `Sum` `Prod` | `Min` `Max` | `BitAnd` `BitOr` `BitXor` | `LogicalAnd` `LogicalOr` | `MinLoc` `MaxLoc` |
//! | --- | --- | --- | --- | --- | --- |
//! | `i8` to `i128`, `u8` to `u128`, `isize`, `usize` | wrap | yes | yes | non-zero is true | |
//! | `f32` `f64` | yes | NaN wins, −0 < +0 | | | |
//! | `f16` `bf16` (crate `half`) | in `f32`, rounded after each step | NaN wins, −0 < +0 | | | |
//! | `Complex<f32>` `Complex<f64>` (crate `num-complex`) | yes | | | | |
//! | `bool` | | `false < true` | yes | yes | |
//! | `char` | | by code point | | | |
//! | [`Located<T>`] | | | | | yes |
//! | `[T; N]` | each operation that `T` has, element by element | | | | |
//! | `#[derive(Element)]` structs | `#[derive(Sum, Prod)]` | `#[derive(Min, Max)]` | | | |
//! | `#[derive(Element)]` enums | | `#[derive(Min, Max)]` | | | |
//!
//! [`Op::new`](crate::op::Op::new) makes an operation over any of them.

use half::{bf16, f16};
use num_complex::Complex;

mod declared;
mod dtype;
mod located;
mod name;
mod object;

pub(crate) use dtype::hash_text;
pub use dtype::{DType, Valid};
pub use located::Located;
#[doc(hidden)]
pub use name::{Name, Parameter};
pub(crate) use object::{last_segment, spell};
/// Makes a `#[repr(C)]` struct without padding, whose fields are all elements, or an enum without
/// fields whose representation is an integer, an [`Element`](trait@Element).
///
/// The type must also be `Clone` and `Copy`. It is an error at compile time when
///
/// - a struct is not `repr(C)` (or `repr(transparent)`), has padding or no field;
/// - an enum is not `repr(u8)`, or of another integer of at most 64 bits, has fields or no variant;
/// - it has a lifetime.
///
/// The code refers to `::spmd`; `#[spmd(crate = path)]` names another crate that re-exports
/// `Element`, `DType` and the module `element`.
///
/// ```
/// use spmd::prelude::*;
///
/// #[derive(Clone, Copy, Element)]
/// #[repr(C)]
/// struct Particle {
///     position: [f64; 3],
///     charge: i32,
///     fixed: u32, // a `bool` here would leave three bytes of padding
/// }
/// assert!(Particle::DTYPE.to_string().ends_with("::Particle"));
/// assert_eq!(Particle::DTYPE.size, 32);
/// ```
///
/// An enum is checked where it arrives: bytes that are no variant are an error, never a value.
///
/// ```
/// use spmd::prelude::*;
///
/// #[derive(Clone, Copy, Debug, PartialEq, Element)]
/// #[repr(u8)]
/// enum Phase {
///     Solid,
///     Liquid,
///     Gas = 9,
/// }
/// let phases = spmd(2, |ctx| ctx.broadcast_value((ctx.rank() == 0).then_some(Phase::Gas), 0))?;
/// assert_eq!(phases, [Phase::Gas; 2]);
/// # Ok::<(), Error>(())
/// ```
///
/// Type parameters are elements, too, and belong to the type that ranks compare. Constant ones are
/// integers, `bool` or `char`.
///
/// ```
/// use spmd::prelude::*;
///
/// #[derive(Clone, Copy, Element)]
/// #[repr(C)]
/// struct Pair<T> {
///     a: T,
///     b: T,
/// }
/// assert!(Pair::<f32>::DTYPE.to_string().ends_with("::Pair<f32>"));
/// assert_ne!(Pair::<f32>::DTYPE, Pair::<i32>::DTYPE);
/// ```
///
/// Padding does not compile, since bytes without a value must not be sent; in a generic struct it is
/// found where a type with padding is used:
///
/// ```compile_fail,E0080
/// use spmd::prelude::*;
///
/// #[derive(Clone, Copy, Element)]
/// #[repr(C)]
/// struct Padded {
///     position: [f64; 3],
///     fixed: bool,
/// }
/// ```
///
/// ```compile_fail,E0080
/// use spmd::prelude::*;
///
/// #[derive(Clone, Copy, Element)]
/// #[repr(C)]
/// struct Pair<A, B> {
///     a: A,
///     b: B,
/// }
/// let fits = Pair { a: 1.0f64, b: 2u64 };
/// let padded = Pair { a: 1.0f64, b: 2u8 };
/// spmd(2, |ctx| {
///     ctx.allgather_value(fits)?;
///     ctx.allgather_value(padded)
/// })?;
/// # Ok::<(), Error>(())
/// ```
///
/// Nor does a field that is no element:
///
/// ```compile_fail,E0277
/// use spmd::prelude::*;
///
/// #[derive(Clone, Copy, Element)]
/// #[repr(C)]
/// struct Borrowing {
///     name: &'static u8,
/// }
/// ```
pub use spmd_derive::Element;

/// A type whose values are plain bytes, so that ranks can exchange them by copying.
///
/// Implemented for the types in the [table](self) above; `#[derive(Element)]` adds structs and enums.
///
/// ```
/// use spmd::prelude::*;
///
/// fn bytes<T: Element>(values: &[T]) -> usize {
///     values.len() * T::DTYPE.size as usize
/// }
/// assert_eq!(bytes(&[[1.0f64; 3]; 2]), 48);
/// ```
///
/// # Safety
///
/// - Every byte of a value is initialised: there is no padding and no uninitialised part.
/// - The bytes mean the same in every process: no pointers, references, handles or lifetimes.
/// - The size is not zero.
/// - [`DTYPE`](Element::DTYPE) has the size and alignment of `Self`, and its `valid` accepts no
///   bytes that are not a value of `Self`.
///
/// All of this holds once `DTYPE` has been evaluated: for an array of length zero, or a generic struct
/// with padding, that fails. Unsafe code that relies on it evaluates `DTYPE` first.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an element type: ranks cannot exchange it as bytes",
    note = "numbers, `bool`, `char`, `f16`, `bf16`, complex numbers and arrays of them are elements",
    note = "for a struct of elements, use `#[derive(Clone, Copy, Element)] #[repr(C)]`; for any serde type, the `_object` calls"
)]
pub unsafe trait Element: Copy + Send + Sync + 'static {
    /// The erased description of this type.
    const DTYPE: DType;
}

macro_rules! every_bit_pattern {
    ($($scalar:ty)*) => {$(
        // SAFETY: a primitive number, or a `repr(C)` pair or `repr(transparent)` wrapper of
        // them: no padding, no pointers, not of size zero; every bit pattern is a value.
        unsafe impl Element for $scalar {
            const DTYPE: DType = DType::scalar::<$scalar>(stringify!($scalar), None);
        }
    )*};
}

every_bit_pattern! {
    u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64 f16 bf16 Complex<f32> Complex<f64>
}

// SAFETY: one byte, which is initialised; `valid` accepts 0 and 1 alone.
unsafe impl Element for bool {
    const DTYPE: DType = DType::scalar::<bool>("bool", Some(valid_bools));
}

// SAFETY: four bytes without padding; `valid` accepts Unicode scalar values alone.
unsafe impl Element for char {
    const DTYPE: DType = DType::scalar::<char>("char", Some(valid_chars));
}

// SAFETY: arrays have no padding between or after their elements, and the lanes are elements
// themselves; `array` refuses the length zero.
unsafe impl<T: Element, const N: usize> Element for [T; N] {
    const DTYPE: DType = DType::array::<T, N>();
}

/// # Safety
///
/// As [`Valid`].
unsafe fn valid_bools(values: *const u8, count: usize) -> bool {
    // No early end, so that the loop is vectorised.
    (0..count).fold(true, |valid, index| {
        // SAFETY: byte `index` of `count` is readable by the caller's contract.
        valid & (unsafe { values.add(index).read() } <= 1)
    })
}

/// # Safety
///
/// As [`Valid`].
unsafe fn valid_chars(values: *const u8, count: usize) -> bool {
    (0..count).fold(true, |valid, index| {
        // SAFETY: the four bytes of char `index` of `count` are readable by the caller's
        // contract, and `read_unaligned` needs no alignment.
        let code = unsafe { values.cast::<u32>().add(index).read_unaligned() };
        valid & char::from_u32(code).is_some()
    })
}

#[cfg(test)]
mod tests;
