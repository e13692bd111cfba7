//! Which operations a processor carries out on a word of memory in one step.

use std::any::TypeId;

use super::erased::ErasedOp;
use super::operation::Operation;
use crate::element::Element;

/// What a processor does with a word in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Native {
    /// Adds to it, wrapping.
    Add,
    /// Keeps the bits that both have.
    And,
    /// Sets the bits that either has.
    Or,
    /// Flips the bits that the other has.
    Xor,
    /// Writes the other.
    Swap,
    /// Reads it.
    Load,
}

impl Native {
    /// What gives, for elements of one word, the same bits as this operation.
    #[inline(always)]
    pub fn of<T: Element, O: Operation<T>>(op: &O) -> Option<Native> {
        // Who is trusted is one of the library's own, whose names are all different.
        if !O::TRUST.is_trusted() {
            return None;
        }
        let id = op.identity();
        let is = |name: u64| id == name;
        let integer = is_integer::<T>();
        let bits = integer || same::<T, bool>();
        if integer && is(const { ErasedOp::id_of("Sum") }) {
            Some(Native::Add)
        } else if bits && is(const { ErasedOp::id_of("BitAnd") }) {
            Some(Native::And)
        } else if bits && is(const { ErasedOp::id_of("BitOr") }) {
            Some(Native::Or)
        } else if bits && is(const { ErasedOp::id_of("BitXor") }) {
            Some(Native::Xor)
        } else if is(const { ErasedOp::id_of("Replace") }) {
            Some(Native::Swap)
        } else if is(const { ErasedOp::id_of("NoOp") }) {
            Some(Native::Load)
        } else {
            None
        }
    }
}

/// Whether `T` is an integer of at most 8 bytes.
#[inline(always)]
fn is_integer<T: Element>() -> bool {
    same::<T, u8>()
        || same::<T, u16>()
        || same::<T, u32>()
        || same::<T, u64>()
        || same::<T, usize>()
        || same::<T, i8>()
        || same::<T, i16>()
        || same::<T, i32>()
        || same::<T, i64>()
        || same::<T, isize>()
}

#[inline(always)]
fn same<T: 'static, U: 'static>() -> bool {
    TypeId::of::<T>() == TypeId::of::<U>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{BitAnd, BitXor, Max, NoOp, Op, Replace, Sum};

    #[test]
    fn what_is_exact_on_a_word_is_native() {
        assert_eq!(Native::of::<i16, _>(&Sum), Some(Native::Add));
        assert_eq!(Native::of::<f64, _>(&Sum), None);
        assert_eq!(Native::of::<u128, _>(&Sum), None);
        assert_eq!(Native::of::<bool, _>(&BitAnd), Some(Native::And));
        assert_eq!(Native::of::<u64, _>(&&BitXor), Some(Native::Xor));
        assert_eq!(Native::of::<u64, _>(&Max), None);
        assert_eq!(Native::of::<f32, _>(&Replace), Some(Native::Swap));
        assert_eq!(Native::of::<char, _>(&NoOp), Some(Native::Load));
        let same_name = Op::new(|a: u64, _: u64| a).named("Sum");
        assert_eq!(Native::of::<u64, _>(&same_name), None);
    }
}
