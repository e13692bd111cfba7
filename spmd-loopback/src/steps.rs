//! What a process brings to a collective step, and what it gets from the others: plain loops.

use std::{ptr, slice};

use spmd_core::Result;
use spmd_core::transport::fabric::{BlockLayout, Fold, NativeCollective, ProcessBlocks};

use crate::plan::wrong;

/// What a process brings to a step: of which kind that is, and its data, one piece for each process
/// or one for all.
pub(crate) struct Contribution {
    pub(crate) kind: (&'static str, usize),
    pieces: Vec<Vec<u8>>,
}

/// The kind of a step and its root: what must be the same on all processes for them to meet.
pub(crate) fn kind(step: &NativeCollective<'_>) -> (&'static str, usize) {
    match step {
        NativeCollective::Barrier => ("barrier", 0),
        NativeCollective::Broadcast { root, .. } => ("broadcast", *root),
        NativeCollective::Gather { root, .. } => ("gather", *root),
        NativeCollective::Allgather { .. } => ("allgather", 0),
        NativeCollective::Scatter { root, .. } => ("scatter", *root),
        NativeCollective::Alltoall { .. } => ("alltoall", 0),
        NativeCollective::Reduce { root, .. } => ("reduce", *root),
        NativeCollective::Allreduce(_) => ("allreduce", 0),
        NativeCollective::ReduceScatter { .. } => ("reduce_scatter", 0),
        NativeCollective::Scan(_) => ("scan", 0),
        NativeCollective::Exscan(_) => ("exscan", 0),
    }
}

/// What a step reads and what it writes.
pub(crate) fn memory(step: &NativeCollective<'_>) -> [*const u8; 2] {
    match step {
        NativeCollective::Barrier => [ptr::null(); 2],
        NativeCollective::Broadcast { memory, .. } => [memory.cast_const(); 2],
        NativeCollective::Gather { send, recv, .. }
        | NativeCollective::Allgather { send, recv } => [send.0, recv.memory],
        NativeCollective::Scatter { send, recv, .. } => [send.memory, recv.0],
        NativeCollective::Alltoall { send, recv } => [send.memory, recv.memory],
        NativeCollective::Reduce { fold, .. }
        | NativeCollective::Allreduce(fold)
        | NativeCollective::ReduceScatter { fold, .. }
        | NativeCollective::Scan(fold)
        | NativeCollective::Exscan(fold) => [fold.send, fold.recv],
    }
}

/// Whether process `me` must have what process `other` brings.
pub(crate) fn needs(step: &NativeCollective<'_>, me: usize, other: usize) -> bool {
    match step {
        NativeCollective::Broadcast { root, .. } | NativeCollective::Scatter { root, .. } => {
            other == *root
        }
        NativeCollective::Gather { root, .. } | NativeCollective::Reduce { root, .. } => {
            me == *root
        }
        NativeCollective::Scan(_) => other <= me,
        NativeCollective::Exscan(_) => other < me,
        _ => true,
    }
}

/// What this process, `me` of `size`, brings.
///
/// # Safety
/// All memory that the step names as readable is.
pub(crate) unsafe fn brought(step: &NativeCollective<'_>, me: usize, size: usize) -> Contribution {
    let piece = |data: *const u8, bytes: usize| match bytes {
        0 => Vec::new(),
        // SAFETY: the caller's contract.
        _ => unsafe { slice::from_raw_parts(data, bytes) }.to_vec(),
    };
    let pieces = match step {
        NativeCollective::Broadcast { root, memory, bytes } if *root == me => {
            vec![piece(*memory, *bytes)]
        }
        NativeCollective::Scatter { root, .. } if *root != me => vec![],
        NativeCollective::Barrier | NativeCollective::Broadcast { .. } => vec![],
        NativeCollective::Gather { send, .. } | NativeCollective::Allgather { send, .. } => {
            vec![piece(send.0, send.1)]
        }
        NativeCollective::Scatter { send, .. } | NativeCollective::Alltoall { send, .. } => (0
            ..size)
            .map(|process| {
                let (start, bytes) = block(send, process);
                // SAFETY: the block lies within the memory that the step names.
                piece(unsafe { send.memory.add(start) }, bytes)
            })
            .collect(),
        NativeCollective::Reduce { fold, .. }
        | NativeCollective::Allreduce(fold)
        | NativeCollective::ReduceScatter { fold, .. }
        | NativeCollective::Scan(fold)
        | NativeCollective::Exscan(fold) => vec![piece(fold.send, bytes(fold))],
    };
    Contribution { kind: kind(step), pieces }
}

/// Where the block of a process starts, and its length.
fn block(parts: &ProcessBlocks<'_>, process: usize) -> (usize, usize) {
    match parts.layout {
        BlockLayout::Equal(bytes) => (process * bytes, bytes),
        BlockLayout::Listed { bytes, displacements } => (displacements[process], bytes[process]),
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
    step: &NativeCollective<'_>,
    me: usize,
    brought: &[Option<Contribution>],
) -> Result<()> {
    let of = |process: usize, piece: usize| {
        let brought = brought[process].as_ref().and_then(|brought| brought.pieces.get(piece));
        brought.map(Vec::as_slice).unwrap_or_default()
    };
    let put = |from: usize, data: &[u8], into: *mut u8, bytes: usize| {
        if data.len() != bytes {
            let text =
                format!("member {from} of the set has sent {} bytes, not {bytes}", data.len());
            return Err(wrong(kind(step).0, text));
        }
        // SAFETY: `into` is writable for so many bytes, which nobody else uses (this function's
        // contract), and the data, as many, are a copy of this fabric's own: apart from them.
        unsafe { ptr::copy_nonoverlapping(data.as_ptr(), into, bytes) };
        Ok(())
    };
    let put_all = |recv: &ProcessBlocks<'_>, piece: usize| {
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
                let text = format!("member {from} of the set has sent {} bytes", next.len());
                return Err(wrong(kind(step).0, text));
            }
            let out = sum.as_mut_ptr();
            // SAFETY: both have as many bytes as so many elements, as was just looked at, which need
            // no alignment; all bytes are values of the type, and the operation is one on it
            // (`ProcessGroup::folds`, which holds for what the step names). `out` is the left
            // input. `sum` is used by nobody else, and `next` is a copy of this fabric's own, apart
            // from it, that nobody writes.
            unsafe { fold.op.fold(out, out, next.as_ptr(), fold.count) };
        }
        Ok(sum)
    };
    match step {
        NativeCollective::Barrier => Ok(()),
        NativeCollective::Broadcast { root, .. }
        | NativeCollective::Gather { root, .. }
        | NativeCollective::Reduce { root, .. }
            if (*root == me) == matches!(step, NativeCollective::Broadcast { .. }) =>
        {
            Ok(())
        }
        NativeCollective::Broadcast { root, memory, bytes } => {
            put(*root, of(*root, 0), *memory, *bytes)
        }
        NativeCollective::Gather { recv, .. } | NativeCollective::Allgather { recv, .. } => {
            put_all(recv, 0)
        }
        NativeCollective::Scatter { root, recv, .. } => put(*root, of(*root, me), recv.0, recv.1),
        NativeCollective::Alltoall { recv, .. } => put_all(recv, me),
        NativeCollective::Reduce { fold, .. } | NativeCollective::Allreduce(fold) => {
            put(0, &folded(fold, brought.len())?, fold.recv, bytes(fold))
        }
        NativeCollective::ReduceScatter { fold, counts } => {
            let size = fold.dtype.size as usize;
            let start = counts[..me].iter().sum::<usize>() * size;
            let sum = folded(fold, brought.len())?;
            let bytes = counts[me] * size;
            put(0, sum.get(start..start + bytes).unwrap_or_default(), fold.recv, bytes)
        }
        NativeCollective::Exscan(_) if me == 0 => Ok(()),
        NativeCollective::Scan(fold) => put(0, &folded(fold, me + 1)?, fold.recv, bytes(fold)),
        NativeCollective::Exscan(fold) => put(0, &folded(fold, me)?, fold.recv, bytes(fold)),
    }
}
