//! Values of any type, folded up a binomial tree: step by step, a rank whose number has the bit of the
//! step gives what it has to the rank without it, and is done. It is the canonical order.

use serde::Serialize;
use serde::de::DeserializeOwned;
use spmd_core::internal::{Call, in_operation};
use spmd_core::{Comm, Result};

use super::codec::{decode, encode};
use crate::neighbor::neighbor_unknown;

/// Folds the values of all ranks, for the root.
pub(super) fn to<T>(
    comm: &Comm,
    call: &Call<'_>,
    value: T,
    root: usize,
    op: impl Fn(T, T) -> T,
) -> Result<Option<T>>
where
    T: Serialize + DeserializeOwned,
{
    let _held = comm.internals().hold(call)?;
    let (me, size) = (comm.rank(), comm.size());
    let mut kept = Some(value);
    let mut step = 1;
    while step < size {
        let (place, bit) = (me % (2 * step), me + step);
        let to = (place == step).then(|| me - step);
        let from = (place == 0 && bit < size).then_some(bit);
        let came = hand_on(comm, call, &mut kept, to, from)?;
        if let Some(right) = came {
            kept = kept.map(|left| in_operation(|| op(left, right)));
        }
        step *= 2;
    }
    if root != 0 {
        let to = (me == 0).then_some(root);
        let from = (me == root).then_some(0);
        let came = hand_on(comm, call, &mut kept, to, from)?;
        kept = came.or(kept);
    }
    Ok(kept)
}

/// One step, in which all ranks are: what a rank has goes to `to`, and it gets what `from` has.
fn hand_on<T>(
    comm: &Comm,
    call: &Call<'_>,
    kept: &mut Option<T>,
    to: Option<usize>,
    from: Option<usize>,
) -> Result<Option<T>>
where
    T: Serialize + DeserializeOwned,
{
    let given = kept.take_if(|_| to.is_some());
    let bytes = given.map_or(Ok(Vec::new()), |value| encode(call, &value))?;
    let came = neighbor_unknown((comm, &[to, from]), call, &bytes, &[bytes.len(), 0])?;
    from.map(|_| decode(call, &came[1])).transpose()
}
