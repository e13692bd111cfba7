//! The devices of this machine, as a launcher tells them apart.

use std::fmt::Write;

use cudarc::driver::{result, sys};

use crate::driver::{self, Checked};
use crate::error::GpuError;

/// A device that the driver shows. See [`devices`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Listed {
    /// What it is called.
    pub name: String,
    /// Bytes of memory.
    pub memory: usize,
    /// By what `CUDA_VISIBLE_DEVICES` names it on whatever process: `GPU-` or `MIG-` and 32 digits.
    pub uuid: String,
    /// Its place on the bus, as below `/sys/bus/pci/devices`.
    pub pci: String,
}

/// The devices that this process sees, in the driver's order. None of them is opened: others may use
/// them alone.
///
/// Errors: there is no driver, or it cannot start.
///
/// ```
/// match spmd::gpu::devices() {
///     Ok(devices) => devices.iter().for_each(|it| println!("{} ({})", it.name, it.uuid)),
///     Err(missing) => println!("no GPU: {missing}"),
/// }
/// ```
pub fn devices() -> Result<Vec<Listed>, GpuError> {
    (0..driver::count()?).map(listed).collect()
}

fn listed(ordinal: u32) -> Result<Listed, GpuError> {
    use sys::CUdevice_attribute::*;
    let device = result::device::get(ordinal as i32).checked("cuDeviceGet")?;
    let name = result::device::get_name(device).checked("cuDeviceGetName")?;
    // SAFETY: the driver has just given the device.
    let memory = unsafe { result::device::total_mem(device) }.checked("cuDeviceTotalMem")?;
    let attribute = |of| driver::attribute(device, of);
    let pci = format!(
        "{:04x}:{:02x}:{:02x}.0",
        attribute(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)?,
        attribute(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)?,
        attribute(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)?,
    );
    let kind = if name.contains(" MIG ") { "MIG" } else { "GPU" };
    let uuid = uuid(kind, identity(device)?);
    Ok(Listed { name, memory, uuid, pci })
}

/// The UUID of a device, or of a part of one.
pub(crate) fn identity(device: sys::CUdevice) -> Result<[u8; 16], GpuError> {
    let mut uuid = sys::CUuuid { bytes: [0; 16] };
    // SAFETY: it writes one number of 16 bytes.
    unsafe { sys::cuDeviceGetUuid_v2(&mut uuid, device) }.result().checked("cuDeviceGetUuid")?;
    Ok(uuid.bytes.map(|byte| byte as u8))
}

/// As `nvidia-smi -L` writes it.
fn uuid(kind: &str, bytes: [u8; 16]) -> String {
    let mut text = String::from(kind);
    for (index, byte) in bytes.iter().enumerate() {
        if [0, 4, 6, 8, 10].contains(&index) {
            text.push('-');
        }
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_are_written_as_the_driver_reads_them() {
        let bytes = std::array::from_fn(|index| (index * 17) as u8);
        assert_eq!(uuid("GPU", bytes), "GPU-00112233-4455-6677-8899-aabbccddeeff");
    }
}
