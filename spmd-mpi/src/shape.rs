//! What all processes of a collective step know of it, by which they find the same request for it.

use spmd_core::transport::fabric::{Fold, NativeCollective};

use crate::handles::{Datatype, Op};
use crate::library::Constants;
use crate::types::native;

/// Bytes that a process brings, or gets, at most: for larger steps a request that is there gains less
/// than it costs to copy them.
const MOST: usize = 4096;

/// What is done, and who is the root. Not with blocks: Intel MPI 2021.18.1's requests of gather,
/// scatter and allgather give wrong data.
#[derive(Clone, Copy, PartialEq)]
pub enum What {
    Broadcast(usize),
    Reduce(usize, Op),
    Allreduce(Op),
    Scan(Op),
    Exscan(Op),
}

/// What all processes of a step know of it.
#[derive(Clone, Copy, PartialEq)]
pub struct Shape {
    pub what: What,
    pub of: Datatype,
    /// Elements, or bytes.
    pub count: usize,
    /// Bytes of an element.
    width: usize,
}

impl Shape {
    /// The shape of a step, if requests are kept for such ones, and the caller's memory: what this
    /// process brings, and where it gets something.
    pub fn of(
        constants: &Constants,
        step: NativeCollective<'_>,
    ) -> Option<(Shape, (*const u8, *mut u8))> {
        let bytes = |what, count| Shape { what, of: constants.byte, count, width: 1 };
        let folded = |what: &dyn Fn(Op) -> What, fold: Fold<'_>| {
            let (of, op) = native(constants, fold.dtype, fold.op)?;
            let (what, width) = (what(op), fold.dtype.size as usize);
            Some((Shape { what, of, count: fold.count, width }, (fold.send, fold.recv)))
        };
        match step {
            NativeCollective::Broadcast { root, memory, bytes: length } => {
                Some((bytes(What::Broadcast(root), length), (memory, memory)))
            }
            NativeCollective::Reduce { root, fold } => folded(&|op| What::Reduce(root, op), fold),
            NativeCollective::Allreduce(fold) => folded(&What::Allreduce, fold),
            NativeCollective::Scan(fold) => folded(&What::Scan, fold),
            NativeCollective::Exscan(fold) => folded(&What::Exscan, fold),
            _ => None,
        }
    }

    /// The bytes that process `rank` brings, and those that it gets.
    pub fn lengths(&self, rank: usize) -> (usize, usize) {
        let all = self.count * self.width;
        let at = |root| if rank == root { all } else { 0 };
        match self.what {
            What::Broadcast(root) => (at(root), all - at(root)),
            What::Reduce(root, _) => (all, at(root)),
            What::Allreduce(_) | What::Scan(_) | What::Exscan(_) => (all, all),
        }
    }

    /// Whether it is worth to copy what it takes and gives.
    pub fn is_small(&self) -> bool {
        (1..=MOST).contains(&self.count.saturating_mul(self.width))
    }
}

#[cfg(test)]
mod tests;
