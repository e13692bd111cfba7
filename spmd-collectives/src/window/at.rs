//! Which elements of a part a call is for.

use spmd_core::internal::{Call, Pattern};
use spmd_core::{Error, Result};

/// Which elements of a target's part a call is for: those from an offset on, as the offset itself
/// says, or blocks of them ([`At::strided`]).
///
/// ```
/// use spmd::prelude::*;
///
/// spmd(2, |ctx| {
///     let grid = ctx.window::<i32>(9)?;
///     grid.fence()?;
///     if ctx.rank() == 0 {
///         grid.put(&[1, 2, 3], 1, At::strided(2, 3, 1, 3))?; // the last column of 3 × 3
///     }
///     grid.fence()?;
///     if ctx.rank() == 1 {
///         assert_eq!(grid.read(..)?, [0, 0, 1, 0, 0, 2, 0, 0, 3]);
///     }
///     Ok(())
/// })?;
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct At {
    first: usize,
    blocks: Option<Strided>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Strided {
    count: usize,
    block: usize,
    stride: usize,
}

/// Elements in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// Where it starts in the part.
    pub(super) at: usize,
    /// Which of the elements of the call is its first.
    pub(super) from: usize,
    pub(super) len: usize,
}

impl From<usize> for At {
    #[inline]
    fn from(first: usize) -> At {
        At { first, blocks: None }
    }
}

impl At {
    /// `count` blocks of `block` elements, each `stride` elements after the start of the one before;
    /// the first starts at element `first`. Blocks must not overlap.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let two_rows_of_a_block: At = At::strided(5, 2, 3, 10);
    /// assert_eq!(two_rows_of_a_block, At::strided(5, 2, 3, 10));
    /// ```
    #[inline]
    pub const fn strided(first: usize, count: usize, block: usize, stride: usize) -> At {
        At { first, blocks: Some(Strided { count, block, stride }) }
    }

    /// Whether all `count` of them are in one piece, within a part of `len`.
    #[inline(always)]
    pub(super) fn is_within(self, count: usize, len: usize) -> bool {
        self.blocks.is_none() && self.first <= len && count <= len - self.first
    }

    /// The first element, if all are in one piece.
    #[inline(always)]
    pub(super) fn first(self) -> Option<usize> {
        self.blocks.is_none().then_some(self.first)
    }

    /// Errors: they are not `count` elements of a part of `len`; blocks overlap.
    #[cold]
    pub(super) fn check(self, call: &Call<'_>, count: usize, len: usize) -> Result<()> {
        let end = match self.blocks {
            None => self.first.saturating_add(count),
            Some(Strided { count: blocks, block, stride }) => {
                let all = blocks.saturating_mul(block);
                if all != count {
                    return Err(Error::length(call, "strided pattern", all, count));
                }
                if blocks > 1 && stride < block {
                    let why = format!("blocks of {block} elements overlap at a stride of {stride}");
                    return Err(Error::argument(format!("{call}: {why}")));
                }
                let last = blocks.saturating_sub(1).saturating_mul(stride);
                let length = if count == 0 { 0 } else { last.saturating_add(block) };
                self.first.saturating_add(length)
            }
        };
        if end > len {
            return Err(Error::length(call, "part of the target", len, end));
        }
        Ok(())
    }

    /// The same `count` elements as a pattern, once they are checked.
    pub(super) fn pattern(self, count: usize) -> Pattern {
        match self.blocks {
            Some(Strided { count: blocks, block, stride }) if count > 0 => {
                Pattern { first: self.first, blocks, block, stride }
            }
            _ => Pattern::one(self.first, count),
        }
    }

    /// The pieces that `count` elements lie in, once they are checked.
    pub(super) fn runs(self, count: usize) -> impl Iterator<Item = Run> {
        let Strided { count: blocks, block, stride } =
            self.blocks.unwrap_or(Strided { count: 1, block: count, stride: 0 });
        let blocks = if count == 0 { 0 } else { blocks };
        let first = self.first;
        (0..blocks).map(move |index| Run {
            at: first + index * stride,
            from: index * block,
            len: block,
        })
    }
}
