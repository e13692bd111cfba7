//! What splits a communicator.

use crate::sealed;

/// Which part of a communicator a rank is to be in: a number, or `true` or `false` where there are two;
/// or none (`MPI_UNDEFINED`).
///
/// ```
/// use spmd::prelude::*;
///
/// let sizes = spmd(5, |ctx| {
///     let third = ctx.split(ctx.rank() % 3, 0)?.expect("every rank has a color");
///     let lower = ctx.split(ctx.rank() < 2, 0)?.expect("every rank has a color");
///     let first = ctx.split((ctx.rank() == 0).then_some(0), 0)?;
///     Ok((third.size(), lower.size(), first.is_some()))
/// })?;
/// assert_eq!(sizes[0], (2, 2, true));
/// assert_eq!(sizes[4], (2, 3, false));
/// # Ok::<(), Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the color of a part of a communicator",
    note = "a color is a `u32`, `usize`, `i32` or `bool`, or an `Option<u32>` of which `None` is in no part"
)]
pub trait Color: sealed::Color {
    /// The number; none for no part. An error for a number that no color can have.
    #[doc(hidden)]
    fn color(self) -> Result<Option<u32>, String>;
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl sealed::Color for $number {}

        impl Color for $number {
            fn color(self) -> Result<Option<u32>, String> {
                u32::try_from(self).map(Some).map_err(|_| format!("{self} is no color: 0 to {}", u32::MAX))
            }
        }
    )*};
}

numbers! { usize i32 }

impl sealed::Color for u32 {}

impl Color for u32 {
    fn color(self) -> Result<Option<u32>, String> {
        Ok(Some(self))
    }
}

impl sealed::Color for bool {}

impl Color for bool {
    fn color(self) -> Result<Option<u32>, String> {
        Ok(Some(self.into()))
    }
}

impl sealed::Color for Option<u32> {}

impl Color for Option<u32> {
    fn color(self) -> Result<Option<u32>, String> {
        Ok(self)
    }
}
