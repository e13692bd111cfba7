//! Reading a peer process's private memory through the kernel (`process_vm_readv`).
//!
//! Linux lets a process read a sibling's memory only where Yama permits it; ranks permit their
//! launcher's descendants (`PR_SET_PTRACER`). Where the kernel refuses, the caller goes through
//! the staging area instead.

use std::sync::atomic::Ordering::*;

use super::memory::Memory;

/// Copies `bytes` from `address` in the process of world rank `source`; whether that worked.
#[cfg(target_os = "linux")]
pub(super) fn read(
    memory: &Memory,
    source: usize,
    address: u64,
    into: *mut u8,
    bytes: usize,
) -> bool {
    let pid = memory.head(source).pid.load(Relaxed) as i32;
    let mut done = 0;
    while done < bytes {
        let local = libc::iovec { iov_base: into.wrapping_add(done).cast(), iov_len: bytes - done };
        let from = (address as usize).wrapping_add(done) as *mut libc::c_void;
        let remote = libc::iovec { iov_base: from, iov_len: bytes - done };
        // SAFETY: the local range is the caller's buffer of `bytes` bytes; the remote one is
        // checked by the kernel.
        let read = unsafe { libc::process_vm_readv(pid, &local, 1, &remote, 1, 0) };
        match usize::try_from(read) {
            Ok(read) if read > 0 => done += read,
            _ => return false,
        }
    }
    true
}

/// Elsewhere there is no such call.
#[cfg(not(target_os = "linux"))]
pub(super) fn read(_: &Memory, _: usize, _: u64, _: *mut u8, _: usize) -> bool {
    let _ = Relaxed;
    false
}
