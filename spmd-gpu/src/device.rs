//! A device, as a rank uses it.

use std::cell::RefCell;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use cudarc::driver::{CudaContext, CudaEvent, CudaStream, sys};
use parking_lot::Mutex;
use spmd_core::{Comm, rank_local};

use crate::driver::{self, Checked};
use crate::error::GpuError;
use crate::later;

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
}

/// Work on a device that other ranks must join, which may fail to.
pub(crate) trait Joint: Send + Sync {
    /// Looks whether they will, after the host has waited so long. Otherwise it ends the work, and what
    /// comes after it in the stream goes on.
    ///
    /// Errors: why they will not.
    fn check(&self, waited: Duration) -> Result<(), GpuError>;

    /// Ends the work, as ranks are known not to join it.
    fn end(&self);

    /// The device of this number does nothing any more, nor what others wait for.
    fn is_lost(&self, ordinal: u32);

    /// Whether the program was told of what [`check`](Joint::check) says.
    fn was_told(&self) -> &AtomicBool;
}

/// The host looks so often after ranks that a device waits for.
const LOOK_EACH: Duration = Duration::from_millis(2);

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
        let (opens, joint, untold) = Default::default();
        let inner = Inner { ordinal, context, stream, ready, done, ended, opens, joint, untold };
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

    /// Waits until the device has done all that this rank has put into its stream.
    ///
    /// Errors: what a kernel did wrong; ranks that the device waits for have failed.
    pub fn synchronize(&self) -> Result<(), GpuError> {
        // After that, what is left there waits for nobody.
        self.settle()?;
        self.inner.stream.synchronize().checked("cuStreamSynchronize")
    }

    /// Waits until the device has done what other ranks must join of what this rank has put into its stream:
    /// before functions of the driver that may wait for the stream, and look after no rank meanwhile (copies
    /// from and to memory that is not pinned, memory that no pool gives, modules).
    ///
    /// Errors: as [`Device::synchronize`].
    pub(crate) fn settle(&self) -> Result<(), GpuError> {
        self.look_after(true, || self.is_idle())
    }

    /// The same where nobody can be told what fails: who waits next is.
    pub(crate) fn settle_untold(&self) {
        if let Err(error) = self.look_after(false, || self.is_idle()) {
            self.tell_later(error);
        }
    }

    /// As [`Device::synchronize`], where nobody can be told what fails: who waits next is.
    pub(crate) fn synchronize_untold(&self) {
        self.settle_untold();
        // One that is lost does nothing any more, and says so again.
        let _ = self.inner.stream.synchronize();
    }

    /// The same, and whether all was well that nobody was told of.
    pub(crate) fn has_settled(&self) -> bool {
        self.synchronize_untold();
        self.inner.untold.lock().is_none()
    }

    /// Waits until the device has done all that is in this rank's stream, of which the results do not matter: who waits
    /// for these is told what has failed.
    ///
    /// Errors: what a kernel did wrong.
    pub(crate) fn flush(&self) -> Result<(), GpuError> {
        self.settle_untold();
        self.inner.stream.synchronize().checked("cuStreamSynchronize")
    }

    /// Has who waits next told of a failure.
    pub(crate) fn tell_later(&self, error: GpuError) {
        self.inner.untold.lock().get_or_insert(error);
    }

    /// Waits until the device has come to an event of this rank's stream.
    ///
    /// Errors: as [`Device::synchronize`].
    pub(crate) fn wait_for(&self, event: &CudaEvent) -> Result<(), GpuError> {
        self.look_after(true, || event.try_is_complete().checked("cuEventQuery"))?;
        event.synchronize().checked("cuEventSynchronize")
    }

    /// Waits until something is over in the stream, and looks meanwhile after the work there that other ranks
    /// must join. Where there is none, it does not wait. Whether the program is told what this gives.
    ///
    /// Errors: ranks that the device waits for have failed; what `is_over` gives; what was to be told.
    pub(crate) fn look_after(
        &self,
        tells: bool,
        is_over: impl Fn() -> Result<bool, GpuError>,
    ) -> Result<(), GpuError> {
        let joint = self.joint();
        let untold = if tells { self.inner.untold.lock().take() } else { None };
        let mut failed = untold.map_or(Ok(()), Err).and(all_met(&joint));
        if joint.is_empty() {
            return failed;
        }
        let (start, mut next) = (Instant::now(), LOOK_EACH);
        let look = |failed: &mut Result<(), GpuError>| {
            let waited = start.elapsed();
            for work in &joint {
                let Err(error) = work.check(waited) else { continue };
                let known = work.was_told();
                if failed.is_ok() && (tells || !known.load(Relaxed)) {
                    *failed = Err(error);
                }
                known.fetch_or(tells, Relaxed);
            }
            waited
        };
        let over =
            || is_over().inspect_err(|_| joint.iter().for_each(|it| it.is_lost(self.ordinal())));
        // Also when work was ended: what comes after it in the stream uses memory of whoever waits here.
        while !over()? {
            if start.elapsed() >= next {
                next = look(&mut failed) + LOOK_EACH;
                thread::sleep(Duration::from_micros(50));
            }
            thread::yield_now();
        }
        // What was ended without other ranks is no result.
        look(&mut failed);
        failed
    }

    /// Whether buffers are made of memory that other processes can open.
    pub(crate) fn opens(&self) -> bool {
        self.inner.opens.load(Relaxed)
    }

    /// Has the host look after work while it waits for the device.
    pub(crate) fn waits_for(&self, work: &Arc<dyn Joint>) {
        let mut all = self.inner.joint.lock();
        if !all.iter().any(|it| std::ptr::addr_eq(it.as_ptr(), Arc::as_ptr(work))) {
            all.push(Arc::downgrade(work));
        }
    }

    /// What has failed is no matter of who waits from now on, with a new communicator of ranks that are left: what
    /// they have told the device before is over.
    pub(crate) fn forget_failed(&self) {
        self.settle_untold();
        for work in self.joint() {
            if work.check(Duration::ZERO).is_err() {
                let mut all = self.inner.joint.lock();
                all.retain(|it| !std::ptr::addr_eq(it.as_ptr(), Arc::as_ptr(&work)));
            }
        }
    }

    fn joint(&self) -> Vec<Arc<dyn Joint>> {
        let mut all = self.inner.joint.lock();
        all.retain(|it| it.strong_count() > 0);
        all.iter().filter_map(Weak::upgrade).collect()
    }

    /// Whether the device has done all that is in this rank's stream.
    pub(crate) fn is_idle(&self) -> Result<bool, GpuError> {
        self.inner.context.bind_to_thread().checked("cuCtxSetCurrent")?;
        // SAFETY: a stream of this context, which lives as long as `self`.
        match unsafe { sys::cuStreamQuery(self.inner.stream.cu_stream()) } {
            sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            code => code.result().checked("cuStreamQuery").map(|()| true),
        }
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

    /// Has this rank's stream go on when what `other`'s holds now is done, and who waits for it look after
    /// what that waits for.
    pub(crate) fn follow(&self, other: &Device) -> Result<(), GpuError> {
        let all = other.stream().record_event(None).checked("cuEventRecord")?;
        other.joint().iter().for_each(|work| self.waits_for(work));
        let untold = other.inner.untold.lock().clone();
        untold.into_iter().for_each(|error| self.tell_later(error));
        self.stream().wait(&all).checked("cuStreamWaitEvent")
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

/// Waits until the ranks have met in what this one has had its device do, where they had not before.
///
/// Errors: they do not. Then nothing waits for them any more.
fn all_met(joint: &[Arc<dyn Joint>]) -> Result<(), GpuError> {
    later::end_all().map_err(|error| {
        joint.iter().for_each(|work| work.end());
        GpuError::Abandoned { text: error.to_string() }
    })
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
