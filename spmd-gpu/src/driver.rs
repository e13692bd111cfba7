//! The driver, through `cudarc`, and the contexts of this process: one for each device, which all of
//! its ranks share.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use cudarc::driver::{CudaContext, DriverError, result, sys};
use parking_lot::Mutex;

use crate::error::GpuError;

/// The version of CUDA whose interface this crate is written for.
const NEEDED: i32 = 12_000;

/// The function that says which.
const VERSION: &str = "cuDriverGetVersion";

/// Functions that are in use. `cudarc` panics where one is missing.
const FUNCTIONS: [&str; 55] = [
    "cuInit",
    VERSION,
    "cuGetErrorName",
    "cuGetErrorString",
    "cuDeviceGet",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDeviceGetAttribute",
    "cuDeviceGetUuid_v2",
    "cuDeviceTotalMem_v2",
    "cuDeviceCanAccessPeer",
    "cuDeviceGetMemPool",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuCtxSynchronize",
    "cuCtxEnablePeerAccess",
    "cuMemGetInfo_v2",
    "cuMemAlloc_v2",
    "cuMemAllocAsync",
    "cuMemPoolSetAccess",
    "cuMemAllocManaged",
    "cuMemFree_v2",
    "cuMemGetAddressRange_v2",
    "cuIpcGetMemHandle",
    "cuIpcOpenMemHandle_v2",
    "cuIpcCloseMemHandle",
    "cuMemHostAlloc",
    "cuMemFreeHost",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
    "cuMemHostGetDevicePointer_v2",
    "cuMemFreeAsync",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpy2DAsync_v2",
    "cuMemsetD8Async",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamSynchronize",
    "cuStreamQuery",
    "cuStreamWaitEvent",
    "cuStreamWaitValue32_v2",
    "cuStreamWriteValue32_v2",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventRecord",
    "cuEventQuery",
    "cuEventSynchronize",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuModuleGetFunction",
    "cuLaunchKernel",
];

/// Makes the driver ready, once.
///
/// Errors: there is none, it is too old, or it cannot start.
pub(crate) fn driver() -> Result<(), GpuError> {
    count().map(drop)
}

/// The same; how many devices this process sees.
pub(crate) fn count() -> Result<u32, GpuError> {
    static COUNT: OnceLock<Result<u32, GpuError>> = OnceLock::new();
    COUNT.get_or_init(start).clone()
}

fn start() -> Result<u32, GpuError> {
    // SAFETY: the library that is loaded is NVIDIA's driver, or what the user put in its place.
    if !unsafe { sys::is_culib_present() } {
        let tried = ["libcuda.so", "libcuda.so.1"].map(String::from).into();
        return Err(GpuError::DriverMissing { tried });
    }
    // SAFETY: as above. It is there, so this does not panic.
    let library = unsafe { sys::culib() };
    // SAFETY: nothing is called through it.
    let has =
        |name: &str| unsafe { library.get::<unsafe extern "C" fn()>(name.as_bytes()) }.is_ok();
    if let Some(name) = FUNCTIONS.into_iter().find(|name| !has(name)) {
        let found_version = has(VERSION).then(|| parts(version()));
        let library = "the CUDA driver".into();
        return Err(GpuError::SymbolMissing { library, name, found_version });
    }
    let found = version();
    if found < NEEDED {
        return Err(GpuError::DriverTooOld { found });
    }
    match result::init() {
        // A driver that sees no device does not start.
        Err(DriverError(sys::CUresult::CUDA_ERROR_NO_DEVICE)) => return Ok(0),
        started => started.map_err(refused("cuInit"))?,
    }
    let count = result::device::get_count().map_err(refused("cuDeviceGetCount"))?;
    Ok(u32::try_from(count).unwrap_or(0))
}

/// A code that the driver gave before there was a device that could be lost.
fn refused(call: &'static str) -> impl Fn(DriverError) -> GpuError {
    move |DriverError(code)| GpuError::Driver { call, text: text_of(code) }
}

/// The version of CUDA that the driver knows; 0 where it does not say.
fn version() -> i32 {
    let mut version = 0;
    // SAFETY: it writes one number.
    let code = unsafe { sys::cuDriverGetVersion(&mut version) };
    if code.result().is_ok() { version } else { 0 }
}

/// The same, of a driver that is ready.
pub(crate) fn driver_version() -> Result<(i32, i32), GpuError> {
    driver()?;
    Ok(parts(version()))
}

/// Major and minor.
fn parts(version: i32) -> (i32, i32) {
    (version / 1000, version % 1000 / 10)
}

static CONTEXTS: Mutex<BTreeMap<u32, Arc<CudaContext>>> = Mutex::new(BTreeMap::new());

/// Waits until all devices that this process uses have done what they were told.
pub(crate) fn synchronize_all() {
    let all: Vec<_> = CONTEXTS.lock().values().cloned().collect();
    // One that is lost does nothing any more.
    all.iter().for_each(|context| {
        let _ = context.synchronize();
    });
}

/// What a device says of itself, whether it is opened or not.
pub(crate) fn attribute(
    device: sys::CUdevice,
    of: sys::CUdevice_attribute,
) -> Result<i32, GpuError> {
    // SAFETY: it writes one number; the driver refuses what is no device.
    unsafe { result::device::get_attribute(device, of) }.checked("cuDeviceGetAttribute")
}

/// The context of a device, made at the first use. It is kept to the end of the process: what ranks
/// of a later block load there is loaded once.
pub(crate) fn context(ordinal: u32) -> Result<Arc<CudaContext>, GpuError> {
    let count = count()?;
    if ordinal >= count {
        return Err(GpuError::NoDevice { ordinal, count });
    }
    let mut contexts = CONTEXTS.lock();
    if let Some(context) = contexts.get(&ordinal) {
        return Ok(context.clone());
    }
    let context = CudaContext::new(ordinal as usize).checked("cuDevicePrimaryCtxRetain")?;
    // SAFETY: what `cudarc` would order by events this crate orders itself: each rank uses its
    // buffers on one stream, and planes make streams wait for each other.
    unsafe { context.disable_event_tracking() };
    contexts.insert(ordinal, context.clone());
    Ok(context)
}

/// What the driver said, as an error of this crate.
pub(crate) trait Checked<T> {
    /// `call` is the function that said it.
    fn checked(self, call: &'static str) -> Result<T, GpuError>;
}

impl<T> Checked<T> for Result<T, DriverError> {
    fn checked(self, call: &'static str) -> Result<T, GpuError> {
        self.map_err(|DriverError(code)| of_code(code, call))
    }
}

/// One of the driver's codes, as an error of this crate.
pub(crate) fn of_code(code: sys::CUresult, call: &'static str) -> GpuError {
    use sys::CUresult::*;
    let text = text_of(code);
    match code {
        CUDA_ERROR_DEVICE_UNAVAILABLE => GpuError::DeviceBusy { text },
        // After these, every call in the context fails, or there is no context any more.
        CUDA_ERROR_CONTEXT_IS_DESTROYED
        | CUDA_ERROR_CONTAINED
        | CUDA_ERROR_EXTERNAL_DEVICE
        | CUDA_ERROR_TENSOR_MEMORY_LEAK
        | CUDA_ERROR_MPS_CLIENT_TERMINATED
        | CUDA_ERROR_UNKNOWN
        | CUDA_ERROR_ILLEGAL_ADDRESS
        | CUDA_ERROR_LAUNCH_FAILED
        | CUDA_ERROR_LAUNCH_TIMEOUT
        | CUDA_ERROR_ASSERT
        | CUDA_ERROR_ILLEGAL_INSTRUCTION
        | CUDA_ERROR_MISALIGNED_ADDRESS
        | CUDA_ERROR_INVALID_ADDRESS_SPACE
        | CUDA_ERROR_INVALID_PC
        | CUDA_ERROR_HARDWARE_STACK_ERROR
        | CUDA_ERROR_ECC_UNCORRECTABLE
        | CUDA_ERROR_NVLINK_UNCORRECTABLE => GpuError::DeviceLost { call, text },
        _ => GpuError::Driver { call, text },
    }
}

/// The driver's words for one of its codes.
pub(crate) fn text_of(code: sys::CUresult) -> String {
    let error = DriverError(code);
    let word = |text: Result<&std::ffi::CStr, DriverError>| {
        text.map_or_else(|_| format!("{code:?}"), |text| text.to_string_lossy().into_owned())
    };
    format!("{} ({})", word(error.error_string()), word(error.error_name()))
}
