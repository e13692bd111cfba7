//! Operations that choose one of their arguments by its side.

use super::erased::ErasedOp;
use super::operation::{Operation, Trust};
use crate::element::Element;

/// The right argument: what a window's part is given takes the place of what is there (MPI's
/// `MPI_REPLACE`); in a reduction, what the last rank has. It is not commutative.
///
/// ```
/// use spmd::prelude::*;
///
/// assert_eq!(Replace.combine(1, 2), 2);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replace;

/// The left argument: what is in a window's part stays (MPI's `MPI_NO_OP`), so that
/// `get_accumulate` and `fetch_and_op` read it; in a reduction, what the first rank has. It is not
/// commutative.
///
/// ```
/// use spmd::prelude::*;
///
/// assert_eq!(NoOp.combine(1, 2), 1);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoOp;

macro_rules! choose {
    ($($op:ident |$left:ident, $right:ident| $chosen:expr;)*) => {$(
        impl<T: Element> Operation<T> for $op {
            const NAME: &'static str = stringify!($op);
            const TRUST: Trust<$op, T> = Trust::yes();

            #[inline(always)]
            fn identity(&self) -> u64 {
                const { ErasedOp::id_of(stringify!($op)) }
            }

            #[inline(always)]
            fn combine(&self, $left: T, $right: T) -> T {
                $chosen
            }

            #[inline]
            fn commutative(&self) -> bool {
                false
            }
        }
    )*};
}

choose! {
    Replace |_left, right| right;
    NoOp |left, _right| left;
}
