//! Which of our element types and operations MPI has, with the same results.

use num_complex::Complex;
use spmd_core::element::{DType, Element};
use spmd_core::op::ErasedOp;

use crate::handles::{Datatype, Op};
use crate::library::Constants;

/// The kinds of scalars that MPI folds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Signed,
    Unsigned,
    Float,
    Complex,
}

macro_rules! kinds {
    ($($name:ident $type:ty => $kind:ident,)*) => {
        fn kind(dtype: &DType) -> Option<Kind> {
            $(const $name: u64 = <$type>::DTYPE.id;)*
            match dtype.id {
                $($name => Some(Kind::$kind),)*
                _ => None,
            }
        }
    };
}

kinds! {
    I8 i8 => Signed,
    I16 i16 => Signed,
    I32 i32 => Signed,
    I64 i64 => Signed,
    ISIZE isize => Signed,
    U8 u8 => Unsigned,
    U16 u16 => Unsigned,
    U32 u32 => Unsigned,
    U64 u64 => Unsigned,
    USIZE usize => Unsigned,
    F32 f32 => Float,
    F64 f64 => Float,
    C32 Complex<f32> => Complex,
    C64 Complex<f64> => Complex,
}

/// MPI's type and operation for ours, where they give the same but for the order of the fold.
///
/// Not so `Min` and `Max` of floats, which say what becomes of NaN and −0, as MPI does not; the
/// product of complex numbers, for which there are several formulas; the logical operations, whose
/// true value MPI leaves open; sums of 8 and 16 bits, which Open MPI saturates where it has AVX
/// (its issue 8045). MPI has no arrays: their operations are not the library's own here.
#[inline]
pub fn native(mpi: &Constants, dtype: &DType, op: &ErasedOp<'_>) -> Option<(Datatype, Op)> {
    // A type or operation of the program's own may have the name of one of ours.
    if !op.trusted() {
        return None;
    }
    let kind = kind(dtype)?;
    let width = dtype.size.trailing_zeros() as usize;
    // Sums and products of unsigned numbers wrap, and have the bits of those of signed ones.
    let wrapping = match kind {
        Kind::Signed | Kind::Unsigned => mpi.unsigned[width],
        Kind::Float if dtype.size == 4 => mpi.float,
        Kind::Float => mpi.double,
        Kind::Complex if dtype.size == 8 => mpi.float_complex,
        Kind::Complex => mpi.double_complex,
    };
    let ordered = if kind == Kind::Signed { mpi.signed[width] } else { wrapping };
    let integer = matches!(kind, Kind::Signed | Kind::Unsigned);
    match op.id() {
        SUM if !integer || dtype.size >= 4 => Some((wrapping, mpi.sum)),
        PROD if kind != Kind::Complex => Some((wrapping, mpi.prod)),
        MIN if integer => Some((ordered, mpi.min)),
        MAX if integer => Some((ordered, mpi.max)),
        BIT_AND if integer => Some((wrapping, mpi.band)),
        BIT_OR if integer => Some((wrapping, mpi.bor)),
        BIT_XOR if integer => Some((wrapping, mpi.bxor)),
        _ => None,
    }
}

const SUM: u64 = ErasedOp::id_of("Sum");
const PROD: u64 = ErasedOp::id_of("Prod");
const MIN: u64 = ErasedOp::id_of("Min");
const MAX: u64 = ErasedOp::id_of("Max");
const BIT_AND: u64 = ErasedOp::id_of("BitAnd");
const BIT_OR: u64 = ErasedOp::id_of("BitOr");
const BIT_XOR: u64 = ErasedOp::id_of("BitXor");

#[cfg(test)]
mod tests;
