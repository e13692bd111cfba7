//! Reading a peer process's private memory through the kernel (`process_vm_readv`).
//!
//! Linux lets a process read a sibling's memory only where Yama permits it; ranks permit their
//! launcher's descendants (`PR_SET_PTRACER`). Where the kernel refuses, the caller goes through
//! the staging area instead.

use std::sync::OnceLock;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::memory::Memory;
use crate::copy::{PAGE, copy_bytes, is_just_behind};

/// How fast long messages come, by the kernel or through staging areas: which is faster depends on the
/// processor, on what virtualises it, and on what senders do, by a factor of 1.5 either way.
///
/// Those of a batch come the same way, until none is under way: those that are under way at a time share it, so
/// that the time of one says nothing.
#[derive(Default)]
pub(super) struct Paces(Mutex<Batch>);

#[derive(Default)]
struct Batch {
    staged: bool,
    /// When the first one began.
    since: Option<Instant>,
    under_way: u64,
    /// How many have come, and their bytes.
    come: u64,
    bytes: u64,
    /// Picoseconds a byte, about, of the last batches by the kernel and staged; 0 if there were none.
    paces: [u64; 2],
    batches: u64,
}

/// Messages of a batch, at least.
const BATCH: u64 = 4;
/// Of so many batches one goes the way that was slower, as that may have changed.
const AGAIN: u64 = 8;

impl Paces {
    /// Begins a message: whether it is to come by the kernel. [`Paces::end`] is its end.
    pub(super) fn begin(&self) -> bool {
        let mut batch = self.0.lock();
        batch.since.get_or_insert_with(Instant::now);
        batch.under_way += 1;
        !batch.staged
    }

    /// So many bytes of a message have come, none if it was given up.
    pub(super) fn end(&self, bytes: usize) {
        let mut batch = self.0.lock();
        batch.under_way -= 1;
        batch.come += u64::from(bytes > 0);
        batch.bytes += bytes as u64;
        if batch.come >= BATCH && batch.under_way == 0 {
            let time = batch.since.take().map_or(Duration::ZERO, |since| since.elapsed());
            batch.end(time);
        }
    }
}

impl Batch {
    /// All of it have come in this time: which way does the next one go?
    fn end(&mut self, time: Duration) {
        let pace = &mut self.paces[usize::from(self.staged)];
        let now = (1000 * time.as_nanos() as u64 / self.bytes).max(1);
        // The first ones touch memory that nobody has used: what is better later counts at once.
        *pace = if *pace == 0 { now } else { now.min((3 * *pace + now) / 4) };
        (self.come, self.bytes) = (0, 0);
        self.batches += 1;
        self.staged = match self.paces {
            [0, _] => false,
            [_, 0] => true,
            [kernel, staged] => (staged < kernel) != self.batches.is_multiple_of(AGAIN),
        };
    }
}

/// Whether the kernel copies many pages faster than this process, of this world rank, copies them twice,
/// which depends on the processor and on what virtualises it. Found once, in some hundred microseconds.
pub(super) fn pays(memory: &Memory, rank: usize) -> bool {
    const BYTES: usize = 256 << 10;
    static PAYS: OnceLock<bool> = OnceLock::new();
    *PAYS.get_or_init(|| {
        // Both at the same place in their pages, as other copies by the kernel take longer (`copy_bytes`).
        let mut both = vec![1u8; 2 * BYTES];
        let (from, to) = both.split_at_mut(BYTES);
        let fastest = |copy: &mut dyn FnMut()| {
            let times = (0..4).map(|_| {
                let since = Instant::now();
                copy();
                since.elapsed()
            });
            times.min().unwrap_or_default()
        };
        let plain = fastest(&mut || std::hint::black_box(&mut *to).copy_from_slice(from));
        let by_kernel = fastest(&mut || {
            // SAFETY: it has so many bytes.
            unsafe { read(memory, rank, from.as_ptr() as u64, to.as_mut_ptr(), BYTES) };
        });
        by_kernel < 2 * plain
    })
}

/// Copies `bytes` from `address` in the process of world rank `source`; whether that worked.
///
/// The kernel copies as [`copy_bytes`] does not: where that is slow, what it reads comes by way of a place
/// where it is not.
///
/// # Safety
/// `into` is valid for writes of `bytes` bytes. The kernel checks all else.
pub(super) unsafe fn read(
    memory: &Memory,
    source: usize,
    address: u64,
    into: *mut u8,
    bytes: usize,
) -> bool {
    if bytes < PAGE || !is_just_behind(address as *const u8, into) {
        // SAFETY: this function's contract.
        return unsafe { read_straight(memory, source, address, into, bytes) };
    }
    let mut place = vec![0u8; BETWEEN + PAGE];
    let at = (address as usize).wrapping_sub(place.as_ptr() as usize) % PAGE;
    let between = &mut place[at..at + BETWEEN];
    (0..bytes).step_by(BETWEEN).all(|done| {
        let (piece, from) = (BETWEEN.min(bytes - done), address.wrapping_add(done as u64));
        // SAFETY: `between` has so many bytes, of this function's own, and so has `into` from there on (this
        // function's contract).
        unsafe {
            let has_come = read_straight(memory, source, from, between.as_mut_ptr(), piece);
            if has_come {
                copy_bytes(between.as_ptr(), into.add(done), piece);
            }
            has_come
        }
    })
}

/// So much is in that place at a time: it stays in the caches.
const BETWEEN: usize = 64 << 10;

/// # Safety
/// As [`read`].
#[cfg(target_os = "linux")]
unsafe fn read_straight(
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
        // SAFETY: the local range lies in the caller's `bytes` bytes (this function's contract); the remote one
        // is checked by the kernel.
        let read = unsafe { libc::process_vm_readv(pid, &local, 1, &remote, 1, 0) };
        match usize::try_from(read) {
            Ok(read) if read > 0 => done += read,
            _ => return false,
        }
    }
    true
}

/// Elsewhere there is no such call.
///
/// # Safety
/// As [`read`].
#[cfg(not(target_os = "linux"))]
unsafe fn read_straight(_: &Memory, _: usize, _: u64, _: *mut u8, _: usize) -> bool {
    let _ = Relaxed;
    false
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_faster_way_is_taken() {
        let mut batch = Batch::default();
        let mut staged = |slow_kernel: bool| {
            let staged = (0..80).filter(|_| {
                let way = batch.staged;
                batch.bytes = BATCH << 20;
                batch.end(Duration::from_micros(if way == slow_kernel { 100 } else { 150 }));
                way
            });
            staged.count()
        };
        // One that becomes the slower one is found out soon, one that becomes the faster one after
        // some batches.
        assert!(staged(true) > 60);
        assert!(staged(false) < 30);
        assert!(staged(true) > 50);
    }
}
