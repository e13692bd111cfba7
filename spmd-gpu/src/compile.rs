//! Kernels of a program's own.

use std::ffi::CString;
use std::sync::Arc;

use cudarc::driver::CudaModule;
use cudarc::nvrtc::Ptx;

use crate::device::Device;
use crate::driver::Checked;
use crate::error::GpuError;
use crate::nvrtc::Nvrtc;

impl Device {
    /// Compiles CUDA C++ for this device, and loads it: its `extern "C" __global__` functions are
    /// launched on [`Device::stream`], as `cudarc` has it, with the addresses that
    /// [`DeviceBuffer::as_device_ptr`](crate::DeviceBuffer::as_device_ptr) gives. Products and sums are
    /// rounded each, as on the host. It takes a second: keep what it gives.
    ///
    /// Errors: [`GpuError::Compile`], with what the compiler says; there is no compiler.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use spmd::prelude::*;
    /// use spmd::gpu::{Device, probe};
    /// use spmd::gpu::cudarc::driver::{LaunchConfig, PushKernelArg};
    ///
    /// if probe().ready().is_ok() {
    ///     let device = Device::open(0)?;
    ///     let source = r#"
    ///         extern "C" __global__ void twice(float *all, unsigned n) {
    ///             unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
    ///             if (at < n) all[at] *= 2;
    ///         }"#;
    ///     let twice = device.compile(source)?.load_function("twice")?;
    ///     let mut numbers = device.buffer_from(&[1.0f32, 2.0, 3.0])?;
    ///     let (place, n) = (unsafe { numbers.as_device_ptr() }, 3u32);
    ///     let mut launch = device.stream().launch_builder(&twice);
    ///     // SAFETY: the buffer has three numbers, and the kernel is in its stream.
    ///     unsafe { launch.arg(&place).arg(&n).launch(LaunchConfig::for_num_elems(n))? };
    ///     assert_eq!(numbers.to_vec()?, [2.0, 4.0, 6.0]);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn compile(&self, source: &str) -> Result<Arc<CudaModule>, GpuError> {
        let architecture = self.architecture()?;
        let text = CString::new(source).map_err(|_| GpuError::Compile {
            kernel: "of the program".into(),
            architecture,
            log: "the source has a zero byte".into(),
        })?;
        let code = Nvrtc::get()?.compile("of the program", &text, architecture, &[])?;
        self.load(code)
    }

    /// Loads machine code.
    pub(crate) fn load(&self, code: Vec<u8>) -> Result<Arc<CudaModule>, GpuError> {
        self.settle_untold();
        self.context().load_module(Ptx::from_binary(code)).checked("cuModuleLoadData")
    }
}
