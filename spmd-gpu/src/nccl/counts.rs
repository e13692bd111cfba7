//! How many elements the ranks of a call whose blocks vary send to each other, and expect.

use spmd_collectives::args as on_host;
use spmd_core::internal::{Args, Blocks, Call, Memory, dispatch};
use spmd_core::{Comm, Element, Result};

use super::launch;
use crate::error::GpuError;

/// What a rank sends to each, and takes from each.
pub(super) struct Counts {
    sends: Vec<u64>,
    takes: Vec<u64>,
}

impl Counts {
    pub(super) fn of(comm: &Comm, args: &Args<'_>) -> Counts {
        let me = comm.rank();
        let of = |count: &dyn Fn(usize) -> usize| {
            (0..comm.size()).map(|rank| count(rank) as u64).collect()
        };
        let sends = of(&|to| launch::sends(args, me, to));
        Counts { sends, takes: of(&|from| launch::takes(args, from, me)) }
    }

    /// Has the ranks tell each other what they send.
    ///
    /// Errors: a rank takes another number; those of an alltoall.
    pub(super) fn compare(&self, comm: &Comm, call: &Call<'_>) -> Result<()> {
        let mut comes = vec![0u64; self.sends.len()];
        let send = Memory::host(self.sends.as_ptr().cast(), Blocks::Equal(1));
        let recv = Memory::host(comes.as_mut_ptr().cast(), Blocks::Equal(1));
        // SAFETY: both live until this returns, and hold a word for each rank; they are apart.
        unsafe { dispatch(comm, call, &on_host::alltoall(&u64::DTYPE, send, recv))? };
        for (from, (sends, takes)) in comes.into_iter().zip(&self.takes).enumerate() {
            if sends != *takes {
                let (call, to) = (call.to_string(), comm.rank());
                let (sends, takes) = (sends as usize, *takes as usize);
                return Err(GpuError::Counts { call, from, sends, to, takes }.into());
            }
        }
        Ok(())
    }
}
