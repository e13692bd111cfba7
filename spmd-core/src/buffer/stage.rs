//! Elements of a device, on the host for as long as a call needs them there.

use std::sync::OnceLock;

use super::pattern::Rows;
use super::place::Place;
use super::view::View;
use super::view_mut::ViewMut;
use crate::element::DType;
use crate::error::{Error, Result};

/// How bytes of a device are copied to the host and back, in the order of the caller's stream. Both
/// wait for the device, whatever fails.
#[derive(Clone, Copy, Debug)]
pub struct DeviceCopies {
    /// From a device of this number to the host.
    pub to_host: unsafe fn(u32, &[Rows], *mut u8) -> Result<()>,
    /// From the host to a device.
    pub to_device: unsafe fn(u32, *const u8, &[Rows]) -> Result<()>,
}

static COPIES: OnceLock<DeviceCopies> = OnceLock::new();

/// Says how all elements on devices are copied, the first time.
///
/// # Safety
/// They copy these bytes, between places that may be read and written, whatever the thread.
pub unsafe fn set_device_copies(copies: DeviceCopies) {
    let _ = COPIES.set(copies);
}

/// Whether what is there can be copied to the host.
pub(crate) fn is_reached(place: Place) -> bool {
    place == Place::Host || COPIES.get().is_some()
}

/// Memory of the host for elements of any type, one after another.
#[expect(missing_debug_implementations, reason = "hidden: no user holds one")]
pub struct Room {
    dtype: &'static DType,
    bytes: usize,
    /// Its start does not move.
    memory: Vec<u128>,
}

impl Room {
    /// For so many elements.
    ///
    /// Errors: the host has not so much.
    pub fn new(dtype: &'static DType, len: usize) -> Result<Room> {
        let (bytes, mut memory) = (len.saturating_mul(dtype.size as usize), Vec::new());
        let words = bytes.div_ceil(size_of::<u128>());
        memory.try_reserve_exact(words).map_err(|error| {
            Error::unavailable(
                format!("memory of the host for {bytes} bytes"),
                error.to_string(),
                "make the call on less at once".into(),
            )
        })?;
        memory.resize(words, 0);
        Ok(Room { dtype, bytes, memory })
    }

    /// The elements.
    ///
    /// # Safety
    /// All of them were written.
    pub unsafe fn erased(&self) -> View<'_> {
        // SAFETY: the memory holds so many bytes, which are values of this type (this function's contract).
        unsafe { View::of_bytes(self.dtype, self.memory.as_ptr().cast(), self.bytes) }
    }

    /// The room for them. All its bytes are zero, or were written.
    ///
    /// # Safety
    /// Who reads elements there has written them.
    pub unsafe fn erased_mut(&mut self) -> ViewMut<'_> {
        // SAFETY: the memory has room for so many bytes, and is this one's.
        unsafe { ViewMut::of_bytes(self.dtype, self.memory.as_mut_ptr().cast(), self.bytes) }
    }
}

/// The device of a view, and how bytes of it are copied.
///
/// Errors: `unknown`, where nobody knows that.
fn device_of(view: &View<'_>, unknown: &dyn Fn() -> Error) -> Result<(u32, &'static DeviceCopies)> {
    let (Place::Device(device), Some(copies)) = (view.place(), COPIES.get()) else {
        return Err(unknown());
    };
    Ok((device, copies))
}

/// Elements of a device, copied to the host.
#[expect(missing_debug_implementations, reason = "hidden: no user holds one")]
pub struct StagedView(Room);

impl StagedView {
    /// A copy of elements of any place, which for a device waits for it.
    ///
    /// Errors: as [`StagedView::new`].
    pub(crate) fn copy_of(of: &View<'_>, unknown: &dyn Fn() -> Error) -> Result<StagedView> {
        if of.place() != Place::Host {
            return StagedView::new(of, unknown);
        }
        let mut room = Room::new(of.dtype(), of.len())?;
        // SAFETY: the memory is as long as the elements, and apart from them.
        unsafe { of.pack(room.memory.as_mut_ptr().cast()) };
        Ok(StagedView(room))
    }

    /// Waits for the device.
    ///
    /// Errors: `unknown`, where nobody knows how to copy them; the host has no room; the device fails.
    pub(crate) fn new(of: &View<'_>, unknown: &dyn Fn() -> Error) -> Result<StagedView> {
        let (device, copies) = device_of(of, unknown)?;
        let mut room = Room::new(of.dtype(), of.len())?;
        let into = room.memory.as_mut_ptr().cast::<u8>();
        // SAFETY: the device holds these rows as long as the view lives, and together they are as long as the
        // memory.
        unsafe { (copies.to_host)(device, &of.rows(of.len()), into)? };
        Ok(StagedView(room))
    }

    pub(crate) fn erased(&self) -> View<'_> {
        // SAFETY: all of them are copies of elements.
        unsafe { self.0.erased() }
    }
}

/// Room on the host for elements that go to a device.
pub(crate) struct StagedRoom {
    device: u32,
    copies: &'static DeviceCopies,
    room: Room,
}

impl StagedRoom {
    /// As much as a view has.
    ///
    /// Errors: `unknown`, where nobody knows how to copy it; the host has no room.
    pub(crate) fn new(of: &ViewMut<'_>, unknown: &dyn Fn() -> Error) -> Result<StagedRoom> {
        let (device, copies) = device_of(&of.as_view(), unknown)?;
        Ok(StagedRoom { device, copies, room: Room::new(of.dtype(), of.len())? })
    }

    pub(crate) fn erased_mut(&mut self) -> ViewMut<'_> {
        // SAFETY: whoever fills it writes, and what was written is all that `land` takes.
        unsafe { self.room.erased_mut() }
    }

    /// Copies the first elements, as many as `count`, to the view that this was made for. Waits for the
    /// device.
    ///
    /// Errors: the device fails.
    ///
    /// # Safety
    /// So many were written.
    pub(crate) unsafe fn land(&self, into: &mut ViewMut<'_>, count: usize) -> Result<()> {
        let StagedRoom { device, copies, room } = self;
        assert!(into.place() == Place::Device(*device) && *into.dtype() == *room.dtype);
        assert!(count * room.dtype.size as usize <= room.bytes && count <= into.len());
        let from = room.memory.as_ptr().cast::<u8>();
        // SAFETY: the device has room for these rows, borrowed uniquely as long as the view lives, and what the
        // memory holds for them are values, as they were written (this function's contract).
        unsafe { (copies.to_device)(*device, from, &into.as_view().rows(count)) }
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

/// Has `body` use the elements of a view one after another: those with gaps are copied, and back if it gives
/// no error.
///
/// Errors: those of `body`; there is no memory for a copy.
pub fn in_one_piece<R>(
    mut view: ViewMut<'_>,
    body: impl FnOnce(ViewMut<'_>) -> Result<R>,
) -> Result<R> {
    if view.contiguous().is_some() {
        return body(view);
    }
    let mut room = Room::new(view.dtype(), view.len())?;
    let start = room.memory.as_mut_ptr().cast();
    assert!(view.place() == Place::Host, "no buffer of a device has gaps");
    // SAFETY: there is room for all of them, apart from the view.
    unsafe { view.pack(start) };
    // SAFETY: all of them were just written.
    let done = body(unsafe { room.erased_mut() })?;
    // SAFETY: as above; all of them are elements, as they were, or as `body` has written them.
    unsafe { view.unpack(start) };
    Ok(done)
}
