//! GPUs: buffers in the memory of a device, and the collectives of `spmd` on them.
//!
//! A rank asks for its [`Device`] with [`OnDevice::device`], makes [`DeviceBuffer`]s there, and gives
//! them to the same calls as any other buffer. Each rank has one stream on each device that it uses,
//! and all work on its buffers is in the order of that stream: a call on device buffers returns when
//! all ranks have joined it, not when the device is done. To read a buffer on the host waits for that.
//!
//! What carries the calls out is a plane: [`Nccl`], for ranks with a GPU each, by NVIDIA's library;
//! [`Local`], for ranks of one process on one device, whose kernels fold all ranks' elements at once, in
//! the canonical order of `spmd`, so that the bits are those of the host; [`Aware`], for processes that an
//! MPI library joins which takes memory of devices; or [`Staged`], for all others, by way of the host. A
//! program that names several, as all that [`planes`] gives, has its calls carried out by the first that
//! can. Messages, windows and calls that give a `Vec` take device buffers by way of the host in any case.
//!
//! ```
//! use spmd::prelude::*;
//! use spmd::gpu::{Local, OnDevice, probe};
//!
//! fn main() -> Result<()> {
//!     if probe().ready().is_err() {
//!         return Ok(()); // this machine has no GPU
//!     }
//!     Spmd::new(4).threads().plane(Local::new()).run(|ctx| {
//!         let device = ctx.device()?;
//!         let mine = device.buffer_from(&[ctx.rank() as f32; 1000])?;
//!         let mut sums = device.zeros::<f32>(1000)?;
//!         ctx.allreduce(&mine, &mut sums, Sum)?;
//!         assert_eq!(sums.to_vec()?, [6.0; 1000]);
//!         Ok(())
//!     })?;
//!     Ok(())
//! }
//! ```
//!
//! Nothing of CUDA is needed to build a program. What a machine lacks is a [`GpuError`] that says
//! what was looked for, where, and what to do; [`probe`] looks for everything and never fails.

mod aware;
mod buffer;
mod calls;
mod compile;
mod copies;
mod device;
mod driver;
mod error;
mod exports;
mod joint;
mod later;
mod lent;
mod library;
mod listed;
mod local;
mod memory;
mod mirror;
mod nccl;
mod nvrtc;
mod peers;
mod pieces;
mod pinned;
mod probe;
mod scratch;
mod stage;
mod staged;
mod unified;
mod view;

pub use aware::Aware;
pub use buffer::DeviceBuffer;
/// The interface of the driver, for kernels of a program's own.
pub use cudarc;
pub use device::{Device, OnDevice};
pub use error::GpuError;
pub use lent::Lent;
pub use listed::{Listed, devices};
pub use local::Local;
pub use nccl::Nccl;
pub use pinned::PinnedBuffer;
pub use probe::{Found, Probe, probe};
pub use staged::Staged;
pub use view::{DeviceView, DeviceViewMut};

/// All planes of this crate, the fastest for the ranks of a communicator first: for
/// `spmd::run_on_planes`, or each for [`Spmd::plane`](spmd_core::Spmd::plane).
pub fn planes() -> [std::sync::Arc<dyn spmd_core::internal::Plane>; 4] {
    [Nccl::new(), Local::new(), Aware::new(), Staged::new()]
}
