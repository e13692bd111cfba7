//! Memory of this process that other ones may have open (CUDA IPC).
//!
//! They keep it open from call to call, and the driver must not have it back before they have closed it
//! (`cuIpcOpenMemHandle`). So what a buffer leaves stays here while somebody may have it open: the next
//! buffer of its size gets it, or the next call with those that have it open asks them to close it.

use std::collections::BTreeMap;

use cudarc::driver::{CudaSlice, DevicePtr, DriverError, result, sys};
use parking_lot::Mutex;

use crate::device::Device;

/// By which another process opens memory.
pub(crate) type Handle = [u64; 8];

/// A call asks for so many pieces of memory at most to be closed; the next one for more.
pub(crate) const MOST_CLOSED: usize = 256;

static EXPORTS: Mutex<Exports> =
    Mutex::new(Exports { last: 0, used: BTreeMap::new(), left: Vec::new() });

struct Exports {
    /// The number of the newest piece of memory. None is given twice.
    last: u64,
    /// What buffers are made of, by address.
    used: BTreeMap<u64, Export>,
    /// What buffers have left that ranks may have open.
    left: Vec<(Export, CudaSlice<u8>)>,
}

struct Export {
    number: u64,
    bytes: usize,
    /// None before somebody asks.
    handle: Option<Handle>,
    /// The ranks of the world that may have it open.
    openers: Vec<usize>,
    /// Whether one of them was asked to close it: no buffer gets it any more.
    closing: bool,
}

/// Memory of a buffer that other processes may open. It is freed in the order of the stream where it was made,
/// when nobody can have it open any more.
pub(crate) struct Exported(Option<CudaSlice<u8>>);

/// What another process opens.
#[derive(Clone, Copy)]
pub(crate) struct Exposed {
    pub(crate) number: u64,
    /// Where the memory asked for lies in what the handle opens.
    pub(crate) offset: u64,
    pub(crate) handle: Handle,
}

impl Exported {
    /// The memory of a buffer that has gone, if there is some of this size.
    pub(crate) fn left(device: &Device, bytes: usize) -> Option<Exported> {
        let stream = device.stream();
        let fits = |(export, memory): &(Export, CudaSlice<u8>)| {
            // In the order of the stream, all that used it comes before who gets it.
            !export.closing && export.bytes == bytes && **memory.stream() == **stream
        };
        let mut exports = EXPORTS.lock();
        let at = exports.left.iter().position(fits)?;
        let (export, memory) = exports.left.swap_remove(at);
        exports.used.insert(address_of(&memory), export);
        Some(Exported(Some(memory)))
    }

    /// Memory that holds nothing yet, which no pool gives. The driver may wait for the device.
    pub(crate) fn new(device: &Device, bytes: usize) -> Result<Exported, DriverError> {
        let stream = device.stream();
        device.context().bind_to_thread()?;
        // SAFETY: there is a context, of which the memory is; whoever has it writes it before anybody reads.
        let memory = unsafe {
            let start = result::malloc_sync(bytes)?;
            stream.upgrade_device_ptr::<u8>(start, bytes)
        };
        let mut exports = EXPORTS.lock();
        exports.last += 1;
        let (number, openers) = (exports.last, Vec::new());
        let export = Export { number, bytes, handle: None, openers, closing: false };
        exports.used.insert(address_of(&memory), export);
        Ok(Exported(Some(memory)))
    }

    pub(crate) fn memory(&self) -> &CudaSlice<u8> {
        self.0.as_ref().expect("it goes with the buffer")
    }
}

impl Drop for Exported {
    fn drop(&mut self) {
        let Some(memory) = self.0.take() else { return };
        let mut exports = EXPORTS.lock();
        match exports.used.remove(&address_of(&memory)) {
            Some(export) if !export.openers.is_empty() => exports.left.push((export, memory)),
            // It is freed without the lock.
            _ => drop((exports, memory)),
        }
    }
}

/// What another process needs to open the memory at this address, if it can be opened.
pub(crate) fn exposed(place: u64) -> Option<Exposed> {
    let mut exports = EXPORTS.lock();
    let (start, export) = exports.used.range_mut(..=place).next_back()?;
    let offset = place - start;
    if offset >= export.bytes as u64 {
        return None;
    }
    let known = export.handle;
    let handle = known.or_else(|| handle_of(*start))?;
    export.handle = Some(handle);
    Some(Exposed { number: export.number, offset, handle })
}

/// The driver's handle of memory of this process.
fn handle_of(start: u64) -> Option<Handle> {
    let mut handle = sys::CUipcMemHandle { reserved: [0; 64] };
    // SAFETY: it writes to a place of this function; the address is one of the driver's.
    unsafe { sys::cuIpcGetMemHandle(&mut handle, start) }.result().ok()?;
    let bytes = handle.reserved.map(|byte| byte as u8);
    let words = bytes.as_chunks().0;
    Some(std::array::from_fn(|at| u64::from_ne_bytes(words[at])))
}

/// From now on a rank may have the memory of the live buffer open that has this address.
pub(crate) fn may_open(opener: usize, place: u64) {
    let mut exports = EXPORTS.lock();
    if let Some((_, export)) = exports.used.range_mut(..=place).next_back()
        && !export.openers.contains(&opener)
    {
        export.openers.push(opener);
    }
}

/// What a rank is to close, as the buffers have gone: up to [`MOST_CLOSED`] numbers.
pub(crate) fn to_close(opener: usize) -> Vec<u64> {
    let mut exports = EXPORTS.lock();
    let left = exports.left.iter_mut().filter(|(export, _)| export.openers.contains(&opener));
    let asked = left.take(MOST_CLOSED).map(|(export, _)| {
        export.closing = true;
        export.number
    });
    asked.collect()
}

/// A rank has closed these.
pub(crate) fn closed(opener: usize, numbers: &[u64]) {
    let mut exports = EXPORTS.lock();
    let mut free = Vec::new();
    for at in (0..exports.left.len()).rev() {
        let export = &mut exports.left[at].0;
        if numbers.contains(&export.number) {
            export.openers.retain(|it| *it != opener);
            if export.openers.is_empty() {
                free.push(exports.left.swap_remove(at).1);
            }
        }
    }
    drop(exports);
    // Freed without the lock.
    drop(free);
}

/// Where memory of a device is.
pub(crate) fn address_of(memory: &CudaSlice<u8>) -> u64 {
    memory.device_ptr(memory.stream()).0
}
