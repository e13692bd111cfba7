//! Vectors that tasks use on the host and on devices.

use std::time::{Duration, Instant};

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

    fn measure(gpu: u32) -> Option<[(usize, Duration); 2]> {
        let device = Device::open(gpu).ok()?;
        let copy = |bytes: usize| {
            let (host, start) = (vec![0u8; bytes], Instant::now());
            device.buffer_from(&host).ok()?.to_vec().ok()?;
            Some((bytes, start.elapsed() / 2))
        };
        // The first one loads what all copies use.
        copy(MEASURED[0])?;
        Some([copy(MEASURED[0])?, copy(MEASURED[1])?])
    }
}

/// The lengths of copies that are measured.
const MEASURED: [usize; 2] = [4 << 10, 1 << 20];
