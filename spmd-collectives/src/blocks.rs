//! Buffers made of one block for each rank, in rank order without gaps.

use spmd_core::internal::Call;
use spmd_core::{Error, Result};

use crate::check;

/// The displacements of blocks of these lengths, one for each of `ranks`, in the buffer `what` of
/// `len` elements: where each starts, and after the last the end.
pub(crate) fn displacements(
    call: &Call<'_>,
    counts: &[usize],
    ranks: usize,
    what: &'static str,
    len: usize,
) -> Result<Vec<usize>> {
    check::length(call, "list of counts", counts.len(), ranks)?;
    let displacements = offsets(call, counts)?;
    check::length(call, what, len, displacements[ranks])?;
    Ok(displacements)
}

/// What is wrong where two ranks give other lists of counts, which are to be the same on all.
#[cold]
pub(crate) fn differing(one: usize, other: usize) -> String {
    format!("different counts: rank {one} of the communicator gives other counts than rank {other}")
}

/// Where blocks of these lengths start, and after the last the end.
pub(crate) fn offsets(call: &Call<'_>, counts: &[usize]) -> Result<Vec<usize>> {
    let mut offsets = Vec::with_capacity(counts.len() + 1);
    let mut end = 0usize;
    offsets.push(end);
    for count in counts {
        end = end
            .checked_add(*count)
            .ok_or_else(|| Error::argument(format!("{call}: the sum of the counts overflows")))?;
        offsets.push(end);
    }
    Ok(offsets)
}

/// A vector with room for `count` elements. How many may be what another process says, so that
/// too many are an error.
pub(crate) fn room_for<T>(call: &Call<'_>, count: usize) -> Result<Vec<T>> {
    let mut values = Vec::new();
    make_room(call, &mut values, count)?;
    Ok(values)
}

/// The same in a vector that there is, of which nothing is left.
pub(crate) fn make_room<T>(call: &Call<'_>, values: &mut Vec<T>, count: usize) -> Result<()> {
    values.clear();
    values.try_reserve_exact(count).map_err(|error| {
        Error::unavailable(
            format!("memory for {count} elements"),
            format!("{call}: {error}"),
            "receive less at once".into(),
        )
    })
}
