//! Checks of arguments, before a byte moves.

use spmd_core::algorithm::Call;
use spmd_core::{Error, Result};

/// Refuses a buffer (or argument) of another length than it must have.
pub(crate) fn length(
    call: &Call<'_>,
    what: &'static str,
    given: usize,
    expected: usize,
) -> Result<()> {
    if given == expected {
        return Ok(());
    }
    Err(Error::Length { call: call.to_string(), what, given, expected })
}

/// Refuses counts that are not one a block, or that don't add up to the length of their buffer.
pub(crate) fn counts(
    call: &Call<'_>,
    what: &'static str,
    len: usize,
    counts: &[usize],
    blocks: usize,
) -> Result<()> {
    length(call, "list of counts", counts.len(), blocks)?;
    let sum = counts.iter().fold(0usize, |sum, count| sum.saturating_add(*count));
    length(call, what, len, sum)
}
