//! What a process that `fork` makes sees of the large allocations of its parent.
//!
//! The arena itself is not inherited: what a child writes there, it would write into the memory of
//! a rank. But `Command` may fork (it does so to change the user or group, or where the program
//! asks for code to run before `exec`), and its child must read arguments and environment, which
//! may be large allocations. So the child maps its parent's part anew, as a private copy.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::*};

/// Where the allocations lie, in memory and in the file behind it. Never freed.
static VIEW: AtomicPtr<View> = AtomicPtr::new(std::ptr::null_mut());
/// Whether this process was forked off one that has such allocations.
static FORKED: AtomicBool = AtomicBool::new(false);

struct View {
    start: usize,
    bytes: usize,
    file: OwnedFd,
    offset: libc::off_t,
}

/// Lets children see this part of the arena, which is `file`.
pub(super) fn show(start: usize, bytes: usize, file: OwnedFd, offset: usize) {
    let offset = offset as libc::off_t;
    VIEW.store(Box::into_raw(Box::new(View { start, bytes, file, offset })), Release);
    // SAFETY: the function stays for ever, and does what a child may do that has been forked off a
    // process with threads: it makes system calls and sets a flag. Where there is no memory to note
    // it, children see nothing.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
}

/// Whether the heap of this process is that of its parent: another thread may have held its lock
/// at the fork, and what it says to be zero, the parent may have written since.
#[inline]
pub(super) fn is_forked() -> bool {
    FORKED.load(Relaxed)
}

unsafe extern "C" fn in_child() {
    FORKED.store(true, Relaxed);
    // SAFETY: null, or a box that was leaked whole and is never written again.
    let Some(view) = (unsafe { VIEW.load(Acquire).as_ref() }) else { return };
    let place = std::ptr::without_provenance_mut(view.start);
    // Where the system counts what private memory may come to, reading must do.
    for protection in [libc::PROT_READ | libc::PROT_WRITE, libc::PROT_READ] {
        let flags = libc::MAP_PRIVATE | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: nothing that is mapped is replaced: the range is free, as the arena is not
        // inherited, or is what the child of a child has from its parent already. The file is
        // sealed against shrinking.
        unsafe {
            let file = view.file.as_raw_fd();
            let mapped = libc::mmap(place, view.bytes, protection, flags, file, view.offset);
            if mapped == place {
                return;
            }
            // Kernels before 4.17 take the address for a wish.
            if mapped != libc::MAP_FAILED {
                libc::munmap(mapped, view.bytes);
            }
        }
    }
}
