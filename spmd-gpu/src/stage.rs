//! Memory of the host through which data go to and from a device: pinned, so that the device copies by
//! itself. It is kept for the rank's next calls.

use std::cell::RefCell;
use std::ffi::c_void;

use cudarc::driver::{result, sys};
use spmd_core::rank_local;

use crate::device::Device;
use crate::driver::Checked;
use crate::error::GpuError;

/// Stages that a rank keeps, at most.
const KEPT: usize = 4;

rank_local! {
    /// Those of this rank that no call uses.
    static IDLE: RefCell<Vec<Stage>> = RefCell::default();
}

/// Memory of the host that a device reads and writes.
pub(crate) struct Stage {
    start: *mut c_void,
    bytes: usize,
    device: Device,
}

// SAFETY: memory of its own, which any thread may use and free.
unsafe impl Send for Stage {}

impl Stage {
    /// Room for so many bytes, for this device.
    ///
    /// Errors: the system has not so much that can be pinned.
    pub(crate) fn take(device: &Device, bytes: usize) -> Result<Stage, GpuError> {
        let known = IDLE.with(|idle| {
            let mut idle = idle.borrow_mut();
            let fits = |it: &Stage| it.device == *device && it.bytes >= bytes;
            let best =
                (0..idle.len()).filter(|at| fits(&idle[*at])).min_by_key(|at| idle[*at].bytes);
            best.map(|at| idle.swap_remove(at))
        });
        if let Some(known) = known {
            return Ok(known);
        }
        let bytes = bytes.max(1).next_power_of_two();
        device.context().bind_to_thread().checked("cuCtxSetCurrent")?;
        // Not write-combined: the host reads it, too.
        // SAFETY: there is a context.
        let start = unsafe { result::malloc_host(bytes, 0) }.checked("cuMemHostAlloc")?;
        Ok(Stage { start, bytes, device: device.clone() })
    }

    /// Keeps it for later; frees the smallest where there are too many.
    pub(crate) fn keep(self) {
        let least = IDLE.with(|idle| {
            let mut idle = idle.borrow_mut();
            idle.push(self);
            let least = (0..idle.len()).min_by_key(|at| idle[*at].bytes);
            least.filter(|_| idle.len() > KEPT).map(|at| idle.swap_remove(at))
        });
        drop(least);
    }

    /// Where it starts.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start.cast()
    }

    /// Copies so many bytes here from the device, in the order of its stream.
    ///
    /// # Safety
    /// The device has as many there; nobody else uses the stage until the stream has done it.
    pub(crate) unsafe fn fill(&self, from: u64, bytes: usize) -> Result<(), GpuError> {
        assert!(bytes <= self.bytes);
        // Another rank of this thread may use another device.
        self.device.context().bind_to_thread().checked("cuCtxSetCurrent")?;
        let stream = self.device.stream().cu_stream();
        // SAFETY: this function's contract; the stage has room for them.
        let copied = unsafe { sys::cuMemcpyDtoHAsync_v2(self.start, from, bytes, stream) };
        copied.result().checked("cuMemcpyDtoHAsync")
    }

    /// Copies so many bytes to the device.
    ///
    /// # Safety
    /// As [`Stage::fill`]; they are values of what lies there.
    pub(crate) unsafe fn empty(&self, into: u64, bytes: usize) -> Result<(), GpuError> {
        assert!(bytes <= self.bytes);
        self.device.context().bind_to_thread().checked("cuCtxSetCurrent")?;
        let stream = self.device.stream().cu_stream();
        // SAFETY: this function's contract; the stage has as many.
        let copied = unsafe { sys::cuMemcpyHtoDAsync_v2(into, self.start, bytes, stream) };
        copied.result().checked("cuMemcpyHtoDAsync")
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // What fails here is a device that is lost, or a driver that ends: nothing is copied any more.
        let _ = self.device.synchronize();
        if self.device.context().bind_to_thread().is_ok() {
            // SAFETY: the driver gave it, and nobody uses it any more: the stream holds no copy.
            let _ = unsafe { result::free_host(self.start) };
        }
    }
}
