//! Devices of this process that reach each other's memory.

use std::collections::BTreeMap;

use cudarc::driver::sys;
use parking_lot::Mutex;

use crate::driver::{self, Checked};
use crate::error::GpuError;

/// Whether kernels of a device read and write the memory of buffers of another one. The first time that it
/// is asked, they are let.
pub(crate) fn reaches(device: u32, other: u32) -> bool {
    static KNOWN: Mutex<BTreeMap<(u32, u32), bool>> = Mutex::new(BTreeMap::new());
    let let_in = || open(device, other).unwrap_or(false);
    device == other || *KNOWN.lock().entry((device, other)).or_insert_with(let_in)
}

fn open(device: u32, other: u32) -> Result<bool, GpuError> {
    let (from, to) = (driver::context(device)?, driver::context(other)?);
    let mut can = 0;
    // SAFETY: it writes one number; the driver gave both devices.
    let asked = unsafe { sys::cuDeviceCanAccessPeer(&mut can, from.cu_device(), to.cu_device()) };
    asked.result().checked("cuDeviceCanAccessPeer")?;
    if can == 0 {
        return Ok(false);
    }
    from.bind_to_thread().checked("cuCtxSetCurrent")?;
    // SAFETY: a context that is kept to the end of the process.
    match unsafe { sys::cuCtxEnablePeerAccess(to.cu_ctx(), 0) } {
        // Also by the program itself.
        sys::CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => {}
        code => code.result().checked("cuCtxEnablePeerAccess")?,
    }
    if to.has_async_alloc() {
        let mut pool = std::ptr::null_mut();
        // SAFETY: it writes the handle of the pool that the device has, from which buffers come.
        let given = unsafe { sys::cuDeviceGetMemPool(&mut pool, to.cu_device()) };
        given.result().checked("cuDeviceGetMemPool")?;
        let number = sys::CUmemLocation_st__bindgen_ty_1 { id: from.cu_device() };
        let access = sys::CUmemAccessDesc {
            location: sys::CUmemLocation {
                type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
                __bindgen_anon_1: number,
            },
            flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        // SAFETY: it reads one such record.
        let set = unsafe { sys::cuMemPoolSetAccess(pool, &access, 1) };
        set.result().checked("cuMemPoolSetAccess")?;
    }
    Ok(true)
}
