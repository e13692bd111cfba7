//! Copies between host and device, for what goes by way of the host: messages, windows, stages.

use std::ptr;

use cudarc::driver::sys;
use spmd_core::Result;
use spmd_core::internal::{DeviceCopies, Rows, set_device_copies};

use crate::device::Device;
use crate::driver::Checked;
use crate::error::GpuError;

/// Has what goes by way of the host take device buffers.
pub(crate) fn make_known() {
    // SAFETY: both copy these bytes between a device and the host, on any thread, and are done when they
    // return.
    unsafe { set_device_copies(DeviceCopies { to_host, to_device }) }
}

/// # Safety
/// The device has these rows to read, and the host room for them, which nobody else uses.
unsafe fn to_host(ordinal: u32, from: &[Rows], into: *mut u8) -> Result<()> {
    let device = Device::open(ordinal)?;
    let (mut into, mut begun) = (into, Ok(()));
    if from.iter().any(|rows| rows.total() > 0) {
        device.settle()?;
        begun = from.iter().try_for_each(|rows| {
            let here = into;
            into = into.wrapping_add(rows.total());
            // SAFETY: this function's contract, until `synchronize` below.
            unsafe { start_to_host(&device, *rows, here) }
        });
    }
    let done = device.synchronize();
    Ok(begun.and(done)?)
}

/// # Safety
/// The host has so many bytes to read, and the device room for these rows, which nobody else uses.
unsafe fn to_device(ordinal: u32, from: *const u8, into: &[Rows]) -> Result<()> {
    let device = Device::open(ordinal)?;
    let (mut from, mut begun) = (from, Ok(()));
    if into.iter().any(|rows| rows.total() > 0) {
        device.settle_untold();
        begun = into.iter().try_for_each(|rows| {
            let here = from;
            from = from.wrapping_add(rows.total());
            // SAFETY: this function's contract, until `flush` below.
            unsafe { start_to_device(&device, here, *rows) }
        });
    }
    let done = device.flush();
    Ok(begun.and(done)?)
}

/// Copies rows to the host, one after another, in the order of the rank's stream.
///
/// # Safety
/// The device has them to read, and the host room for them, which nobody else uses until the stream has
/// done it.
pub(crate) unsafe fn start_to_host(
    device: &Device,
    from: Rows,
    into: *mut u8,
) -> Result<(), GpuError> {
    each_piece(device, from, |rows, offset, stream| {
        let into = into.wrapping_add(offset).cast();
        if rows.count == 1 {
            // SAFETY: this function's contract.
            let copied = unsafe { sys::cuMemcpyDtoHAsync_v2(into, rows.start, rows.bytes, stream) };
            return copied.result().checked("cuMemcpyDtoHAsync");
        }
        let mut copy = between(rows);
        copy.srcMemoryType = sys::CUmemorytype::CU_MEMORYTYPE_DEVICE;
        (copy.srcDevice, copy.srcPitch) = (rows.start, rows.stride);
        copy.dstMemoryType = sys::CUmemorytype::CU_MEMORYTYPE_HOST;
        (copy.dstHost, copy.dstPitch) = (into, rows.bytes);
        // SAFETY: this function's contract.
        unsafe { sys::cuMemcpy2DAsync_v2(&copy, stream) }.result().checked("cuMemcpy2DAsync")
    })
}

/// Copies rows to the device, in the order of the rank's stream.
///
/// # Safety
/// As [`start_to_host`], the other way.
pub(crate) unsafe fn start_to_device(
    device: &Device,
    from: *const u8,
    into: Rows,
) -> Result<(), GpuError> {
    each_piece(device, into, |rows, offset, stream| {
        let from = from.wrapping_add(offset).cast();
        if rows.count == 1 {
            // SAFETY: this function's contract.
            let copied = unsafe { sys::cuMemcpyHtoDAsync_v2(rows.start, from, rows.bytes, stream) };
            return copied.result().checked("cuMemcpyHtoDAsync");
        }
        let mut copy = between(rows);
        copy.srcMemoryType = sys::CUmemorytype::CU_MEMORYTYPE_HOST;
        (copy.srcHost, copy.srcPitch) = (from, rows.bytes);
        copy.dstMemoryType = sys::CUmemorytype::CU_MEMORYTYPE_DEVICE;
        (copy.dstDevice, copy.dstPitch) = (rows.start, rows.stride);
        // SAFETY: this function's contract.
        unsafe { sys::cuMemcpy2DAsync_v2(&copy, stream) }.result().checked("cuMemcpy2DAsync")
    })
}

/// What the driver copies at once: all rows, or each by itself where they lie farther apart than it takes.
fn each_piece(
    device: &Device,
    rows: Rows,
    copy: impl Fn(Rows, usize, sys::CUstream) -> Result<(), GpuError>,
) -> Result<(), GpuError> {
    /// `CU_DEVICE_ATTRIBUTE_MAX_PITCH` of every device: CUDA C++ Programming Guide, technical specifications.
    const MOST: usize = i32::MAX as usize;
    if rows.total() == 0 {
        return Ok(());
    }
    // Another rank of this thread may use another device.
    device.context().bind_to_thread().checked("cuCtxSetCurrent")?;
    let stream = device.stream().cu_stream();
    if rows.stride <= MOST {
        return copy(rows, 0, stream);
    }
    (0..rows.count).try_for_each(|row| {
        let start = rows.start + (row * rows.stride) as u64;
        copy(Rows { start, count: 1, ..rows }, row * rows.bytes, stream)
    })
}

/// The measures of rows that are copied.
fn between(rows: Rows) -> sys::CUDA_MEMCPY2D {
    sys::CUDA_MEMCPY2D {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_HOST,
        srcHost: ptr::null(),
        srcDevice: 0,
        srcArray: ptr::null_mut(),
        srcPitch: 0,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_HOST,
        dstHost: ptr::null_mut(),
        dstDevice: 0,
        dstArray: ptr::null_mut(),
        dstPitch: 0,
        WidthInBytes: rows.bytes,
        Height: rows.count,
    }
}
