//! Collectives of communicators whose ranks live in several processes without common memory. In
//! each process one rank leads ([`Lead`]): it sees the buffers of all ranks there, and makes the
//! steps among processes for them. Data of several ranks are packed for that; those of one rank,
//! or in the order of the ranks, go where they are.

mod folding;
mod gathering;
mod moving;
mod neighbors;

pub(crate) use folding::{allreduce, reduce, reduce_scatter, scan};
pub(crate) use gathering::{allgather, gather, scatter};
pub(crate) use moving::{agree, alltoall, barrier, broadcast};
pub(crate) use neighbors::{Beside, neighbors};

use spmd_core::algorithm::{Call, Parts};
use spmd_core::{DType, Error, Result};

/// Blocks for or from each process, one after another in memory of their own.
struct Packed {
    memory: Vec<u8>,
    bytes: Vec<usize>,
    starts: Vec<usize>,
}

impl Packed {
    /// Room for blocks of these lengths.
    fn room(bytes: Vec<usize>) -> Packed {
        let (starts, total) = starts_of(&bytes);
        Packed { memory: vec![0; total], bytes, starts }
    }

    fn parts(&mut self) -> Parts<'_> {
        let memory = self.memory.as_mut_ptr();
        Parts { memory, bytes: &self.bytes, starts: &self.starts }
    }
}

/// Where blocks of these lengths start, and their sum.
fn starts_of(bytes: &[usize]) -> (Vec<usize>, usize) {
    let mut end = 0;
    let next = |bytes: &usize| {
        end += bytes;
        end - bytes
    };
    let starts = bytes.iter().map(next).collect();
    (starts, end)
}

/// Ranks go by different counts.
#[cold]
pub(crate) fn counts_differ(call: &Call<'_>) -> Error {
    Error::Argument(format!(
        "{call}: different counts: what a rank sends is not what another takes"
    ))
}

/// Looks at bytes that came from other processes, before they are given to the program as values.
///
/// # Safety
/// `values` holds `count` elements' worth of bytes.
unsafe fn check_values(dtype: DType, values: *const u8, count: usize) -> Result<()> {
    // SAFETY: as the caller promises.
    if dtype.valid.is_none() || unsafe { dtype.all_valid(values, count) } {
        return Ok(());
    }
    let text = format!("what another process sent holds bytes that are no values of {dtype}");
    Err(Error::Argument(text))
}
