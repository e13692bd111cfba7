//! Elements in the memory of a device.

use std::fmt;
use std::marker::PhantomData;

use cudarc::driver::{result, sys};
use parking_lot::Mutex;
use spmd_core::Element;
use spmd_core::buffer::{Buffer, BufferMut, View, ViewMut};

use crate::copies;
use crate::device::Device;
use crate::driver::Checked;
use crate::error::GpuError;
use crate::memory::DeviceMemory;

/// Elements in the memory of a device, which the calls of `spmd` take as they take slices.
///
/// What is done with it is in the order of one stream, its rank's: a call that uses it returns before
/// the device is done, and reading it on the host waits for that. When it is given to another rank,
/// that one's stream goes on from there.
pub struct DeviceBuffer<T> {
    /// At least one byte, so that every buffer has an address.
    memory: DeviceMemory,
    len: usize,
    ordinal: u32,
    /// The stream in whose order the memory is freed, or another buffer's.
    maker: Device,
    /// The streams in which it was used since one of them used it alone: those of the ranks that have
    /// it, or a reference to it. At most one for each rank that lives, and some that have ended since.
    users: Mutex<Vec<Device>>,
    elements: PhantomData<T>,
}

impl<T: Element> fmt::Debug for DeviceBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("DeviceBuffer");
        fields
            .field("len", &self.len)
            .field("dtype", &T::DTYPE.name)
            .field("device", &self.ordinal);
        fields.finish()
    }
}

impl Device {
    /// A buffer with the elements of a slice. The copy is made before this returns.
    ///
    /// Errors: the device has no room; the driver refuses.
    pub fn buffer_from<T: Element>(&self, data: &[T]) -> Result<DeviceBuffer<T>, GpuError> {
        DeviceBuffer::from_slice(self, data)
    }

    /// A buffer of `len` elements whose bytes are all zero.
    ///
    /// Errors: as [`Device::buffer_from`]; zero is no value of `T`.
    pub fn zeros<T: Element>(&self, len: usize) -> Result<DeviceBuffer<T>, GpuError> {
        DeviceBuffer::zeros(self, len)
    }
}

impl<T: Element> DeviceBuffer<T> {
    fn from_slice(device: &Device, data: &[T]) -> Result<DeviceBuffer<T>, GpuError> {
        let mut buffer = DeviceBuffer::room(device, data.len())?;
        buffer.copy_from(data)?;
        Ok(buffer)
    }

    fn zeros(device: &Device, len: usize) -> Result<DeviceBuffer<T>, GpuError> {
        DeviceBuffer::room(device, len)?.zeroed(device)
    }

    /// Memory that holds nothing yet.
    fn room(device: &Device, len: usize) -> Result<DeviceBuffer<T>, GpuError> {
        Ok(DeviceBuffer::of(device, DeviceMemory::own(device, bytes_of::<T>(len))?, len))
    }

    /// A buffer of memory that holds nothing yet.
    pub(crate) fn of(device: &Device, memory: DeviceMemory, len: usize) -> DeviceBuffer<T> {
        copies::make_known();
        let (ordinal, maker) = (device.ordinal(), device.clone());
        let users = Mutex::new(vec![device.clone()]);
        DeviceBuffer { memory, len, ordinal, maker, users, elements: PhantomData }
    }

    /// The same with zeros, of a buffer that was just made.
    pub(crate) fn zeroed(self, device: &Device) -> Result<DeviceBuffer<T>, GpuError> {
        if !T::DTYPE.zero_is_value() {
            return Err(GpuError::ZeroIsNoValue { element: T::DTYPE.to_string() });
        }
        let (stream, bytes) = (device.stream().cu_stream(), self.memory.bytes());
        device.context().bind_to_thread().checked("cuCtxSetCurrent")?;
        // SAFETY: the buffer has so many bytes, and its stream is this one.
        unsafe { result::memset_d8_async(self.address(), 0, bytes, stream) }
            .checked("cuMemsetD8Async")?;
        Ok(self)
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The device, with the stream of the rank that calls this. What is put there from now on comes
    /// after all that was done with the buffer before.
    ///
    /// Errors: the device cannot be used from here.
    pub fn device(&self) -> Result<Device, GpuError> {
        let here = Device::open(self.ordinal)?;
        let mut users = self.users.lock();
        if **users != [here.clone()] {
            // Before their streams are looked at: a rank that ends after that may have put more into its own.
            let ended: Vec<Device> = users.iter().filter(|it| it.has_ended()).cloned().collect();
            users.iter().filter(|it| **it != here).try_for_each(|it| here.follow(it))?;
            // The others stay among them: who has a reference may go on there. What ended ranks have put
            // into theirs comes before what is put here.
            users.retain(|it| !ended.contains(it));
            if !users.contains(&here) {
                users.push(here.clone());
            }
        }
        Ok(here)
    }

    /// The same, for who has the buffer alone: nobody else goes on with it.
    pub(crate) fn device_alone(&mut self) -> Result<Device, GpuError> {
        let here = self.device()?;
        self.users.get_mut().retain(|it| *it == here);
        Ok(here)
    }

    /// The elements, when the device has done all that this rank has put into its stream before.
    ///
    /// Errors: what went wrong on the device since.
    pub fn to_vec(&self) -> Result<Vec<T>, GpuError> {
        let mut data = Vec::with_capacity(self.len);
        // SAFETY: the vector has room for as many bytes as the buffer has of elements, and the copy
        // is over when this returns.
        unsafe { self.read(data.as_mut_ptr())? };
        // SAFETY: all of them were just written: with values, as only values of `T` come into the
        // buffer.
        unsafe { data.set_len(self.len) };
        Ok(data)
    }

    /// Copies the elements to a slice of the same length, as [`to_vec`](DeviceBuffer::to_vec).
    ///
    /// Errors: [`GpuError::Length`]; what went wrong on the device since.
    pub fn copy_to(&self, data: &mut [T]) -> Result<(), GpuError> {
        self.check(data.len())?;
        // SAFETY: the slice has as many elements.
        unsafe { self.read(data.as_mut_ptr()) }
    }

    /// Copies the elements of a slice of the same length here, before this returns.
    ///
    /// Errors: [`GpuError::Length`]; what went wrong on the device since.
    pub fn copy_from(&mut self, data: &[T]) -> Result<(), GpuError> {
        self.check(data.len())?;
        let device = self.device_alone()?;
        let size = size_of_val(data);
        if size > 0 {
            device.settle_untold();
            let stream = device.stream().cu_stream();
            device.context().bind_to_thread().checked("cuCtxSetCurrent")?;
            // SAFETY: a slice of elements is as many initialised bytes, as elements have no padding.
            let bytes = unsafe { std::slice::from_raw_parts(data.as_ptr().cast::<u8>(), size) };
            // SAFETY: the buffer has room for so many bytes. They stay until `synchronize` below.
            unsafe { result::memcpy_htod_async(self.address(), bytes, stream) }
                .checked("cuMemcpyHtoDAsync")?;
        }
        device.flush()
    }

    /// Copies the elements of another buffer of the same length and device here, in the order of this
    /// rank's stream: it returns before that is done.
    ///
    /// Errors: [`GpuError::Length`]; the driver refuses.
    pub fn copy_from_buffer(&mut self, other: &DeviceBuffer<T>) -> Result<(), GpuError> {
        self.check(other.len)?;
        let (device, there) = (self.device_alone()?, other.device()?);
        if device != there {
            let (first, other) = (device.ordinal(), there.ordinal());
            return Err(GpuError::OtherDevice { call: "copy_from_buffer".into(), first, other });
        }
        let (from, into, bytes) = (other.address(), self.address(), self.len * size_of::<T>());
        // SAFETY: both buffers have so many bytes, apart from each other, and are freed in the order
        // of this stream.
        unsafe { device.copy(from, into, bytes) }
    }

    /// Where the elements are, for kernels of the program's own, which are put into the stream of
    /// [`device`](DeviceBuffer::device).
    ///
    /// # Safety
    /// What uses the address is in that stream, or ordered with it, and writes values of `T` alone,
    /// to this buffer's elements. It does not write where others read at the time, the host by
    /// [`host`](DeviceBuffer::host) among them.
    pub unsafe fn as_device_ptr(&self) -> u64 {
        self.address()
    }

    /// What it is made of.
    pub(crate) fn memory(&self) -> &DeviceMemory {
        &self.memory
    }

    fn address(&self) -> u64 {
        self.memory.address()
    }

    /// The device, and where its element of this number is, for calls of this rank.
    pub(crate) fn place(&self, element: usize) -> (u32, *mut T) {
        // Where that cannot be, the device is lost, and the call that needs the buffer says so.
        let _ = self.device();
        (self.ordinal, (self.address() as *mut T).wrapping_add(element))
    }

    fn check(&self, given: usize) -> Result<(), GpuError> {
        let expected = self.len;
        if given == expected { Ok(()) } else { Err(GpuError::Length { given, expected }) }
    }

    /// # Safety
    /// `into` has room for all elements.
    unsafe fn read(&self, into: *mut T) -> Result<(), GpuError> {
        let device = self.device()?;
        let size = self.len * size_of::<T>();
        if size > 0 {
            device.settle()?;
            let stream = device.stream().cu_stream();
            device.context().bind_to_thread().checked("cuCtxSetCurrent")?;
            // SAFETY: so many bytes may be written there (this function's contract), which stay
            // until `synchronize` below, and the buffer has as many.
            let copied = unsafe {
                sys::cuMemcpyDtoHAsync_v2(into.cast(), self.address(), size, stream).result()
            };
            copied.checked("cuMemcpyDtoHAsync")?;
        }
        device.synchronize()
    }
}

impl<T> Drop for DeviceBuffer<T> {
    fn drop(&mut self) {
        let users = self.users.get_mut().iter();
        match self.memory {
            DeviceMemory::Unified(_) => users.for_each(Device::synchronize_untold),
            // A failure here is one of the device, which its next call tells.
            _ => users.filter(|it| **it != self.maker).for_each(|it| drop(self.maker.follow(it))),
        }
    }
}

// SAFETY: the view is of the buffer's elements, always the same ones, of type `T`.
unsafe impl<T: Element> Buffer for DeviceBuffer<T> {
    type Elem = T;

    fn erased(&self) -> View<'_> {
        let (ordinal, place) = self.place(0);
        // SAFETY: the device holds so many values there as long as the buffer lives.
        unsafe { View::on_device(ordinal, place, self.len) }
    }
}

// SAFETY: the same elements, one after another.
unsafe impl<T: Element> BufferMut for DeviceBuffer<T> {
    fn erased_mut(&mut self) -> ViewMut<'_> {
        let _ = self.device_alone();
        // SAFETY: as above; the borrow is unique.
        unsafe { ViewMut::on_device(self.ordinal, self.address() as *mut T, self.len) }
    }
}

/// The bytes of so many elements, one at least; more than there are where that is no number.
pub(crate) fn bytes_of<T: Element>(len: usize) -> usize {
    // Of what is no element, as it has padding, there is no description, and so no buffer.
    len.saturating_mul(T::DTYPE.size as usize).max(1)
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;
    use crate::probe;

    /// Whether there is a device. Says so where there is none, which `SPMD_REQUIRE_GPU=1` makes a failure.
    fn gpu() -> bool {
        let Err(missing) = probe().ready() else { return true };
        let required = std::env::var("SPMD_REQUIRE_GPU").is_ok_and(|value| value == "1");
        assert!(!required, "SPMD_REQUIRE_GPU=1, and {missing}");
        println!("SKIPPED: {missing}");
        false
    }

    #[test]
    fn cleared_memory_holds_values_or_is_refused() {
        #[derive(Clone, Copy, Debug, PartialEq, Element)]
        #[spmd(crate = spmd_core)]
        #[repr(u8)]
        enum Grade {
            Good = 1,
            Bad = 2,
        }
        if !gpu() {
            return;
        }
        let device = Device::open(0).unwrap();
        let error = device.zeros::<Grade>(3).unwrap_err().to_string();
        assert!(error.contains("zero is no value of") && error.contains("Grade"), "{error}");
        let grades = device.buffer_from(&[Grade::Good, Grade::Bad]).unwrap();
        assert_eq!(grades.to_vec().unwrap(), [Grade::Good, Grade::Bad]);
    }

    /// A copy that its thread puts into its stream when another one has the buffer by now.
    #[test]
    fn who_writes_waits_for_a_late_reader() {
        if !gpu() {
            return;
        }
        let mut shared = Device::open(0).unwrap().buffer_from(&[7u64; 5000]).unwrap();
        let meet = Barrier::new(2);
        let copied = thread::scope(|scope| {
            let late = scope.spawn(|| {
                let device = shared.device()?;
                let copied = device.zeros::<u64>(5000)?;
                meet.wait();
                meet.wait();
                for _ in 0..2000 {
                    // SAFETY: both have so many bytes, apart from each other, and are freed in the
                    // order of this stream.
                    unsafe { device.copy(shared.address(), copied.address(), 40_000)? };
                }
                Ok::<_, GpuError>(copied)
            });
            meet.wait();
            shared.device().unwrap();
            meet.wait();
            late.join().unwrap().unwrap()
        });
        shared.copy_from(&[99; 5000]).unwrap();
        assert_eq!(copied.to_vec().unwrap(), [7; 5000]);
    }
}
