//! Waits for a device: whoever waits looks after what other ranks must join.

use std::sync::atomic::Ordering::*;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use cudarc::driver::CudaEvent;
use spmd_core::Result as Outcome;
use spmd_core::internal::Health;

use super::{Device, Inner};
use crate::driver::Checked;
use crate::error::GpuError;
use crate::joint::Joint;
use crate::later;

/// The host looks so often after ranks that a device waits for.
const LOOK_EACH: Duration = Duration::from_millis(2);

impl Device {
    /// Waits until the device has done all that this rank has put into its stream.
    ///
    /// Errors: what a kernel did wrong; ranks that the device waits for have failed.
    pub fn synchronize(&self) -> Result<(), GpuError> {
        // After that, what is left there waits for nobody. Also where it fails, it may use memory of whoever waits here.
        let settled = self.settle();
        settled.and(self.inner.stream.synchronize().checked("cuStreamSynchronize"))
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
        let joint = self.inner.joint();
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
        let over = || {
            is_over().inspect_err(|_| {
                self.inner.is_lost(&joint, tells);
            })
        };
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
        for work in self.inner.joint() {
            if work.check(Duration::ZERO).is_err() {
                let mut all = self.inner.joint.lock();
                all.retain(|it| !std::ptr::addr_eq(it.as_ptr(), Arc::as_ptr(&work)));
            }
        }
    }

    /// What has the rank's waits for others look after it: as it may be lost meanwhile, and with it what others
    /// wait for.
    pub(crate) fn health(&self) -> Arc<dyn Health> {
        self.inner.clone()
    }

    /// Has this rank's stream go on when what `other`'s holds now is done, and who waits for it look after
    /// what that waits for.
    pub(crate) fn follow(&self, other: &Device) -> Result<(), GpuError> {
        let all = other.stream().record_event(None).checked("cuEventRecord")?;
        other.inner.joint().iter().for_each(|work| self.waits_for(work));
        let untold = other.inner.untold.lock().clone();
        untold.into_iter().for_each(|error| self.tell_later(error));
        self.stream().wait(&all).checked("cuStreamWaitEvent")
    }
}

impl Inner {
    fn joint(&self) -> Vec<Arc<dyn Joint>> {
        let mut all = self.joint.lock();
        all.retain(|it| it.strong_count() > 0);
        all.iter().filter_map(Weak::upgrade).collect()
    }

    /// Has those know it who wait for it. Whether the program had been told before; `tells`: it is now.
    fn is_lost(&self, joint: &[Arc<dyn Joint>], tells: bool) -> bool {
        joint.iter().for_each(|it| it.is_lost(self.ordinal));
        self.told_lost.fetch_or(tells, Relaxed)
    }
}

impl Health for Inner {
    /// Once is enough: who is told may go on without it.
    fn check(&self) -> Outcome<()> {
        let joint = self.joint();
        if joint.is_empty() {
            return Ok(());
        }
        match self.is_idle() {
            Err(error) if !self.is_lost(&joint, true) => Err(error.into()),
            _ => Ok(()),
        }
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
