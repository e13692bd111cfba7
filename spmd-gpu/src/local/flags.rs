//! By what the streams of ranks that are processes wait for each other: words in memory of the host that
//! all of them have, which the device writes and compares in the order of a stream
//! (`cuStreamWriteValue32`, `cuStreamWaitValue32`).
//!
//! Events of other processes (`cuIpcOpenEventHandle`) would be undefined once their owner has freed them, as a process
//! that dies does, and nobody could end a wait for one. What waits for a word goes on when the host
//! writes it: so where a rank has died, the others do that for it.

use std::ffi::c_void;
use std::panic::Location;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use std::thread;
use std::time::Duration;

use cudarc::driver::sys;
use parking_lot::Mutex;
use rustix::param::page_size;
use spmd_collectives::Split;
use spmd_core::internal::{Call, Kind, RawWindow, Watch};
use spmd_core::{Comm, Element, Result};

use super::kernels::MOST_RANKS;
use crate::device::Device;
use crate::driver::Checked;
use crate::error::GpuError;
use crate::joint::Joint;

/// The words of a communicator. A call has a number, and a word is set when the call of its number, and
/// all before it, are so far. Numbers go round: of two the later one is less than half of all ahead.
#[repr(C)]
struct Words {
    /// By rank: its stream has come to the call.
    ready: [AtomicU32; MOST_RANKS],
    /// By rank: the first rank's stream has done the call, told to this one.
    done: [AtomicU32; MOST_RANKS],
    /// The first rank may have told its device to do the call.
    begun: AtomicU32,
    /// The first rank, counted from 1, without whose part streams have gone on, if there is one: its process has died,
    /// or its device is lost.
    missing: AtomicU32,
}

/// So many calls of a communicator of this size are under way on the device at most: each has the first rank's stream
/// do two things a rank, and a driver's queue of some thousand must not be full.
fn most_under_way(ranks: usize) -> u32 {
    (256 / ranks as u32).clamp(4, 64)
}

/// What a rank of a communicator has of them. Dropped, it waits until its streams wait for none any more.
pub(super) struct Flags(Arc<Inner>);

struct Inner {
    words: NonNull<Words>,
    /// Where they are for the device.
    place: u64,
    device: Device,
    rank: usize,
    /// The numbers of the communicator's ranks in the world.
    members: Vec<usize>,
    watch: Watch,
    last: Mutex<Last>,
    /// Whether this rank's stream has gone on without the first one's.
    cut_off: AtomicBool,
    /// Whether the program was told of either.
    told: AtomicBool,
    /// Dropped last. It has the words.
    _window: Mutex<RawWindow>,
}

struct Last {
    number: u32,
    call: (Kind, &'static Location<'static>),
    /// The streams that may wait.
    users: Vec<Device>,
}

// SAFETY: the words are atomic, and lie in memory of the window, which lives as long as this.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Flags {
    /// Makes them. All ranks of the communicator, processes of one host, call this.
    ///
    /// Errors: those of making a window; the inner one, of this rank alone: the driver does not take memory that
    /// processes share, or has no such operations.
    pub(super) fn new(
        comm: &Comm,
        call: &Call<'_>,
        device: &Device,
    ) -> Result<Result<Arc<Flags>, GpuError>> {
        // A whole page is in it, at the same place in all processes: the driver takes no less.
        let page_size = page_size();
        let len = if comm.rank() == 0 { 2 * page_size } else { 0 };
        let window = RawWindow::new(comm.dup()?, call, len, &u8::DTYPE)?;
        let opened = window.open(0)?;
        let (start, _) = opened.expect("processes of one host write each other's parts");
        // SAFETY: within the part, which is two pages long.
        let page = unsafe { start.add(start.align_offset(page_size)) };
        let words = NonNull::new(page.cast()).expect("it is memory");
        Ok(register(page, device).map(|place| {
            let call = (call.kind, call.site);
            let watch = comm.internals().watch();
            watch.looks_after(&device.health());
            let inner = Inner {
                words,
                place,
                device: device.clone(),
                rank: comm.rank(),
                members: (0..comm.size()).map(|rank| comm.world_rank(rank)).collect(),
                watch,
                last: Mutex::new(Last { number: 0, call, users: vec![device.clone()] }),
                cut_off: AtomicBool::new(false),
                told: AtomicBool::new(false),
                _window: Mutex::new(window),
            };
            Arc::new(Flags(Arc::new(inner)))
        }))
    }

    /// A call begins, which this device carries out. Its number, the same on all ranks, whatever goes wrong.
    pub(super) fn begin(&self, call: &Call<'_>, device: &Device) -> u32 {
        let joint: Arc<dyn Joint> = self.0.clone();
        device.waits_for(&joint);
        let mut last = self.0.last.lock();
        if !last.users.contains(device) {
            last.users.push(device.clone());
            self.0.watch.looks_after(&device.health());
        }
        last.call = (call.kind, call.site);
        last.number = last.number.wrapping_add(1);
        last.number
    }

    /// Has the others know when this rank's stream has done what it holds now, once few calls are under way there.
    ///
    /// Errors: ranks that the device waits for have failed; the driver refuses.
    pub(super) fn show_ready(&self, device: &Device, number: u32) -> Result<(), GpuError> {
        let done = &self.0.words().done[self.0.rank];
        let most = most_under_way(self.0.members.len());
        let are_few = || is_so_far(done, number.wrapping_sub(most));
        if !are_few() {
            device.look_after(true, || Ok(are_few() || device.is_idle()?))?;
        }
        self.0.write(device, &self.0.words().ready[self.0.rank], number)
    }

    /// Has the first rank's stream wait for those of all ranks. Then the device may be told to do the call.
    pub(super) fn wait_for_ready(&self, device: &Device, number: u32) -> Result<(), GpuError> {
        self.0.words().begun.store(number, Release);
        let others = &self.0.words().ready[1..self.0.members.len()];
        others.iter().try_for_each(|word| self.0.wait(device, word, number))
    }

    /// Has the others know when the first rank's stream has done the call.
    pub(super) fn show_done(&self, device: &Device, number: u32) -> Result<(), GpuError> {
        let all = &self.0.words().done[..self.0.members.len()];
        all.iter().try_for_each(|word| self.0.write(device, word, number))
    }

    /// The same of a call that has failed, when the first rank's device does nothing more of what it was told.
    pub(super) fn is_over(&self, device: &Device, number: u32) {
        if !device.has_settled() {
            self.0.goes_on_without(self.0.rank);
        }
        self.0.words().done.iter().for_each(|word| raise(word, number));
    }

    /// Has this rank's stream wait until the first rank's has done the call.
    pub(super) fn wait_for_done(&self, device: &Device, number: u32) -> Result<(), GpuError> {
        self.0.wait(device, &self.0.words().done[self.0.rank], number)
    }

    /// The same on the host, where the stream cannot: until then the device of the first rank uses this one's memory.
    pub(super) fn until_done(&self, device: &Device, number: u32) {
        let is_over = || is_so_far(&self.0.words().done[self.0.rank], number);
        while !is_over() {
            // It ends the wait for a first rank that has died, and the first one's for this rank's device.
            let _ = self.0.check(Duration::ZERO);
            self.0.look_at(device);
            thread::sleep(Duration::from_micros(50));
        }
    }

    /// Whether the first rank may have told its device to do the call.
    pub(super) fn has_begun(&self, number: u32) -> bool {
        is_so_far(&self.0.words().begun, number)
    }
}

impl Inner {
    fn words(&self) -> &Words {
        // SAFETY: zeroed memory of the window, aligned to a page and as long as one, which lives as long as `self`; it is
        // accessed by atomics alone.
        unsafe { self.words.as_ref() }
    }

    fn place_of(&self, word: &AtomicU32) -> u64 {
        let offset = (&raw const *word).addr() - self.words.addr().get();
        self.place + offset as u64
    }

    fn write(&self, device: &Device, word: &AtomicU32, number: u32) -> Result<(), GpuError> {
        device.context().bind_to_thread().checked("cuCtxSetCurrent")?;
        let (stream, place) = (device.stream().cu_stream(), self.place_of(word));
        // SAFETY: a word that the driver knows until the streams of `users` are done.
        unsafe { sys::cuStreamWriteValue32_v2(stream, place, number, 0) }
            .result()
            .checked("cuStreamWriteValue32")
            .inspect_err(|_| self.look_at(device))
    }

    /// Where the device is lost, says so.
    fn look_at(&self, device: &Device) {
        if device.is_idle().is_err() {
            self.is_lost(device.ordinal());
        }
    }

    fn wait(&self, device: &Device, word: &AtomicU32, number: u32) -> Result<(), GpuError> {
        device.context().bind_to_thread().checked("cuCtxSetCurrent")?;
        let (stream, place) = (device.stream().cu_stream(), self.place_of(word));
        let later = sys::CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_GEQ as u32;
        // SAFETY: a word that the driver knows until the streams of `users` are done.
        unsafe { sys::cuStreamWaitValue32_v2(stream, place, number, later) }
            .result()
            .checked("cuStreamWaitValue32")
            .inspect_err(|_| self.look_at(device))
    }

    /// Has all know that what streams do from now on is without the part of a rank. Of several the first is named.
    fn goes_on_without(&self, rank: usize) {
        let missing = &self.words().missing;
        let _ = missing.compare_exchange(0, rank as u32 + 1, AcqRel, Acquire);
    }

    /// Does for ranks that have died what their streams cannot do any more.
    fn stand_in(&self, number: u32) {
        let words = self.words();
        let dead = |rank: &usize| self.watch.is_dead(self.members[*rank]);
        for rank in (1..self.members.len()).filter(dead) {
            let ready = &words.ready[rank];
            if !is_so_far(ready, number) {
                // Who finds its stream done after that sees it.
                self.goes_on_without(rank);
                raise(ready, number);
            }
        }
        let done = &words.done[self.rank];
        if dead(&0) && self.rank > 0 && !is_so_far(done, number) {
            self.cut_off.store(true, Relaxed);
            raise(done, number);
        }
    }
}

fn is_so_far(word: &AtomicU32, number: u32) -> bool {
    number.wrapping_sub(word.load(Acquire)) as i32 <= 0
}

/// Sets a word that is not so far.
fn raise(word: &AtomicU32, number: u32) {
    let later = |now: u32| (number.wrapping_sub(now) as i32 > 0).then_some(number);
    let _ = word.fetch_update(AcqRel, Acquire, later);
}

/// Tells the driver of a page of the host's. Where the device finds it.
///
/// Errors: it refuses, or has no operations on it.
fn register(page: *mut u8, device: &Device) -> Result<u64, GpuError> {
    device.context().bind_to_thread().checked("cuCtxSetCurrent")?;
    let (page, mut place): (*mut c_void, u64) = (page.cast(), 0);
    let flags = sys::CU_MEMHOSTREGISTER_PORTABLE | sys::CU_MEMHOSTREGISTER_DEVICEMAP;
    // SAFETY: memory that is mapped until it is unregistered: here, or when `Inner` is dropped.
    unsafe { sys::cuMemHostRegister_v2(page, page_size(), flags) }
        .result()
        .checked("cuMemHostRegister")?;
    let stream = device.stream().cu_stream();
    // SAFETY: it writes to a place of this function; the stream waits for a word that is zero.
    let tried = unsafe {
        sys::cuMemHostGetDevicePointer_v2(&mut place, page, 0)
            .result()
            .and_then(|()| sys::cuStreamWaitValue32_v2(stream, place, 0, 0).result())
    };
    tried.checked("cuStreamWaitValue32").map(|()| place).inspect_err(|_| {
        // SAFETY: it was registered just now, and nothing uses it.
        let _ = unsafe { sys::cuMemHostUnregister(page) };
    })
}

impl Joint for Inner {
    /// Only where a rank has died, something waits for ever.
    fn check(&self, _waited: Duration) -> Result<(), GpuError> {
        let last = self.last.lock();
        let (number, (kind, site)) = (last.number, last.call);
        drop(last);
        let stopped = self.watch.stopped(&Call::new(kind, site));
        if stopped.is_some() {
            // What has not begun, no stream waits for.
            let begun = self.words().begun.load(Acquire);
            let ahead = number.wrapping_sub(begun) as i32 > 0;
            self.stand_in(if ahead { begun } else { number });
        }
        let missing = match self.words().missing.load(Acquire) {
            0 if self.cut_off.load(Relaxed) => 0,
            0 => return Ok(()),
            // Other processes can write the words.
            missing => (missing as usize - 1).min(self.members.len() - 1),
        };
        let rank = self.members[missing];
        let lost = || format!("the device of rank {rank} has failed before it had done its part");
        Err(GpuError::Abandoned { text: stopped.map_or_else(lost, |error| error.to_string()) })
    }

    /// All ranks have joined it before it was put into the stream.
    fn end(&self) {}

    fn is_lost(&self, ordinal: u32) {
        if ordinal != self.device.ordinal() {
            return;
        }
        let (words, number) = (self.words(), self.last.lock().number);
        self.goes_on_without(self.rank);
        raise(&words.ready[self.rank], number);
        if self.rank == 0 {
            words.done.iter().for_each(|word| raise(word, number));
        }
    }

    fn was_told(&self) -> &AtomicBool {
        &self.told
    }
}

impl Drop for Flags {
    fn drop(&mut self) {
        let users = std::mem::take(&mut self.0.last.lock().users);
        users.iter().for_each(Device::synchronize_untold);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.device.context().bind_to_thread().is_ok() {
            // SAFETY: it was registered once, and no stream uses it any more: those of its users have been waited for.
            let _ = unsafe { sys::cuMemHostUnregister(self.words.as_ptr().cast()) };
        }
    }
}
