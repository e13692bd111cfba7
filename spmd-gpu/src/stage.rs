//! Memory of the host through which data go to and from a device: pinned, so that the device copies by
//! itself. It is kept for the rank's next calls.

use std::cell::RefCell;
use std::ffi::c_void;

use cudarc::driver::sys;
use spmd_core::rank_local;

use crate::device::Device;
use crate::driver::Checked;
use crate::error::GpuError;
use crate::pinned::Pinned;

/// Stages that a rank keeps, at most.
const KEPT: usize = 4;

rank_local! {
    /// Those of this rank that no call uses.
    static IDLE: RefCell<Vec<Stage>> = RefCell::default();
}

/// Rows of bytes on a device, which on the host lie without the gaps.
#[derive(Clone, Copy)]
pub(crate) struct Rows {
    pub(crate) start: u64,
    /// How many.
    pub(crate) count: usize,
    /// Of each.
    pub(crate) bytes: usize,
    /// From one's start to the next one's.
    pub(crate) stride: usize,
}

impl Rows {
    /// Bytes in all.
    pub(crate) fn total(self) -> usize {
        self.count * self.bytes
    }

    /// Where on the host it is that lies so far behind the start on the device: in a row, or at one's end.
    pub(crate) fn packed(self, offset: usize) -> usize {
        offset / self.stride * self.bytes + offset % self.stride
    }
}

/// Memory of the host that a device reads and writes.
pub(crate) struct Stage {
    memory: Pinned,
    bytes: usize,
    device: Device,
}

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
        Ok(Stage { memory: Pinned::new(device, bytes)?, bytes, device: device.clone() })
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
        self.memory.start().cast()
    }

    /// Copies rows here from the device, one after another, in the order of its stream.
    ///
    /// # Safety
    /// The device has them there; nobody else uses the stage until the stream has done it.
    pub(crate) unsafe fn fill(&self, from: Rows) -> Result<(), GpuError> {
        self.each_row(from, |host, device, bytes, stream| {
            // SAFETY: this function's contract; the stage has room for them.
            let copied = unsafe { sys::cuMemcpyDtoHAsync_v2(host, device, bytes, stream) };
            copied.result().checked("cuMemcpyDtoHAsync")
        })
    }

    /// Copies as many to the device.
    ///
    /// # Safety
    /// As [`Stage::fill`]; they are values of what lies there.
    pub(crate) unsafe fn empty(&self, into: Rows) -> Result<(), GpuError> {
        self.each_row(into, |host, device, bytes, stream| {
            // SAFETY: this function's contract; the stage has as many.
            let copied = unsafe { sys::cuMemcpyHtoDAsync_v2(device, host, bytes, stream) };
            copied.result().checked("cuMemcpyHtoDAsync")
        })
    }

    /// Copies each row, with its place here and on the device.
    fn each_row(
        &self,
        rows: Rows,
        copy: impl Fn(*mut c_void, u64, usize, sys::CUstream) -> Result<(), GpuError>,
    ) -> Result<(), GpuError> {
        assert!(rows.total() <= self.bytes);
        // Another rank of this thread may use another device.
        self.device.context().bind_to_thread().checked("cuCtxSetCurrent")?;
        let stream = self.device.stream().cu_stream();
        (0..rows.count).filter(|_| rows.bytes > 0).try_for_each(|row| {
            let host = self.memory.start().wrapping_byte_add(row * rows.bytes);
            copy(host, rows.start + (row * rows.stride) as u64, rows.bytes, stream)
        })
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // What fails here is a device that is lost, or a driver that ends: nothing is copied any more.
        self.device.synchronize_untold();
    }
}
