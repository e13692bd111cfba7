//! Elements that the host and a device use in place.

use spmd_core::Element;

use crate::buffer::{DeviceBuffer, bytes_of};
use crate::device::Device;
use crate::error::GpuError;
use crate::memory::DeviceMemory;

impl<T: Element> DeviceBuffer<T> {
    /// A buffer of `len` elements whose bytes are all zero, in memory that the host uses as well, by
    /// [`host`](DeviceBuffer::host) and [`host_mut`](DeviceBuffer::host_mut), without a copy. To calls and
    /// kernels it is a buffer as any other. Dropping it waits for the device.
    ///
    /// It is managed memory where devices and the host use that at a time, pinned memory of the host where the
    /// device is part of the processor.
    ///
    /// Errors: [`GpuError::NoUnifiedMemory`], of a device that would keep the host from all such memory
    /// while a kernel runs, whoever's that is; as [`Device::zeros`].
    ///
    /// ```
    /// # fn main() -> Result<(), spmd::gpu::GpuError> {
    /// use spmd::prelude::*;
    /// use spmd::gpu::{Device, DeviceBuffer, probe};
    ///
    /// if probe().ready().is_ok() {
    ///     let device = Device::open(0)?;
    ///     let mut numbers = match DeviceBuffer::unified(&device, 3) {
    ///         Ok(numbers) => numbers,
    ///         Err(none) => return Ok(println!("{none}")),
    ///     };
    ///     numbers.host_mut()?.copy_from_slice(&[1.0f32, 2.0, 3.0]);
    ///     let mut copy = device.zeros(3)?;
    ///     copy.copy_from_buffer(&numbers)?;
    ///     assert_eq!(copy.to_vec()?, numbers.host()?);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn unified(device: &Device, len: usize) -> Result<DeviceBuffer<T>, GpuError> {
        let memory = DeviceMemory::unified(device, bytes_of::<T>(len))?;
        if !(memory.address() as *const T).is_aligned() {
            let text = format!("memory for {} is not aligned", T::DTYPE.name);
            return Err(GpuError::Driver { call: "cuMemAllocManaged", text });
        }
        DeviceBuffer::of(device, memory, len).zeroed(device)
    }

    /// The elements of a [unified](DeviceBuffer::unified) buffer, in place, when the device has done all that
    /// uses them, whichever rank put it into its stream.
    ///
    /// Errors: [`GpuError::NotUnified`]; what went wrong on the device since.
    pub fn host(&self) -> Result<&[T], GpuError> {
        let place = self.place_on_host(&self.device()?)?;
        // SAFETY: so many values of `T` are there, as only values of it come into the buffer, and the
        // host may read them whatever the device does (`DeviceMemory::unified`). Nothing writes them as
        // long as the buffer is borrowed: what a device had to write is done, and who wants it to write
        // more borrows the buffer alone (for kernels, by the contract of `as_device_ptr`).
        Ok(unsafe { std::slice::from_raw_parts(place, self.len()) })
    }

    /// The same, to be written. What is put on the device later uses what the host has written.
    ///
    /// Errors: as [`DeviceBuffer::host`].
    pub fn host_mut(&mut self) -> Result<&mut [T], GpuError> {
        let device = self.device_alone()?;
        let place = self.place_on_host(&device)?;
        // SAFETY: as in `host`; the borrow is unique, so that nothing else is put on the device that
        // uses the buffer.
        Ok(unsafe { std::slice::from_raw_parts_mut(place, self.len()) })
    }

    /// Where the host uses the elements, when the device, in whose stream it comes after all that uses
    /// them, has done that.
    fn place_on_host(&self, device: &Device) -> Result<*mut T, GpuError> {
        let DeviceMemory::Unified(_) = self.memory() else { return Err(GpuError::NotUnified) };
        device.synchronize()?;
        Ok(self.memory().address() as *mut T)
    }
}
