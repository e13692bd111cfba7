//! A value with the place where it was found, for `MinLoc` and `MaxLoc`.

use std::fmt;

use super::{DType, Element};
use half::{bf16, f16};

/// A value and its index, the element type of [`MinLoc`](crate::op::MinLoc) and
/// [`MaxLoc`](crate::op::MaxLoc).
///
/// The index is whatever the program counts: an offset in the whole array, a rank.
///
/// ```
/// use spmd::prelude::*;
///
/// let (warm, cold) = (Located::new(17.5, 3), Located::new(-4.0, 8));
/// let coldest = MinLoc.combine(warm, cold);
/// assert_eq!((coldest.value(), coldest.index()), (-4.0, 8));
/// assert_eq!(coldest.to_string(), "-4 at 8");
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Located<T> {
    /// 64 bits in the order of the machine. As bytes and in front of the value they need no
    /// alignment, so that no type of up to 8 bytes leaves padding.
    index: [u8; 8],
    value: T,
}

impl<T: Copy> Located<T> {
    /// `value`, found at `index`.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let peak = Located::new(0.75, 12);
    /// assert_eq!((peak.value(), peak.index()), (0.75, 12));
    /// ```
    pub fn new(value: T, index: usize) -> Located<T> {
        Located { index: (index as u64).to_ne_bytes(), value }
    }

    /// The value.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// assert_eq!(Located::new(0.75, 12).value(), 0.75);
    /// ```
    pub fn value(&self) -> T {
        self.value
    }

    /// Where it was found.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// assert_eq!(Located::new(0.75, 12).index(), 12);
    /// ```
    pub fn index(&self) -> usize {
        u64::from_ne_bytes(self.index) as usize
    }
}

impl<T: fmt::Debug> fmt::Debug for Located<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let index = u64::from_ne_bytes(self.index);
        f.debug_struct("Located").field("value", &self.value).field("index", &index).finish()
    }
}

/// The value as it is formatted by itself, and its index: `0.75 at 12`.
impl<T: fmt::Display> fmt::Display for Located<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)?;
        write!(f, " at {}", u64::from_ne_bytes(self.index))
    }
}

macro_rules! located {
    ($($value:ty)*) => {$(
        const _: () = assert!(size_of::<Located<$value>>() == 8 + size_of::<$value>());

        // SAFETY: `repr(C)` of eight bytes and a number; the assertion above shows that there
        // is no padding, and every bit pattern of both is a value.
        unsafe impl Element for Located<$value> {
            const DTYPE: DType =
                DType::scalar::<Self>(concat!("Located<", stringify!($value), ">"), None);
        }
    )*};
}

located! { i8 i16 i32 i64 isize u8 u16 u32 u64 usize f16 bf16 f32 f64 }
