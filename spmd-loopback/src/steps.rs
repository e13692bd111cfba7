//! What a process brings to a collective step, and what it gets from the others: plain loops.

use std::{ptr, slice};

use spmd_core::Result;
use spmd_core::transport::fabric::{Extents, Fold, Parts, Step};

use crate::plan::wrong;

/// What a process brings to a step: of which kind that is, and its data, one piece for each process or
/// one for all.
pub(crate) struct Brought {
    pub(crate) kind: (&'static str, usize),
    pieces: Vec<Vec<u8>>,
}

/// The kind of a step and its root: what must be the same on all processes for them to meet.
pub(crate) fn kind(step: &Step<'_>) -> (&'static str, usize) {
    match step {
        Step::Barrier => ("barrier", 0),
        Step::Broadcast { root, .. } => ("broadcast", *root),
        Step::Gather { root, .. } => ("gather", *root),
        Step::Allgather { .. } => ("allgather", 0),
        Step::Scatter { root, .. } => ("scatter", *root),
        Step::Alltoall { .. } => ("alltoall", 0),
        Step::Reduce { root, .. } => ("reduce", *root),
        Step::Allreduce(_) => ("allreduce", 0),
        Step::ReduceScatter { .. } => ("reduce_scatter", 0),
        Step::Scan(_) => ("scan", 0),
        Step::Exscan(_) => ("exscan", 0),
    }
}

/// Whether process `me` must have what process `other` brings.
pub(crate) fn needs(step: &Step<'_>, me: usize, other: usize) -> bool {
    match step {
        Step::Broadcast { root, .. } | Step::Scatter { root, .. } => other == *root,
        Step::Gather { root, .. } | Step::Reduce { root, .. } => me == *root,
        Step::Scan(_) => other <= me,
        Step::Exscan(_) => other < me,
        _ => true,
    }
}

/// What this process, `me` of `size`, brings.
///
/// # Safety
/// All memory that the step names as readable is.
pub(crate) unsafe fn brought(step: &Step<'_>, me: usize, size: usize) -> Brought {
    let piece = |data: *const u8, bytes: usize| match bytes {
        0 => Vec::new(),
        // SAFETY: the caller's contract.
        _ => unsafe { slice::from_raw_parts(data, bytes) }.to_vec(),
    };
    let pieces = match step {
        Step::Broadcast { root, memory, bytes } if *root == me => vec![piece(*memory, *bytes)],
        Step::Scatter { root, .. } if *root != me => vec![],
        Step::Barrier | Step::Broadcast { .. } => vec![],
        Step::Gather { send, .. } | Step::Allgather { send, .. } => vec![piece(send.0, send.1)],
        Step::Scatter { send, .. } | Step::Alltoall { send, .. } => (0..size)
            .map(|process| {
                let (start, bytes) = block(send, process);
                // SAFETY: the block lies within the memory that the step names.
                piece(unsafe { send.memory.add(start) }, bytes)
            })
            .collect(),
        Step::Reduce { fold, .. }
        | Step::Allreduce(fold)
        | Step::ReduceScatter { fold, .. }
        | Step::Scan(fold)
        | Step::Exscan(fold) => vec![piece(fold.send, bytes(fold))],
    };
    Brought { kind: kind(step), pieces }
}

/// Where the block of a process starts, and its length.
fn block(parts: &Parts<'_>, process: usize) -> (usize, usize) {
    match parts.extents {
        Extents::Equal(bytes) => (process * bytes, bytes),
        Extents::Listed { bytes, starts } => (starts[process], bytes[process]),
    }
}

fn bytes(fold: &Fold<'_>) -> usize {
    fold.count * fold.dtype.size as usize
}

/// Writes what process `me` gets to where it wants it. What it [`needs`] is there.
///
/// # Safety
/// All memory that the step names as writable is, and nobody else uses it.
pub(crate) unsafe fn deliver(
    step: &Step<'_>,
    me: usize,
    brought: &[Option<Brought>],
) -> Result<()> {
    let of = |process: usize, piece: usize| {
        let brought = brought[process].as_ref().and_then(|brought| brought.pieces.get(piece));
        brought.map(Vec::as_slice).unwrap_or_default()
    };
    let put = |from: usize, data: &[u8], into: *mut u8, bytes: usize| {
        if data.len() != bytes {
            let text = format!("process {from} has sent {} bytes, not {bytes}", data.len());
            return Err(wrong(kind(step).0, text));
        }
        // SAFETY: the caller's contract; the data are a copy of this fabric's own.
        unsafe { ptr::copy_nonoverlapping(data.as_ptr(), into, bytes) };
        Ok(())
    };
    let put_all = |recv: &Parts<'_>, piece: usize| {
        (0..brought.len()).try_for_each(|from| {
            let (start, bytes) = block(recv, from);
            // SAFETY: the block lies within the memory that the step names.
            put(from, of(from, piece), unsafe { recv.memory.add(start) }, bytes)
        })
    };
    // The elements of so many processes, one after the other from the left.
    let folded = |fold: &Fold<'_>, processes: usize| {
        let mut sum = of(0, 0).to_vec();
        for from in 1..processes {
            let next = of(from, 0);
            if next.len() != bytes(fold) || sum.len() != next.len() {
                let text = format!("process {from} has sent {} bytes", next.len());
                return Err(wrong(kind(step).0, text));
            }
            let out = sum.as_mut_ptr();
            // SAFETY: both have so many elements of this type, of which all bytes are values
            // (`folds`), and `out` is the left input.
            unsafe { fold.op.fold(out, out, next.as_ptr(), fold.count) };
        }
        Ok(sum)
    };
    match step {
        Step::Barrier => Ok(()),
        Step::Broadcast { root, .. } | Step::Gather { root, .. } | Step::Reduce { root, .. }
            if (*root == me) == matches!(step, Step::Broadcast { .. }) =>
        {
            Ok(())
        }
        Step::Broadcast { root, memory, bytes } => put(*root, of(*root, 0), *memory, *bytes),
        Step::Gather { recv, .. } | Step::Allgather { recv, .. } => put_all(recv, 0),
        Step::Scatter { root, recv, .. } => put(*root, of(*root, me), recv.0, recv.1),
        Step::Alltoall { recv, .. } => put_all(recv, me),
        Step::Reduce { fold, .. } | Step::Allreduce(fold) => {
            put(0, &folded(fold, brought.len())?, fold.recv, bytes(fold))
        }
        Step::ReduceScatter { fold, counts } => {
            let size = fold.dtype.size as usize;
            let start = counts[..me].iter().sum::<usize>() * size;
            let sum = folded(fold, brought.len())?;
            let bytes = counts[me] * size;
            put(0, sum.get(start..start + bytes).unwrap_or_default(), fold.recv, bytes)
        }
        Step::Exscan(_) if me == 0 => Ok(()),
        Step::Scan(fold) => put(0, &folded(fold, me + 1)?, fold.recv, bytes(fold)),
        Step::Exscan(fold) => put(0, &folded(fold, me)?, fold.recv, bytes(fold)),
    }
}
