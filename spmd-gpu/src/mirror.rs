//! Vectors that tasks use on the host and on devices.

use spmd_core::{Element, Mirror, Result};

use crate::buffer::DeviceBuffer;
use crate::device::Device;

/// For `Data::placed::<DeviceBuffer<T>>(vec)`.
impl<T: Element> Mirror<Vec<T>> for DeviceBuffer<T> {
    fn to_gpu(host: &Vec<T>, gpu: u32) -> Result<DeviceBuffer<T>> {
        Ok(Device::open(gpu)?.buffer_from(host)?)
    }

    fn to_host(&self) -> Result<Vec<T>> {
        Ok(self.to_vec()?)
    }

    fn bytes(host: &Vec<T>) -> usize {
        size_of_val(host.as_slice())
    }
}
