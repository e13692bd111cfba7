//! Memory of the host that stays in its place, which a device reads and writes by itself.

use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use cudarc::driver::{CudaContext, DriverError, result, sys};
use spmd_core::Element;
use spmd_core::buffer::{Buffer, BufferMut, View, ViewMut};

use crate::buffer::bytes_of;
use crate::device::Device;
use crate::driver::{self, Checked};
use crate::error::GpuError;

/// Such memory, of so many bytes that hold nothing yet.
pub(crate) struct Pinned {
    start: *mut c_void,
    context: Arc<CudaContext>,
}

// SAFETY: memory of its own, which any thread may use and free.
unsafe impl Send for Pinned {}

// SAFETY: as above; it gives its address alone.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// Errors: the system has not so much that can be pinned.
    pub(crate) fn new(device: &Device, bytes: usize) -> Result<Pinned, GpuError> {
        device.settle()?;
        let context = device.context().clone();
        context.bind_to_thread().checked("cuCtxSetCurrent")?;
        // Not write-combined: the host reads it, too.
        // SAFETY: there is a context.
        let start = unsafe { result::malloc_host(bytes, sys::CU_MEMHOSTALLOC_PORTABLE) };
        let start = start.map_err(|DriverError(code)| match code {
            sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                GpuError::OutOfPinnedMemory { asked: bytes, text: driver::text_of(code) }
            }
            _ => driver::of_code(code, "cuMemHostAlloc"),
        })?;
        Ok(Pinned { start, context })
    }

    /// Where it starts.
    pub(crate) fn start(&self) -> *mut c_void {
        self.start
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if self.context.bind_to_thread().is_ok() {
            // SAFETY: the driver gave it, and whoever drops it has waited for the copies that use it.
            let _ = unsafe { result::free_host(self.start) };
        }
    }
}

/// Elements on the host that a device copies by itself: [`DeviceBuffer::copy_from`], [`copy_to`] and all calls
/// take it as the slice that it is, and copies between it and a device go at the rate of the link between
/// them. Copies of other slices go through memory of the driver's.
///
/// It is memory that the system cannot move or swap: take what is copied often, not all.
///
/// [`DeviceBuffer::copy_from`]: crate::DeviceBuffer::copy_from
/// [`copy_to`]: crate::DeviceBuffer::copy_to
pub struct PinnedBuffer<T> {
    memory: Pinned,
    len: usize,
    elements: PhantomData<T>,
}

impl Device {
    /// A [`PinnedBuffer`] of `len` elements whose bytes are all zero, for copies to and from devices of this
    /// process.
    ///
    /// Errors: the system has not so much memory that can be pinned; zero is no value of `T`.
    ///
    /// ```
    /// # fn main() -> Result<(), spmd::gpu::GpuError> {
    /// use spmd::prelude::*;
    /// use spmd::gpu::{Device, probe};
    ///
    /// if probe().ready().is_ok() {
    ///     let device = Device::open(0)?;
    ///     let mut host = device.pinned::<f32>(1000)?;
    ///     host.fill(1.5);
    ///     let mut numbers = device.buffer_from(&host)?;
    ///     host.fill(2.5);
    ///     numbers.copy_from(&host)?;
    ///     numbers.copy_to(&mut host)?;
    ///     assert_eq!(host[999], 2.5);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn pinned<T: Element>(&self, len: usize) -> Result<PinnedBuffer<T>, GpuError> {
        if !T::DTYPE.zero_is_value() {
            return Err(GpuError::ZeroIsNoValue { element: T::DTYPE.to_string() });
        }
        let bytes = bytes_of::<T>(len);
        let memory = Pinned::new(self, bytes)?;
        if !memory.start().cast::<T>().is_aligned() {
            let text = format!("memory for {} is not aligned", T::DTYPE.name);
            return Err(GpuError::Driver { call: "cuMemHostAlloc", text });
        }
        // SAFETY: it is new, and has so many bytes.
        unsafe { memory.start().cast::<u8>().write_bytes(0, bytes) };
        Ok(PinnedBuffer { memory, len, elements: PhantomData })
    }
}

impl<T: Element> Deref for PinnedBuffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: so many values of `T` are there, aligned, as long as `self` lives: zeros at first, which are
        // values of it (`Device::pinned`). Copies of this crate that write there borrow it alone, and are over
        // when they return.
        unsafe { std::slice::from_raw_parts(self.memory.start().cast(), self.len) }
    }
}

impl<T: Element> DerefMut for PinnedBuffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; the borrow is unique.
        unsafe { std::slice::from_raw_parts_mut(self.memory.start().cast(), self.len) }
    }
}

// SAFETY: the view is of the slice, always the same one.
unsafe impl<T: Element> Buffer for PinnedBuffer<T> {
    type Elem = T;

    fn erased(&self) -> View<'_> {
        View::new::<T>(self)
    }
}

// SAFETY: the same slice.
unsafe impl<T: Element> BufferMut for PinnedBuffer<T> {
    fn erased_mut(&mut self) -> ViewMut<'_> {
        ViewMut::new::<T>(self)
    }
}

impl<T: Element> fmt::Debug for PinnedBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("PinnedBuffer");
        fields.field("len", &self.len).field("dtype", &T::DTYPE.name).finish()
    }
}
