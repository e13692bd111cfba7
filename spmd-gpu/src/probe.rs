//! What this machine has.

use std::fmt;

use crate::device::Device;
use crate::driver;
use crate::error::GpuError;
use crate::nccl::Table;
use crate::nvrtc::Nvrtc;

/// A library that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Found {
    /// Its version: of the driver, of CUDA as it knows it.
    pub version: (i32, i32),
    /// Where it lies, or the name by which the system found it.
    pub path: String,
}

/// What [`probe`] has found. `{}` prints a line for each part.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Probe {
    /// The driver.
    pub driver: Result<Found, GpuError>,
    /// The devices that it shows: name and bytes of memory, or why one cannot be used.
    pub devices: Vec<Result<(String, usize), GpuError>>,
    /// The compiler of kernels.
    pub nvrtc: Result<Found, GpuError>,
    /// NVIDIA's library for ranks on several GPUs.
    pub nccl: Result<Found, GpuError>,
}

impl Probe {
    /// Whether ranks can use a device here; only ranks on several GPUs need NCCL.
    ///
    /// Errors: the first thing that is missing.
    pub fn ready(&self) -> Result<(), GpuError> {
        self.driver.as_ref().map_err(GpuError::clone)?;
        let none = Err(GpuError::NoDevice { ordinal: 0, count: 0 });
        let usable = self.devices.iter().find(|device| device.is_ok());
        usable
            .or(self.devices.first())
            .map_or(none, |it| it.as_ref().map(drop).map_err(GpuError::clone))?;
        self.nvrtc.as_ref().map_err(GpuError::clone)?;
        Ok(())
    }
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |name: &str, found: &Result<Found, GpuError>| match found {
            Ok(Found { version: (major, minor), path }) => {
                writeln!(f, "{name}: {major}.{minor} ({path})")
            }
            Err(error) => writeln!(f, "{name}: {error}"),
        };
        line("CUDA driver", &self.driver)?;
        line("NVRTC", &self.nvrtc)?;
        line("NCCL", &self.nccl)?;
        for (ordinal, device) in self.devices.iter().enumerate() {
            match device {
                Ok((name, bytes)) => writeln!(f, "device {ordinal}: {name}, {} GiB", bytes >> 30)?,
                Err(error) => writeln!(f, "device {ordinal}: {error}")?,
            }
        }
        Ok(())
    }
}

/// Looks for a driver, devices, and what compiles kernels. It fails for nothing: each part says what
/// it found or what is missing.
///
/// ```
/// let here = spmd::gpu::probe();
/// println!("{here}");
/// if let Err(missing) = here.ready() {
///     println!("no GPU: {missing}");
/// }
/// ```
pub fn probe() -> Probe {
    let path = || "libcuda.so".to_owned();
    let driver = driver::driver_version().map(|version| Found { version, path: path() });
    let devices = (0..driver::count().unwrap_or(0)).map(|ordinal| {
        let device = Device::open(ordinal)?;
        Ok((device.name()?, device.memory()?.1))
    });
    let devices = devices.collect();
    let nvrtc =
        Nvrtc::get().map(|nvrtc| Found { version: nvrtc.version(), path: nvrtc.path.clone() });
    let nccl = Table::get().map(|nccl| Found { version: nccl.version(), path: nccl.path.clone() });
    Probe { driver, devices, nvrtc, nccl }
}
