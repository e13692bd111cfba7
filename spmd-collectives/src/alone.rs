//! Collectives of a communicator of one rank.

use spmd_core::algorithm::Call;
use spmd_core::{Comm, Result};

/// Does a collective in which this rank is alone: what it contributes is the result, and nobody
/// is met. An operation is not called, as there is nothing to fold.
///
/// # Safety
/// `send` holds `bytes`, `recv` has room for as many; they are the same or apart.
pub(crate) unsafe fn alone(
    comm: &Comm,
    call: &Call<'_>,
    send: *const u8,
    recv: *mut u8,
    bytes: usize,
) -> Result<()> {
    comm.collective(call, |_| {
        if !std::ptr::eq(send, recv) {
            // SAFETY: as the caller promises; they are not the same, so they are apart.
            unsafe { std::ptr::copy_nonoverlapping(send, recv, bytes) };
        }
        Ok(())
    })
}
