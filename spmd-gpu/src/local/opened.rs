//! Memory of other processes that this one has open, from call to call.

use std::collections::BTreeMap;
use std::sync::Arc;

use cudarc::driver::{CudaContext, sys};
use parking_lot::Mutex;

use crate::device::Device;
use crate::driver::Checked;
use crate::error::GpuError;
use crate::exports::{Exposed, Handle};

/// So many pieces of memory stay open between calls. Of more, those are closed that were used least lately.
const MOST_OPEN: usize = 256;

static OPENED: Mutex<Opened> = Mutex::new(Opened { uses: 0, all: BTreeMap::new() });

struct Opened {
    uses: u64,
    /// By the rank of the world whose memory it is, and its number there; with its last use.
    all: BTreeMap<(usize, u64), (Arc<Mapping>, u64)>,
}

impl Opened {
    /// What is open by this key, used once more.
    fn used(&mut self, key: (usize, u64)) -> Option<Arc<Mapping>> {
        self.uses += 1;
        let (mapping, last) = self.all.get_mut(&key)?;
        *last = self.uses;
        Some(mapping.clone())
    }
}

/// Where memory of another process lies in this one.
pub(super) struct Mapping {
    pub(super) start: u64,
    pub(super) bytes: usize,
    context: Arc<CudaContext>,
    /// Whose streams use it.
    users: Mutex<Vec<Device>>,
}

/// What a rank of the world has told of, opened now or in an earlier call. It stays open as long as
/// somebody holds it.
///
/// Errors: the driver cannot open it.
pub(super) fn open(
    owner: usize,
    exposed: &Exposed,
    device: &Device,
) -> Result<Arc<Mapping>, GpuError> {
    let key = (owner, exposed.number);
    let known = OPENED.lock().used(key);
    let mapping = match known {
        Some(mapping) => mapping,
        None => {
            // The driver may wait for what the device does.
            device.settle_untold();
            let mapping = Arc::new(Mapping::new(&exposed.handle, device)?);
            let mut opened = OPENED.lock();
            // Another thread may have opened it as well: the driver counts that.
            match opened.used(key) {
                Some(known) => known,
                None => {
                    let last = opened.uses;
                    opened.all.insert(key, (mapping.clone(), last));
                    mapping
                }
            }
        }
    };
    let mut users = mapping.users.lock();
    if !users.contains(device) {
        users.push(device.clone());
    }
    drop(users);
    Ok(mapping)
}

/// Locked by who closes: another thread that finds something closed knows that it is.
static CLOSING: Mutex<()> = Mutex::new(());

/// Closes what the owner's buffers have left, when the device uses it no more.
pub(super) fn close(owner: usize, numbers: &[u64]) {
    let _closing = CLOSING.lock();
    let mut opened = OPENED.lock();
    let all = numbers.iter().filter_map(|number| opened.all.remove(&(owner, *number)));
    let all: Vec<_> = all.collect();
    drop(opened);
    // They wait for the device, without the lock.
    drop(all);
}

/// Keeps what is open within its bound.
pub(super) fn keep_few() {
    let _closing = CLOSING.lock();
    let mut opened = OPENED.lock();
    if opened.all.len() > MOST_OPEN {
        let mut uses: Vec<u64> = opened.all.values().map(|(_, last)| *last).collect();
        uses.sort_unstable();
        let oldest = uses[uses.len() - MOST_OPEN];
        let mut few = Vec::new();
        opened.all.retain(|_, (mapping, last)| {
            let stays = *last >= oldest;
            few.extend((!stays).then(|| mapping.clone()));
            stays
        });
        drop(opened);
        drop(few);
    }
}

impl Mapping {
    fn new(handle: &Handle, device: &Device) -> Result<Mapping, GpuError> {
        let mut bytes = [0; 64];
        for (bytes, word) in bytes.as_chunks_mut().0.iter_mut().zip(handle) {
            *bytes = word.to_ne_bytes().map(|byte| byte as std::ffi::c_char);
        }
        let handle = sys::CUipcMemHandle { reserved: bytes };
        let flags = sys::CUipcMem_flags::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS as u32;
        device.context().bind_to_thread().checked("cuCtxSetCurrent")?;
        let context = device.context().clone();
        let mut mapping = Mapping { start: 0, bytes: 0, context, users: Mutex::default() };
        // SAFETY: each writes to places of this function; a handle may be any bytes.
        unsafe {
            sys::cuIpcOpenMemHandle_v2(&mut mapping.start, handle, flags)
                .result()
                .checked("cuIpcOpenMemHandle")?;
            let mut base = 0;
            sys::cuMemGetAddressRange_v2(&mut base, &mut mapping.bytes, mapping.start)
                .result()
                .checked("cuMemGetAddressRange")?;
        }
        Ok(mapping)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // A device that is lost does nothing any more.
        self.users.get_mut().iter().for_each(Device::synchronize_untold);
        // Where it was not opened, there is nothing to close.
        if self.start != 0 && self.context.bind_to_thread().is_ok() {
            // SAFETY: it was opened once, and all streams that used it were just waited for.
            let _ = unsafe { sys::cuIpcCloseMemHandle(self.start) };
        }
    }
}
