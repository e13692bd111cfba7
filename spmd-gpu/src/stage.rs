//! Memory of the host through which data go to and from a device: pinned, so that the device copies by
//! itself. It is kept for the rank's next calls.

use std::cell::RefCell;

use spmd_core::internal::Rows;
use spmd_core::rank_local;

use crate::copies;
use crate::device::Device;
use crate::error::GpuError;
use crate::pinned::Pinned;

/// Stages that a rank keeps, at most.
const KEPT: usize = 4;

rank_local! {
    /// Those of this rank that no call uses.
    static IDLE: RefCell<Vec<Stage>> = RefCell::default();
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
        assert!(from.total() <= self.bytes);
        // SAFETY: this function's contract; the stage has room for them.
        unsafe { copies::start_to_host(&self.device, from, self.start()) }
    }

    /// Copies as many to the device.
    ///
    /// # Safety
    /// As [`Stage::fill`]; they are values of what lies there.
    pub(crate) unsafe fn empty(&self, into: Rows) -> Result<(), GpuError> {
        assert!(into.total() <= self.bytes);
        // SAFETY: this function's contract; the stage has as many.
        unsafe { copies::start_to_device(&self.device, self.start(), into) }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // What fails here is a device that is lost, or a driver that ends: nothing is copied any more.
        self.device.synchronize_untold();
    }
}
