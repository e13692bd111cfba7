//! Memory of a device for the time of a call, and copies on the device.

use cudarc::driver::{CudaSlice, result};

use crate::device::Device;
use crate::driver::Checked;
use crate::error::GpuError;
use crate::memory::refused;

impl Device {
    /// Room for so many bytes, which hold nothing, freed in the order of this rank's stream.
    ///
    /// Errors: [`GpuError::OutOfDeviceMemory`]; the driver refuses.
    pub(crate) fn scratch(&self, bytes: usize) -> Result<CudaSlice<u8>, GpuError> {
        // SAFETY: whoever has it writes it before it reads.
        let made = unsafe { self.stream().alloc(bytes.max(1)) };
        made.map_err(|error| refused(self, bytes, error, "cuMemAllocAsync"))
    }

    /// Copies so many bytes on the device, in the order of this rank's stream.
    ///
    /// Errors: the driver refuses.
    ///
    /// # Safety
    /// Both places have so many bytes, apart from each other, until the stream has done it; nobody else
    /// writes the first or uses the second by then.
    pub(crate) unsafe fn copy(&self, from: u64, into: u64, bytes: usize) -> Result<(), GpuError> {
        if bytes == 0 {
            return Ok(());
        }
        self.context().bind_to_thread().checked("cuCtxSetCurrent")?;
        let stream = self.stream().cu_stream();
        // SAFETY: this function's contract.
        unsafe { result::memcpy_dtod_async(into, from, bytes, stream) }.checked("cuMemcpyDtoDAsync")
    }
}
