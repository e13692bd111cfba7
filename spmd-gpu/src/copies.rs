//! Copies between host and device, for what goes by way of the host: messages, windows.

use cudarc::driver::sys;
use spmd_core::Result;
use spmd_core::internal::{DeviceCopies, set_device_copies};

use crate::device::Device;
use crate::driver::Checked;

/// Has what goes by way of the host take device buffers.
pub(crate) fn make_known() {
    // SAFETY: both copy so many bytes between a device and the host, on any thread, and are done when
    // they return.
    unsafe { set_device_copies(DeviceCopies { to_host, to_device }) }
}

/// # Safety
/// The device has so many bytes to read, and the host room for them, which nobody else uses.
unsafe fn to_host(ordinal: u32, from: *const u8, into: *mut u8, bytes: usize) -> Result<()> {
    let device = Device::open(ordinal)?;
    if bytes > 0 {
        device.settle()?;
        device.context().bind_to_thread().checked("cuCtxSetCurrent")?;
        let (stream, from) = (device.stream().cu_stream(), from as u64);
        // SAFETY: this function's contract, until `synchronize` below.
        let copied = unsafe { sys::cuMemcpyDtoHAsync_v2(into.cast(), from, bytes, stream) };
        copied.result().checked("cuMemcpyDtoHAsync")?;
    }
    Ok(device.synchronize()?)
}

/// # Safety
/// The host has so many bytes to read, and the device room for them, which nobody else uses.
unsafe fn to_device(ordinal: u32, from: *const u8, into: *mut u8, bytes: usize) -> Result<()> {
    let device = Device::open(ordinal)?;
    if bytes > 0 {
        device.settle_untold();
        device.context().bind_to_thread().checked("cuCtxSetCurrent")?;
        let (stream, into) = (device.stream().cu_stream(), into as u64);
        // SAFETY: this function's contract, until `synchronize` below.
        let copied = unsafe { sys::cuMemcpyHtoDAsync_v2(into, from.cast(), bytes, stream) };
        copied.result().checked("cuMemcpyHtoDAsync")?;
    }
    Ok(device.flush()?)
}
