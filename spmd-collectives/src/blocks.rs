//! Buffers made of one block for each rank, in rank order without gaps.

use spmd_core::algorithm::Call;
use spmd_core::{Error, Result};

use crate::check;

/// The elements of all ranks in rank order, and where each rank's start, with the end of the last
/// after them: those of rank i are `all[starts[i]..starts[i + 1]]`.
///
/// ```
/// # use spmd_collectives::{Allgather, Gathered};
/// # use spmd_core::spmd;
/// let gathered = spmd(3, |ctx| ctx.allgatherv_vec(&vec!['x'; ctx.rank()]))?;
/// let (all, starts): &Gathered<char> = &gathered[0];
/// assert_eq!((all.len(), &starts[..]), (3, &[0, 0, 1, 3][..]));
/// # Ok::<(), spmd_core::Error>(())
/// ```
pub type Gathered<T> = (Vec<T>, Vec<usize>);

/// Where the blocks of a buffer lie, in elements.
pub(crate) enum Blocks {
    /// All of this length.
    Equal(usize),
    /// Where each starts, and after the last the end.
    Varying(Vec<usize>),
}

impl Blocks {
    /// Blocks of these lengths, one for each of `ranks`, in the buffer `what` of `len` elements.
    pub(crate) fn varying(
        call: &Call<'_>,
        counts: &[usize],
        ranks: usize,
        what: &'static str,
        len: usize,
    ) -> Result<Blocks> {
        check::length(call, "list of counts", counts.len(), ranks)?;
        let offsets = offsets(call, counts)?;
        check::length(call, what, len, offsets[ranks])?;
        Ok(Blocks::Varying(offsets))
    }

    /// The start and length of a rank's block.
    pub(crate) fn of(&self, rank: usize) -> (usize, usize) {
        match self {
            Blocks::Equal(count) => (rank * count, *count),
            Blocks::Varying(starts) => (starts[rank], starts[rank + 1] - starts[rank]),
        }
    }

    /// A number that differs, but for chance, between blocks (FNV-1a, by words). Blocks of equal
    /// length need none: they are agreed on, as the ranks make the same call.
    pub(crate) fn digest(&self) -> u64 {
        let Blocks::Varying(starts) = self else { return 0 };
        starts.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, start| {
            (hash ^ *start as u64).wrapping_mul(0x0000_0100_0000_01b3)
        })
    }

    /// The length of the longest block.
    pub(crate) fn longest(&self) -> usize {
        match self {
            Blocks::Equal(count) => *count,
            Blocks::Varying(starts) => {
                starts.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0)
            }
        }
    }
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
            .ok_or_else(|| Error::Argument(format!("{call}: the sum of the counts overflows")))?;
        offsets.push(end);
    }
    Ok(offsets)
}

/// A vector with room for `count` elements. How many may be what another process says, so that
/// too many are an error.
pub(crate) fn room_for<T>(call: &Call<'_>, count: usize) -> Result<Vec<T>> {
    let mut values = Vec::new();
    values.try_reserve_exact(count).map_err(|error| Error::Unavailable {
        what: format!("memory for {count} elements"),
        reason: format!("{call}: {error}"),
        remedy: "receive less at once".into(),
    })?;
    Ok(values)
}
