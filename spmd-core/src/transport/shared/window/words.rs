//! Access to memory that others may access at the same time.
//!
//! An element consists of words: of 8 bytes where that divides its size, else of 4, 2 or 1. Elements
//! lie at multiples of their size from the start of a part, which is aligned to more than a word, so
//! that their words are aligned. All accesses to a part are atomic accesses of its words; an element
//! of one word is read and written whole.

mod wide;

pub use super::super::prefetch::{prefetch, prefetch_to_change};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, Ordering::*};

use crate::op::Native;

/// The size of the words that elements consist of, in bytes: 1, 2, 4 or 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WordSize(usize);

impl WordSize {
    /// That of elements of `size` bytes.
    #[must_use]
    pub const fn of(size: usize) -> WordSize {
        let mut word = 8;
        while !size.is_multiple_of(word) {
            word /= 2;
        }
        WordSize(word)
    }

    pub(crate) const fn bytes(self) -> usize {
        self.0
    }
}

/// One word of a part.
///
/// The pointer given to each function is that of an element of one word, of this size, in a part of
/// a window (its rank cannot unmap it: who has the parts holds it), and all accesses to it are atomic
/// and of this size.
pub trait Word: Copy + Eq + 'static {
    /// Reads it.
    ///
    /// # Safety
    /// See [`Word`].
    unsafe fn load(at: *mut u8, order: Ordering) -> Self;
    /// Writes it.
    ///
    /// # Safety
    /// See [`Word`].
    unsafe fn store(at: *mut u8, value: Self, order: Ordering);
    /// Writes it, and gives what was there.
    ///
    /// # Safety
    /// See [`Word`].
    unsafe fn swap(at: *mut u8, value: Self) -> Self;
    /// Writes `new` if `old` is there; gives what was there.
    ///
    /// # Safety
    /// See [`Word`].
    unsafe fn compare_and_swap(at: *mut u8, old: Self, new: Self) -> Result<Self, Self>;
    /// Adds to it, wrapping; gives what was there.
    ///
    /// # Safety
    /// See [`Word`].
    unsafe fn add(at: *mut u8, value: Self) -> Self;
    /// Keeps the bits that `value` has; gives what was there.
    ///
    /// # Safety
    /// See [`Word`].
    unsafe fn and(at: *mut u8, value: Self) -> Self;
    /// Sets the bits that `value` has; gives what was there.
    ///
    /// # Safety
    /// See [`Word`].
    unsafe fn or(at: *mut u8, value: Self) -> Self;
    /// Flips the bits that `value` has; gives what was there.
    ///
    /// # Safety
    /// See [`Word`].
    unsafe fn xor(at: *mut u8, value: Self) -> Self;
}

macro_rules! words {
    ($($word:ty: $atomic:ty;)*) => {$(
        impl Word for $word {
            #[inline(always)]
            unsafe fn load(at: *mut u8, order: Ordering) -> $word {
                // SAFETY: an aligned word that stays mapped, and is only ever accessed by atomics
                // of its size (this trait's contract). So below.
                unsafe { <$atomic>::from_ptr(at.cast()) }.load(order)
            }

            #[inline(always)]
            unsafe fn store(at: *mut u8, value: $word, order: Ordering) {
                // SAFETY: as above.
                unsafe { <$atomic>::from_ptr(at.cast()) }.store(value, order);
            }

            #[inline(always)]
            unsafe fn swap(at: *mut u8, value: $word) -> $word {
                // SAFETY: as above.
                unsafe { <$atomic>::from_ptr(at.cast()) }.swap(value, AcqRel)
            }

            #[inline(always)]
            unsafe fn compare_and_swap(at: *mut u8, old: $word, new: $word) -> Result<$word, $word> {
                // SAFETY: as above.
                let word = unsafe { <$atomic>::from_ptr(at.cast()) };
                word.compare_exchange(old, new, AcqRel, Acquire)
            }

            #[inline(always)]
            unsafe fn add(at: *mut u8, value: $word) -> $word {
                // SAFETY: as above.
                unsafe { <$atomic>::from_ptr(at.cast()) }.fetch_add(value, AcqRel)
            }

            #[inline(always)]
            unsafe fn and(at: *mut u8, value: $word) -> $word {
                // SAFETY: as above.
                unsafe { <$atomic>::from_ptr(at.cast()) }.fetch_and(value, AcqRel)
            }

            #[inline(always)]
            unsafe fn or(at: *mut u8, value: $word) -> $word {
                // SAFETY: as above.
                unsafe { <$atomic>::from_ptr(at.cast()) }.fetch_or(value, AcqRel)
            }

            #[inline(always)]
            unsafe fn xor(at: *mut u8, value: $word) -> $word {
                // SAFETY: as above.
                unsafe { <$atomic>::from_ptr(at.cast()) }.fetch_xor(value, AcqRel)
            }
        }
    )*};
}

words! {
    u8: AtomicU8;
    u16: AtomicU16;
    u32: AtomicU32;
    u64: AtomicU64;
}

/// Copies `bytes` of a part to private memory, word by word in any order.
///
/// # Safety
/// `from` is a whole number of words of this size in a part of a window, which stays mapped and is
/// only ever accessed by atomics of that size; `into` is writable for `bytes`, of any alignment, and
/// in no part.
#[inline]
pub unsafe fn read(from: *mut u8, into: *mut u8, bytes: usize, word: WordSize) {
    let (first, lines) = wide::split(from, bytes);
    let done = first + lines * wide::LINE;
    // SAFETY: the three pieces are, together, the bytes of both; each begins at a word, as lines are
    // multiples of words and `first` ends where an aligned line begins, or is all.
    unsafe {
        read_words(from, into, first, word);
        wide::read(from.add(first), into.add(first), lines);
        read_words(from.add(done), into.add(done), bytes - done, word);
    }
}

/// Copies `bytes` of private memory to a part, word by word in any order.
///
/// # Safety
/// As [`read`], with `from` readable and `into` in a part.
#[inline]
pub unsafe fn write(from: *const u8, into: *mut u8, bytes: usize, word: WordSize) {
    let (first, lines) = wide::split(into, bytes);
    let done = first + lines * wide::LINE;
    // SAFETY: as in `read`.
    unsafe {
        write_words(from, into, first, word);
        wide::write(from.add(first), into.add(first), lines);
        write_words(from.add(done), into.add(done), bytes - done, word);
    }
}

/// # Safety
/// As [`read`].
#[inline]
unsafe fn read_words(from: *mut u8, into: *mut u8, bytes: usize, word: WordSize) {
    /// # Safety
    /// As [`read`], with words `W`.
    #[inline]
    unsafe fn each<W: Word>(from: *mut u8, into: *mut u8, bytes: usize) {
        for at in (0..bytes).step_by(size_of::<W>()) {
            // SAFETY: the word lies within the bytes of both, which `read` vouches for.
            unsafe { into.add(at).cast::<W>().write_unaligned(W::load(from.add(at), Relaxed)) };
        }
    }
    // SAFETY: this function's contract.
    unsafe {
        match word.0 {
            8 => each::<u64>(from, into, bytes),
            4 => each::<u32>(from, into, bytes),
            2 => each::<u16>(from, into, bytes),
            _ => each::<u8>(from, into, bytes),
        }
    }
}

/// # Safety
/// As [`write`].
#[inline]
unsafe fn write_words(from: *const u8, into: *mut u8, bytes: usize, word: WordSize) {
    /// # Safety
    /// As [`write`], with words `W`.
    #[inline]
    unsafe fn each<W: Word>(from: *const u8, into: *mut u8, bytes: usize) {
        for at in (0..bytes).step_by(size_of::<W>()) {
            // SAFETY: the word lies within the bytes of both, which `write` vouches for.
            unsafe { W::store(into.add(at), from.add(at).cast::<W>().read_unaligned(), Relaxed) };
        }
    }
    // SAFETY: this function's contract.
    unsafe {
        match word.0 {
            8 => each::<u64>(from, into, bytes),
            4 => each::<u32>(from, into, bytes),
            2 => each::<u16>(from, into, bytes),
            _ => each::<u8>(from, into, bytes),
        }
    }
}

/// Reads an element of any size, as bytes: of one word whole.
///
/// # Safety
/// `at` is an element of type `T` in a part of a window, which stays mapped and is only ever accessed
/// by atomics of the size of its words.
#[inline(always)]
pub unsafe fn load<T: Copy>(at: *mut u8) -> MaybeUninit<T> {
    let mut value = MaybeUninit::<T>::uninit();
    let into = value.as_mut_ptr().cast::<u8>();
    // SAFETY: this function's contract; `value` has room for an element.
    unsafe {
        match size_of::<T>() {
            8 => into.cast::<u64>().write_unaligned(u64::load(at, Acquire)),
            4 => into.cast::<u32>().write_unaligned(u32::load(at, Acquire)),
            2 => into.cast::<u16>().write_unaligned(u16::load(at, Acquire)),
            1 => into.write(u8::load(at, Acquire)),
            size => read_words(at, into, size, const { WordSize::of(size_of::<T>()) }),
        }
    }
    value
}

/// Writes an element of any size: of one word whole.
///
/// # Safety
/// As [`load`]; all bytes of `T` are initialised.
#[inline(always)]
pub unsafe fn store<T: Copy>(at: *mut u8, value: T) {
    let from = (&raw const value).cast::<u8>();
    // SAFETY: this function's contract; `value` is an element.
    unsafe {
        match size_of::<T>() {
            8 => u64::store(at, from.cast::<u64>().read_unaligned(), Release),
            4 => u32::store(at, from.cast::<u32>().read_unaligned(), Release),
            2 => u16::store(at, from.cast::<u16>().read_unaligned(), Release),
            1 => u8::store(at, from.read(), Release),
            size => write_words(from, at, size, const { WordSize::of(size_of::<T>()) }),
        }
    }
}

/// Changes an element of one word by one instruction of the processor; gives what was there.
///
/// # Safety
/// See [`Word`].
#[inline(always)]
pub unsafe fn change<W: Word>(at: *mut u8, how: Native, given: W) -> W {
    // SAFETY: this function's contract.
    unsafe {
        match how {
            Native::Add => W::add(at, given),
            Native::And => W::and(at, given),
            Native::Or => W::or(at, given),
            Native::Xor => W::xor(at, given),
            Native::Swap => W::swap(at, given),
            Native::Load => W::load(at, Acquire),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn words_divide_elements() {
        let words = [1, 2, 3, 4, 6, 8, 12, 16, 20, 24].map(|size| WordSize::of(size).0);
        assert_eq!(words, [1, 2, 1, 4, 2, 8, 4, 8, 4, 8]);
    }

    #[test]
    fn every_byte_is_copied_and_no_other() {
        let mut part = vec![0u64; 512];
        let part = part.as_mut_ptr().cast::<u8>();
        let source: Vec<u8> = (0..3000).map(|at| (at % 251) as u8 + 1).collect();
        for word in [1, 2, 4, 8] {
            for bytes in [0, 1, 3, 31, 32, 40, 200].map(|words| words * word) {
                for (at, apart) in [(0, 0), (1, 1), (3, 0), (9, 5)] {
                    let place = at * word;
                    let mut back = vec![0u8; bytes + apart + 1];
                    // SAFETY: the part and the vectors are long enough for the longest copy (1,600
                    // bytes) and the offsets; nobody else uses them, and places are aligned words.
                    unsafe {
                        part.write_bytes(0, 4096);
                        write(source[apart..].as_ptr(), part.add(place), bytes, WordSize(word));
                        read(part.add(place), back[apart..].as_mut_ptr(), bytes, WordSize(word));
                        assert_eq!(part.add(place + bytes).read(), 0);
                        assert!(place == 0 || part.add(place - 1).read() == 0);
                    }
                    assert_eq!(back[apart..apart + bytes], source[apart..apart + bytes]);
                    assert_eq!(back[apart + bytes], 0);
                }
            }
        }
    }
}
