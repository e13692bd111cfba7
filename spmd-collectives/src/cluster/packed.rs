//! Blocks of all processes, packed for the steps among these.

use spmd_core::internal::{BlockLayout, Blocks, Leader, ProcessBlocks};
use spmd_core::{DType, Error, Result};

/// Blocks for or from each process, one after another in memory of their own.
pub(super) struct Packed {
    pub(super) memory: Vec<u8>,
    lengths: Lengths,
}

impl Packed {
    /// Room for blocks of these lengths.
    pub(super) fn room(bytes: impl Iterator<Item = usize>) -> Packed {
        Packed::of(Lengths::listed(bytes))
    }

    /// Room for these blocks.
    pub(super) fn of(lengths: Lengths) -> Packed {
        Packed { memory: vec![0; lengths.total()], lengths }
    }

    pub(super) fn parts(&mut self) -> ProcessBlocks<'_> {
        self.lengths.at(self.memory.as_mut_ptr())
    }
}

/// The lengths of the blocks of all processes, which lie one after the other.
pub(super) enum Lengths {
    /// So many bytes of each of so many processes, as all of them know.
    Equal(usize, usize),
    Listed {
        bytes: Vec<usize>,
        displacements: Vec<usize>,
    },
}

impl Lengths {
    pub(super) fn listed(bytes: impl Iterator<Item = usize>) -> Lengths {
        let mut end = 0;
        let next = |bytes| {
            end += bytes;
            (bytes, end - bytes)
        };
        let (bytes, displacements) = bytes.map(next).unzip();
        Lengths::Listed { bytes, displacements }
    }

    /// Those of `blocks` of elements of `size` bytes: of each process, the blocks of its ranks.
    pub(super) fn of<P: Copy>(leader: &Leader<'_, P>, blocks: Blocks<'_>, size: usize) -> Lengths {
        let members = |process| leader.members(process).iter();
        match blocks {
            Blocks::Equal(count) if is_even(leader) => {
                Lengths::Equal(count * size * members(0).len(), leader.processes())
            }
            _ => Lengths::listed(
                (0..leader.processes())
                    .map(|process| members(process).map(|rank| blocks.of(*rank).1 * size).sum()),
            ),
        }
    }

    /// The bytes of all.
    pub(super) fn total(&self) -> usize {
        match self {
            Lengths::Equal(bytes, processes) => bytes * processes,
            Lengths::Listed { bytes, .. } => bytes.iter().sum(),
        }
    }

    /// The blocks in this memory.
    pub(super) fn at(&self, memory: *mut u8) -> ProcessBlocks<'_> {
        let layout = match self {
            Lengths::Equal(bytes, _) => BlockLayout::Equal(*bytes),
            Lengths::Listed { bytes, displacements } => {
                BlockLayout::Listed { bytes, displacements }
            }
        };
        ProcessBlocks { memory, layout }
    }
}

/// Whether all processes have as many ranks.
pub(super) fn is_even<P: Copy>(leader: &Leader<'_, P>) -> bool {
    leader.is_flat()
        || (1..leader.processes()).all(|it| leader.members(it).len() == leader.members(0).len())
}

/// Looks at bytes that came from other processes, before they are given to the program as values.
///
/// # Safety
/// `values` holds `count` elements' worth of bytes, initialised, which nobody writes now.
pub(super) unsafe fn check_values(dtype: &DType, values: *const u8, count: usize) -> Result<()> {
    // SAFETY: `values` holds the bytes of `count` elements, all of them initialised, and nobody
    // writes them now (this function's contract).
    if dtype.valid.is_none() || unsafe { dtype.all_valid(values, count) } {
        return Ok(());
    }
    let text = format!("what another process sent holds bytes that are no values of {dtype}");
    Err(Error::argument(text))
}
