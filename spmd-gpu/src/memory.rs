//! What buffers are made of: memory of a device alone, or of the host as well.

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaSlice, DriverError, result, sys};

use crate::device::Device;
use crate::driver::{self, Checked};
use crate::error::GpuError;
use crate::exports::{Exported, address_of};

/// Memory that a device uses, of so many bytes, which hold nothing yet.
pub(crate) enum DeviceMemory {
    /// The device's alone. It is freed in the order of the stream where it was made.
    Own(CudaSlice<u8>),
    /// The same, which other processes may open. It is freed when none of them has it open.
    Exported(Exported),
    /// The host's as well. It is freed at once: whoever drops it waits before for all that uses it.
    Unified(Unified),
}

/// Memory of a device and the host, at one address.
pub(crate) struct Unified {
    start: u64,
    bytes: usize,
    kind: Kind,
    context: Arc<CudaContext>,
}

#[derive(Clone, Copy)]
enum Kind {
    /// Pages go to whoever uses them.
    Managed,
    /// Pages of the host that stay there, of a device that has no memory of its own.
    Pinned,
}

impl DeviceMemory {
    /// Memory of the device alone: where processes are ranks, they can open it.
    ///
    /// Errors: the device has no room; the driver refuses.
    pub(crate) fn own(device: &Device, bytes: usize) -> Result<DeviceMemory, GpuError> {
        let made = match device.opens() {
            true => match Exported::left(device, bytes) {
                Some(memory) => Ok(memory),
                None => {
                    device.settle_untold();
                    Exported::new(device, bytes)
                }
            }
            .map(DeviceMemory::Exported),
            // SAFETY: whoever has it writes it before anybody reads.
            false => unsafe { device.stream().alloc::<u8>(bytes) }.map(DeviceMemory::Own),
        };
        made.map_err(|error| refused(device, bytes, error, "cuMemAllocAsync"))
    }

    /// Memory of the device and the host.
    ///
    /// Errors: there is no such memory here; there is no room; the driver refuses.
    pub(crate) fn unified(device: &Device, bytes: usize) -> Result<DeviceMemory, GpuError> {
        let kind = Kind::of(device)?;
        device.settle_untold();
        device.context().bind_to_thread().checked("cuCtxSetCurrent")?;
        let any_stream = sys::CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL;
        // SAFETY: there is a context, and whoever has it writes it before anybody reads.
        let made = unsafe {
            match kind {
                Kind::Managed => result::malloc_managed(bytes, any_stream),
                Kind::Pinned => {
                    let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
                    result::malloc_host(bytes, flags).map(|start| start as u64)
                }
            }
        };
        let start = made.map_err(|error| refused(device, bytes, error, kind.function()))?;
        let context = device.context().clone();
        Ok(DeviceMemory::Unified(Unified { start, bytes, kind, context }))
    }

    /// Where it is: of unified memory, on the host as on the device.
    pub(crate) fn address(&self) -> u64 {
        match self {
            DeviceMemory::Own(bytes) => address_of(bytes),
            DeviceMemory::Exported(exported) => address_of(exported.memory()),
            DeviceMemory::Unified(unified) => unified.start,
        }
    }

    /// How many bytes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            DeviceMemory::Own(bytes) => bytes.len(),
            DeviceMemory::Exported(exported) => exported.memory().len(),
            DeviceMemory::Unified(unified) => unified.bytes,
        }
    }
}

impl Drop for Unified {
    fn drop(&mut self) {
        if self.context.bind_to_thread().is_err() {
            return;
        }
        // SAFETY: the driver gave it so, and nothing on the device uses it any more.
        let _ = unsafe {
            match self.kind {
                Kind::Managed => result::free_sync(self.start),
                Kind::Pinned => result::free_host(self.start as *mut c_void),
            }
        };
    }
}

impl Kind {
    /// The kind that lets the host use memory whatever runs on devices meanwhile: kernels of other ranks
    /// are not to be held up, and where a device asks for that, to read would be undefined.
    ///
    /// Errors: there is none.
    fn of(device: &Device) -> Result<Kind, GpuError> {
        use sys::CUdevice_attribute::*;
        let own = device.context().cu_device();
        let has = |of| Ok::<_, GpuError>(driver::attribute(own, of)? != 0);
        // Managed memory is every device's: one that cannot share it with the host keeps it from all.
        let mut share = true;
        for ordinal in 0..driver::count()? {
            let other = result::device::get(ordinal as i32).checked("cuDeviceGet")?;
            let concurrent = CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS;
            share = share && driver::attribute(other, concurrent)? != 0;
        }
        if share && has(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY)? {
            return Ok(Kind::Managed);
        }
        let maps = has(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY)?
            && has(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING)?;
        match maps && has(CU_DEVICE_ATTRIBUTE_INTEGRATED)? {
            true => Ok(Kind::Pinned),
            false => Err(GpuError::NoUnifiedMemory { ordinal: device.ordinal() }),
        }
    }

    fn function(self) -> &'static str {
        match self {
            Kind::Managed => "cuMemAllocManaged",
            Kind::Pinned => "cuMemHostAlloc",
        }
    }
}

/// Why there is no memory of so many bytes.
pub(crate) fn refused(
    device: &Device,
    asked: usize,
    DriverError(code): DriverError,
    call: &'static str,
) -> GpuError {
    let full = code == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY;
    match device.memory() {
        Ok((free, _)) if full || free < asked => GpuError::OutOfDeviceMemory { asked, free },
        _ => driver::of_code(code, call),
    }
}
