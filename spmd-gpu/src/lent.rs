//! Buffers as `cudarc` has them.

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

use cudarc::driver::CudaSlice;
use spmd_core::Element;

use crate::buffer::DeviceBuffer;
use crate::error::GpuError;

/// The elements of a [`DeviceBuffer`] as a slice of `cudarc`, as long as it is borrowed.
pub struct Lent<'a, T> {
    slice: ManuallyDrop<CudaSlice<T>>,
    buffer: PhantomData<&'a mut DeviceBuffer<T>>,
}

impl<T: Element> DeviceBuffer<T> {
    /// The elements as a slice of `cudarc`, in the stream of [`device`](DeviceBuffer::device): for kernels of the
    /// program's own, and for libraries of CUDA that `cudarc` knows. Nothing is copied, and nothing waits.
    ///
    /// Errors: the device cannot be used from here.
    ///
    /// # Safety
    /// What uses the slice is in its stream, or ordered with it, and writes values of `T` alone. No other slice
    /// is put in its place, and none is made of its memory that outlives it.
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
    ///         extern "C" __global__ void square(const float *from, float *into, unsigned n) {
    ///             unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
    ///             if (at < n) into[at] = from[at] * from[at];
    ///         }"#;
    ///     let square = device.compile(source)?.load_function("square")?;
    ///     let mut numbers = device.buffer_from(&[1.0f32, 2.0, 3.0])?;
    ///     let mut squares = device.zeros::<f32>(3)?;
    ///     // SAFETY: the kernel is in the stream of both, and writes three numbers.
    ///     unsafe {
    ///         let (from, mut into) = (numbers.as_cuda_slice()?, squares.as_cuda_slice()?);
    ///         let mut launch = device.stream().launch_builder(&square);
    ///         launch.arg(&*from).arg(&mut *into).arg(&3u32);
    ///         launch.launch(LaunchConfig::for_num_elems(3))?;
    ///     }
    ///     assert_eq!(squares.to_vec()?, [1.0, 4.0, 9.0]);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub unsafe fn as_cuda_slice(&mut self) -> Result<Lent<'_, T>, GpuError> {
        let device = self.device_alone()?;
        let (place, len) = (self.memory().address(), self.len());
        // SAFETY: so many values are there, on the device of this stream, as long as the buffer is borrowed. The
        // slice never frees them: `Lent` gives them back.
        let slice = unsafe { device.stream().upgrade_device_ptr(place, len) };
        Ok(Lent { slice: ManuallyDrop::new(slice), buffer: PhantomData })
    }
}

impl<T: Element> fmt::Debug for Lent<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("Lent");
        fields.field("len", &self.slice.len()).field("dtype", &T::DTYPE.name).finish()
    }
}

impl<T> Drop for Lent<'_, T> {
    fn drop(&mut self) {
        // SAFETY: nobody uses it after this. The memory is the buffer's.
        let slice = unsafe { ManuallyDrop::take(&mut self.slice) };
        slice.leak();
    }
}

impl<T> Deref for Lent<'_, T> {
    type Target = CudaSlice<T>;

    fn deref(&self) -> &CudaSlice<T> {
        &self.slice
    }
}

impl<T> DerefMut for Lent<'_, T> {
    fn deref_mut(&mut self) -> &mut CudaSlice<T> {
        &mut self.slice
    }
}
