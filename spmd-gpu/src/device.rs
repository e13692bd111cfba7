//! A device, as a rank uses it.

use std::cell::RefCell;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, Weak};

use cudarc::driver::{CudaContext, CudaEvent, CudaStream, sys};
use parking_lot::Mutex;
use spmd_core::{Comm, rank_local};

use crate::driver::{self, Checked};
use crate::error::GpuError;
use crate::joint::Joint;

mod waits;

/// A device, with this rank's stream on it. Clones are the same device and stream.
///
/// ```
/// # fn main() -> Result<(), spmd::gpu::GpuError> {
/// use spmd::prelude::*;
/// use spmd::gpu::{Device, probe};
///
/// if probe().ready().is_ok() {
///     let device = Device::open(0)?;
///     let mut numbers = device.buffer_from(&[1, 2, 3])?;
///     assert_eq!(numbers.to_vec()?, [1, 2, 3]);
///     numbers.copy_from(&[4, 5, 6])?;
///     assert_eq!(numbers.to_vec()?, [4, 5, 6]);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Device {
    inner: Arc<Inner>,
}

struct Inner {
    ordinal: u32,
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    /// That what this rank has put into its stream before a call is done.
    ready: CudaEvent,
    /// That what this rank has done in a call for all ranks is.
    done: CudaEvent,
    /// Whether its rank has ended, which puts nothing into the stream any more.
    ended: AtomicBool,
    /// Whether other processes may open the memory of its buffers.
    opens: AtomicBool,
    /// What in the stream may wait for other ranks.
    joint: Mutex<Vec<Weak<dyn Joint>>>,
    /// What has failed while nobody waited who could be told.
    untold: Mutex<Option<GpuError>>,
    /// Whether the program was told that it is lost.
    told_lost: AtomicBool,
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("ordinal", &self.inner.ordinal).finish_non_exhaustive()
    }
}

/// Two are equal that are the same device and stream.
impl PartialEq for Device {
    fn eq(&self, other: &Device) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

rank_local! {
    /// The devices that this rank has opened.
    static OPENED: Opened = Opened::default();
}

#[derive(Default)]
struct Opened(RefCell<Vec<Device>>);

impl Drop for Opened {
    fn drop(&mut self) {
        for device in self.0.get_mut().drain(..) {
            // Other processes may wait for what its stream holds.
            device.settle_untold();
            device.inner.ended.store(true, Release);
        }
    }
}

impl Device {
    /// This rank's handle of a device, numbered as the driver does: from 0 on among those that
    /// `CUDA_VISIBLE_DEVICES` shows. A rank has one stream on each device; a thread that is no rank
    /// has one of its own, too.
    ///
    /// Errors: there is no driver, no such device, or it cannot be used.
    pub fn open(ordinal: u32) -> Result<Device, GpuError> {
        let known =
            OPENED.with(|all| all.0.borrow().iter().find(|it| it.ordinal() == ordinal).cloned());
        if let Some(device) = known {
            return Ok(device);
        }
        let context = driver::context(ordinal)?;
        let stream = context.new_stream().checked("cuStreamCreate")?;
        let event = || context.new_event(None).checked("cuEventCreate");
        let (ready, done) = (event()?, event()?);
        let ended = AtomicBool::new(false);
        let (opens, joint, untold, told_lost) = Default::default();
        let inner =
            Inner { ordinal, context, stream, ready, done, ended, opens, joint, untold, told_lost };
        let device = Device { inner: Arc::new(inner) };
        OPENED.with(|all| all.0.borrow_mut().push(device.clone()));
        Ok(device)
    }

    /// How many devices this process sees.
    ///
    /// Errors: there is no driver, or it cannot start.
    pub fn count() -> Result<u32, GpuError> {
        driver::count()
    }

    /// The number by which it was opened.
    pub fn ordinal(&self) -> u32 {
        self.inner.ordinal
    }

    /// What it is called.
    pub fn name(&self) -> Result<String, GpuError> {
        self.inner.context.name().checked("cuDeviceGetName")
    }

    /// Bytes of memory: those that are free now, and all.
    pub fn memory(&self) -> Result<(usize, usize), GpuError> {
        self.inner.context.mem_get_info().checked("cuMemGetInfo")
    }

    /// This rank's stream, for kernels of the program's own: what is put there comes after what this
    /// rank's calls have put there, and before what later ones do.
    pub fn stream(&self) -> &Arc<CudaStream> {
        &self.inner.stream
    }

    /// Whether buffers are made of memory that other processes can open.
    pub(crate) fn opens(&self) -> bool {
        self.inner.opens.load(Relaxed)
    }

    /// Whether the device has done all that is in this rank's stream.
    ///
    /// Errors: what a kernel did wrong; the device is lost.
    pub(crate) fn is_idle(&self) -> Result<bool, GpuError> {
        self.inner.is_idle()
    }

    pub(crate) fn context(&self) -> &Arc<CudaContext> {
        &self.inner.context
    }

    pub(crate) fn ready(&self) -> &CudaEvent {
        &self.inner.ready
    }

    pub(crate) fn done(&self) -> &CudaEvent {
        &self.inner.done
    }

    /// Whether its rank has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.inner.ended.load(Acquire)
    }

    /// Its architecture: 90 is `sm_90`.
    pub(crate) fn architecture(&self) -> Result<u32, GpuError> {
        let capability = self.inner.context.compute_capability();
        let (major, minor) = capability.checked("cuDeviceGetAttribute")?;
        Ok((major * 10 + minor) as u32)
    }

    /// How many multiprocessors it has.
    pub(crate) fn multiprocessors(&self) -> Result<u32, GpuError> {
        let attribute = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
        let count = self.inner.context.attribute(attribute).checked("cuDeviceGetAttribute")?;
        Ok(count.max(1) as u32)
    }
}

impl Inner {
    fn is_idle(&self) -> Result<bool, GpuError> {
        self.context.bind_to_thread().checked("cuCtxSetCurrent")?;
        // SAFETY: a stream of this context, which lives as long as `self`.
        match unsafe { sys::cuStreamQuery(self.stream.cu_stream()) } {
            sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            code => code.result().checked("cuStreamQuery").map(|()| true),
        }
    }
}

/// What gives a rank its device.
pub trait OnDevice {
    /// The device of this rank, the same at each call and on each communicator: the ranks of a host take
    /// the devices that this process sees in turn. One rank calls it, without the others.
    ///
    /// Errors: as [`Device::open`].
    fn device(&self) -> Result<Device, GpuError>;
}

impl OnDevice for Comm {
    fn device(&self) -> Result<Device, GpuError> {
        let count = Device::count()?;
        if count == 0 {
            return Err(GpuError::NoDevice { ordinal: 0, count });
        }
        let device = Device::open((self.internals().place_on_host() % count as usize) as u32)?;
        device.inner.opens.store(self.internals().is_process(), Relaxed);
        Ok(device)
    }
}
