//! Elements of a device, on the host for as long as a call needs them there.

use std::sync::OnceLock;

use super::place::Place;
use super::view::View;
use super::view_mut::ViewMut;
use crate::element::DType;
use crate::error::{Error, Result};

/// How bytes of a device are copied to the host and back, in the order of the caller's stream. Both
/// wait for the device.
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

/// Whether what is there can be copied to the host.
pub(crate) fn is_reached(place: Place) -> bool {
    place == Place::Host || COPIES.get().is_some()
}

/// Memory of the host for the elements of a buffer on a device.
struct Stage {
    device: u32,
    copies: &'static DeviceCopies,
    dtype: &'static DType,
    bytes: usize,
    /// Its start does not move.
    memory: Vec<u128>,
}

impl Stage {
    /// Errors: `unknown`, where nobody knows how to copy what is there; the host has no room.
    fn of(view: &View<'_>, unknown: &dyn Fn() -> Error) -> Result<Stage> {
        let (Place::Device(device), Some(copies)) = (view.place(), COPIES.get()) else {
            return Err(unknown());
        };
        let (dtype, bytes, mut memory) = (view.dtype(), view.bytes(), Vec::new());
        let words = bytes.div_ceil(size_of::<u128>());
        memory.try_reserve_exact(words).map_err(|error| {
            Error::unavailable(
                format!("memory of the host for {bytes} bytes of a device"),
                error.to_string(),
                "send it in parts".into(),
            )
        })?;
        memory.resize(words, 0);
        Ok(Stage { device, copies, dtype, bytes, memory })
    }
}

/// Elements of a device, copied to the host.
#[expect(missing_debug_implementations, reason = "hidden: no user holds one")]
pub struct StagedView(Stage);

impl StagedView {
    /// Waits for the device.
    ///
    /// Errors: `unknown`, where nobody knows how to copy them; the host has no room; the device fails.
    pub(crate) fn new(of: &View<'_>, unknown: &dyn Fn() -> Error) -> Result<StagedView> {
        let mut stage = Stage::of(of, unknown)?;
        let into = stage.memory.as_mut_ptr().cast();
        // SAFETY: the device holds so many bytes there, one after another, as long as the view lives,
        // and the memory is as long.
        unsafe { (stage.copies.to_host)(stage.device, of.base(), into, stage.bytes)? };
        Ok(StagedView(stage))
    }

    pub(crate) fn erased(&self) -> View<'_> {
        let StagedView(stage) = self;
        // SAFETY: the memory holds so many bytes, which are elements of this type: a copy of some.
        unsafe { View::of_bytes(stage.dtype, stage.memory.as_ptr().cast(), stage.bytes) }
    }
}

/// Room on the host for elements that go to a device.
pub(crate) struct StagedRoom(Stage);

impl StagedRoom {
    /// As much as a view has.
    ///
    /// Errors: `unknown`, where nobody knows how to copy it; the host has no room.
    pub(crate) fn new(of: &ViewMut<'_>, unknown: &dyn Fn() -> Error) -> Result<StagedRoom> {
        Stage::of(&of.as_view(), unknown).map(StagedRoom)
    }

    pub(crate) fn erased_mut(&mut self) -> ViewMut<'_> {
        let StagedRoom(stage) = self;
        // SAFETY: the memory has room for so many bytes, and is this stage's. All its bytes are zero,
        // or were written, and nobody reads as elements what was not.
        unsafe { ViewMut::of_bytes(stage.dtype, stage.memory.as_mut_ptr().cast(), stage.bytes) }
    }

    /// Copies the first elements, as many as `count`, to the view that this was made for. Waits for the
    /// device.
    ///
    /// Errors: the device fails.
    ///
    /// # Safety
    /// So many were written.
    pub(crate) unsafe fn land(&self, into: &mut ViewMut<'_>, count: usize) -> Result<()> {
        let StagedRoom(Stage { device, copies, dtype, bytes, memory }) = self;
        assert!(into.place() == Place::Device(*device) && into.dtype().id == dtype.id);
        let landed = count * dtype.size as usize;
        assert!(landed <= *bytes && landed <= into.bytes());
        // SAFETY: the device has room for them there, borrowed uniquely as long as the view lives, and
        // they are values, as they were written (this function's contract).
        unsafe { (copies.to_device)(*device, memory.as_ptr().cast(), into.base_mut(), landed) }
    }
}

/// The elements of a view where the host reads them: those of a device are copied to `stage`.
///
/// Errors: `unknown`, where nobody knows how to copy them; the host has no room; the device fails.
#[inline]
pub fn on_host<'a>(
    view: View<'a>,
    stage: &'a mut Option<StagedView>,
    unknown: &dyn Fn() -> Error,
) -> Result<View<'a>> {
    if view.place() == Place::Host {
        return Ok(view);
    }
    Ok(stage.insert(StagedView::new(&view, unknown)?).erased())
}

/// Has `fill` write the first elements of a view, as many as `count` tells of what it gives: on a device
/// by way of the host. If that fails, nothing comes to the device.
///
/// Errors: those of `fill`; as [`on_host`].
///
/// # Safety
/// `fill` has written so many, if it gives no error.
#[inline]
pub unsafe fn by_host<R>(
    mut view: ViewMut<'_>,
    unknown: &dyn Fn() -> Error,
    fill: impl FnOnce(ViewMut<'_>) -> Result<R>,
    count: impl FnOnce(&R) -> usize,
) -> Result<R> {
    if view.place() == Place::Host {
        return fill(view);
    }
    let mut stage = StagedRoom::new(&view, unknown)?;
    let filled = fill(stage.erased_mut())?;
    // SAFETY: this function's contract.
    unsafe { stage.land(&mut view, count(&filled))? };
    Ok(filled)
}
