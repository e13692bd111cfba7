//! The canonical order: the one order in which the elements of many ranks are folded, whatever
//! the algorithm, the transport and the placement. It depends on the number of ranks alone, so
//! every path gives the same bits.
//!
//! The fold over ranks `lo..hi` is the fold over `lo..mid` on the left of the fold over `mid..hi`,
//! where `mid = lo + canonical_split(hi − lo)`: the left half is always a full binary tree. It is
//! the order of recursive doubling, and of a binomial tree.

use super::erased::ErasedOp;

/// Bytes of one accumulator: small enough that those of a deep tree stay in the second-level
/// cache, large enough that the calls between blocks do not count.
const BLOCK: usize = 8 * 1024;

/// Accumulators start on a cache line.
const ALIGN: usize = 64;

/// Where the fold over `n ≥ 2` ranks splits: the largest power of two that is less than `n`.
///
/// ```
/// use spmd::prelude::*;
/// use spmd::op::canonical_split;
///
/// assert_eq!([2, 3, 4, 5, 8, 9].map(canonical_split), [1, 2, 2, 4, 4, 8]);
/// ```
pub fn canonical_split(n: usize) -> usize {
    assert!(n >= 2, "{n} ranks cannot be split");
    1 << (n - 1).ilog2()
}

/// Folds the inputs of `ranks` ranks, of `count` elements each, into `out` in canonical order.
///
/// It works block by block and reads all inputs of a block before it writes that block of `out`;
/// so `out` may be the input of any one rank. `input(k)` gives the array of rank `k`, the same one
/// each time; it is called once for each block of about 8 KiB. One and two ranks are done in one
/// pass without scratch memory; more take ⌈log₂ ranks⌉ blocks in `scratch`, which grows to that
/// and can be used again.
///
/// If an operation of the program's own panics, the panic passes through and `out` holds results
/// up to some element.
///
/// ```
/// use spmd::prelude::*;
/// use spmd::op::{ErasedOp, fold_ranks};
///
/// let (inputs, mut out) = ([[1u32, 2], [3, 4], [5, 6]], [0u32; 2]);
/// let mut input = |rank: usize| inputs[rank].as_ptr().cast();
/// let op = &ErasedOp::new::<u32, _>(&Sum);
/// // SAFETY: three inputs and `out` hold two `u32` of 4 bytes each; `out` is apart from all
/// // inputs, and nobody else uses them.
/// unsafe { fold_ranks(op, 4, out.as_mut_ptr().cast(), 2, 3, &mut input, &mut Vec::new()) };
/// assert_eq!(out, [9, 12]);
/// ```
///
/// # Panics
///
/// If `ranks` is 0.
///
/// # Safety
///
/// - Each `input(k)` is readable for `count` elements of the type of `op`, which are values of it;
///   `out` is writable for as many. None needs any alignment. `element_size` is that type's size.
/// - `out` is exactly `input(k)` for any number of `k`, and overlaps no other input. Inputs may
///   overlap each other.
/// - Nothing writes the inputs, and nothing reads or writes `out`, during the call.
pub unsafe fn fold_ranks(
    op: &ErasedOp<'_>,
    element_size: usize,
    out: *mut u8,
    count: usize,
    ranks: usize,
    input: &mut dyn FnMut(usize) -> *const u8,
    scratch: &mut Vec<u8>,
) {
    assert!(ranks > 0, "a fold needs at least one rank");
    if ranks == 1 {
        // SAFETY: both hold `count` elements; `copy` allows `out` to be the input itself.
        unsafe { input(0).copy_to(out, count * element_size) };
        return;
    }
    if ranks == 2 {
        // SAFETY: this function's contract.
        return unsafe { op.fold(out, input(0), input(1), count) };
    }
    let block = (BLOCK / element_size).max(1).min(count);
    let stride = (block * element_size).next_multiple_of(ALIGN);
    let depth = ranks.next_power_of_two().ilog2() as usize;
    let scratch = aligned(scratch, depth * stride);
    let mut first = 0;
    while first < count {
        let count = block.min(count - first);
        let mut tree = Tree { op, count, offset: first * element_size, input, stride };
        // SAFETY: the block lies within the arrays of the contract. Scratch memory has `depth`
        // blocks, as many as the tree uses, and nobody else has it; `out` may be an input, and
        // the last fold, the only one that writes to it, may write over its own inputs.
        unsafe { tree.fold(0, ranks, out.add(first * element_size), scratch) };
        first += block;
    }
}

/// Memory of `size` bytes in `scratch`, on a cache line.
fn aligned(scratch: &mut Vec<u8>, size: usize) -> *mut u8 {
    if scratch.len() < size + ALIGN {
        scratch.resize(size + ALIGN, 0);
    }
    let start = scratch.as_mut_ptr();
    start.wrapping_add(start.align_offset(ALIGN))
}

/// The fold of one block over all ranks.
struct Tree<'a> {
    op: &'a ErasedOp<'a>,
    /// Elements of the block.
    count: usize,
    /// Where the block starts in each input, in bytes.
    offset: usize,
    input: &'a mut dyn FnMut(usize) -> *const u8,
    /// Bytes from one accumulator to the next.
    stride: usize,
}

impl Tree<'_> {
    /// Folds the ranks from `lo` on, `ranks ≥ 2` of them, into `out`. It writes to `out` once,
    /// when all ranks have been read.
    ///
    /// # Safety
    ///
    /// Block and inputs as in [`fold_ranks`]; `scratch` has ⌈log₂ ranks⌉ accumulators that nobody
    /// else uses, of which `out` may be the first.
    unsafe fn fold(&mut self, lo: usize, ranks: usize, out: *mut u8, scratch: *mut u8) {
        let split = canonical_split(ranks);
        // SAFETY: the left part has `split < ranks` ranks, a power of two, and so needs fewer
        // accumulators than the whole. The right part, no larger, needs no more than the left; it
        // gets those behind the first, which holds the left result. Each operand is a rank's
        // input or an accumulator: `out` coincides with one of them or overlaps none.
        unsafe {
            let left = self.operand(lo, split, scratch);
            let right = self.operand(lo + split, ranks - split, scratch.wrapping_add(self.stride));
            self.op.fold(out, left, right, self.count);
        }
    }

    /// The folded block of `ranks ≥ 1` ranks: the input itself for one, else the accumulator at
    /// `scratch`.
    ///
    /// # Safety
    ///
    /// As [`fold`](Tree::fold).
    unsafe fn operand(&mut self, lo: usize, ranks: usize, scratch: *mut u8) -> *const u8 {
        if ranks == 1 {
            return (self.input)(lo).wrapping_add(self.offset);
        }
        // SAFETY: the same contract, with the result in the first accumulator.
        unsafe { self.fold(lo, ranks, scratch, scratch) };
        scratch
    }
}
