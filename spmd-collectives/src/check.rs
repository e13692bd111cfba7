//! Checks of arguments, before a byte moves.

use spmd_core::internal::Call;
use spmd_core::{Error, Result};

/// Refuses a buffer (or argument) of another length than it must have.
#[inline]
pub(crate) fn length(
    call: &Call<'_>,
    what: &'static str,
    given: usize,
    expected: usize,
) -> Result<()> {
    if given == expected {
        return Ok(());
    }
    Err(differs(call, what, given, expected))
}

#[cold]
fn differs(call: &Call<'_>, what: &'static str, given: usize, expected: usize) -> Error {
    Error::length(call, what, given, expected)
}
