//! Folds of more elements than MPI counts: several steps, one after the other.

use std::ptr;

use spmd_core::transport::fabric::{Fold, NativeCollective};
use spmd_core::{Error, Result};

use super::counts::most;

/// The steps that make up one which is too large for a call of MPI; all processes find the same.
/// None where one call will do.
#[inline(always)]
pub fn pieces(
    rank: usize,
    step: NativeCollective<'_>,
) -> Result<Option<Vec<NativeCollective<'_>>>> {
    match step {
        NativeCollective::Reduce { fold, .. }
        | NativeCollective::Allreduce(fold)
        | NativeCollective::ReduceScatter { fold, .. }
        | NativeCollective::Scan(fold)
        | NativeCollective::Exscan(fold)
            if fold.count > most() =>
        {
            split(rank, step).map(Some)
        }
        _ => Ok(None),
    }
}

#[cold]
fn split(rank: usize, step: NativeCollective<'_>) -> Result<Vec<NativeCollective<'_>>> {
    Ok(match step {
        NativeCollective::Reduce { root, fold } => {
            cut(fold).map(|fold| NativeCollective::Reduce { root, fold }).collect()
        }
        NativeCollective::Allreduce(fold) => cut(fold).map(NativeCollective::Allreduce).collect(),
        NativeCollective::Scan(fold) => cut(fold).map(NativeCollective::Scan).collect(),
        NativeCollective::Exscan(fold) => cut(fold).map(NativeCollective::Exscan).collect(),
        NativeCollective::ReduceScatter { fold, counts } => scattered(rank, fold, counts)?,
        other => vec![other],
    })
}

/// Each element is folded by itself, so that the parts of a fold are folds.
fn cut(fold: Fold<'_>) -> impl Iterator<Item = Fold<'_>> {
    (0..fold.count).step_by(most()).map(move |start| {
        let place = start * fold.dtype.size as usize;
        // Not all processes have both.
        let (send, recv) = (fold.send.wrapping_add(place), fold.recv.wrapping_add(place));
        Fold { send, recv, count: most().min(fold.count - start), ..fold }
    })
}

/// A reduce to each process.
fn scattered<'a>(
    rank: usize,
    fold: Fold<'a>,
    counts: &[usize],
) -> Result<Vec<NativeCollective<'a>>> {
    if fold.send == fold.recv.cast_const() {
        return Err(Error::unavailable(
            format!("a reduce_scatter in place of {} elements", fold.count),
            format!("this MPI counts {} at most", most()),
            "give it a buffer for the result".to_owned(),
        ));
    }
    let mut steps = Vec::new();
    let mut start = 0;
    for (root, &count) in counts.iter().enumerate() {
        let send = fold.send.wrapping_add(start * fold.dtype.size as usize);
        let recv = if root == rank { fold.recv } else { ptr::null_mut() };
        let own = Fold { send, recv, count, ..fold };
        steps.extend(cut(own).map(|fold| NativeCollective::Reduce { root, fold }));
        start += count;
    }
    Ok(steps)
}
