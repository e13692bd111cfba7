//! Elements of a device, on the host for as long as a message needs them there.

use std::sync::OnceLock;

use super::place::Place;
use super::view::{View, ViewMut};
use crate::error::{Error, Result};

/// How bytes of a device are copied to the host and back. Both wait for the device.
#[derive(Clone, Copy, Debug)]
pub struct DeviceCopies {
    /// From a device of this number to the host.
    pub to_host: unsafe fn(u32, *const u8, *mut u8, usize) -> Result<()>,
    /// From the host to a device.
    pub to_device: unsafe fn(u32, *const u8, *mut u8, usize) -> Result<()>,
}

static COPIES: OnceLock<DeviceCopies> = OnceLock::new();

/// Says how all elements on devices are copied, the first time.
///
/// # Safety
/// They copy so many bytes between places that may be read and written, whatever the thread.
pub unsafe fn set_device_copies(copies: DeviceCopies) {
    let _ = COPIES.set(copies);
}

/// Room on the host for the elements of a buffer.
pub(crate) struct Stage<V> {
    device: u32,
    copies: &'static DeviceCopies,
    /// Aligned for every element.
    memory: Vec<u128>,
    of: V,
}

impl<V> Stage<V> {
    /// Errors: `unknown`, where nobody knows how to copy what is there; the host has no room.
    fn of(of: V, place: Place, bytes: usize, unknown: &dyn Fn() -> Error) -> Result<Stage<V>> {
        let (Place::Device(device), Some(copies)) = (place, COPIES.get()) else {
            return Err(unknown());
        };
        let (mut memory, words) = (Vec::new(), bytes.div_ceil(size_of::<u128>()));
        memory.try_reserve_exact(words).map_err(|error| {
            Error::unavailable(
                format!("memory of the host for {bytes} bytes of a device"),
                error.to_string(),
                "send it in parts".into(),
            )
        })?;
        memory.resize(words, 0);
        Ok(Stage { device, copies, memory, of })
    }
}

impl<'a> Stage<View<'a>> {
    /// With the elements of a view.
    ///
    /// Errors: `unknown`, where nobody knows how to copy them; the device fails.
    pub(crate) fn filled(of: View<'a>, unknown: &dyn Fn() -> Error) -> Result<Stage<View<'a>>> {
        let mut stage = Stage::of(of, of.place(), of.bytes(), unknown)?;
        let into = stage.memory.as_mut_ptr().cast();
        // SAFETY: the device holds so many bytes there, one after another, as long as the view lives,
        // and the memory is as long.
        unsafe { (stage.copies.to_host)(stage.device, of.base(), into, of.bytes())? };
        Ok(stage)
    }

    pub(crate) fn view(&self) -> View<'_> {
        // SAFETY: the memory holds the elements of the view.
        unsafe { self.of.elsewhere(self.memory.as_ptr().cast()) }
    }
}

impl<'a, 'b> Stage<&'a mut ViewMut<'b>> {
    /// Room for what a view has room for.
    ///
    /// Errors: `unknown`, where nobody knows how to copy it.
    pub(crate) fn room(of: &'a mut ViewMut<'b>, unknown: &dyn Fn() -> Error) -> Result<Self> {
        let (place, bytes) = (of.place(), of.bytes());
        Stage::of(of, place, bytes, unknown)
    }

    /// Has `fill` write the first elements, and copies as many as it says to the device.
    ///
    /// Errors: those of `fill`; the device fails.
    pub(crate) fn fill<R>(
        mut self,
        fill: impl FnOnce(&mut ViewMut<'_>) -> Result<R>,
        count: impl FnOnce(&R) -> usize,
    ) -> Result<R> {
        let start = self.memory.as_mut_ptr().cast();
        // SAFETY: the memory has room for the elements, and is this stage's. All its bytes are zero,
        // which nobody reads as elements.
        let mut view = unsafe { self.of.elsewhere(start) };
        let filled = fill(&mut view)?;
        let bytes = count(&filled).min(self.of.len()) * self.of.dtype().size as usize;
        // SAFETY: the device has room for them there, borrowed uniquely as long as the view lives, and
        // they are values, which were just written.
        unsafe { (self.copies.to_device)(self.device, start, self.of.base_mut(), bytes)? };
        Ok(filled)
    }
}
