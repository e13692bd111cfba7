//! A communicator of NCCL: made, used and ended without a wait that a lost peer could make endless.

use std::ffi::c_int;
use std::panic::Location;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::*};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use spmd_core::Comm;
use spmd_core::internal::{Call, Kind, Watch};

use super::table::{
    Code, Config, CudaStream, Handle, IN_PROGRESS, SUCCESS, Table, UniqueId, Whole,
};
use crate::device::Device;
use crate::driver::Checked;
use crate::error::GpuError;
use crate::joint::Joint;

/// How long NCCL may take to make a communicator.
const MAKING: Duration = Duration::from_secs(300);
/// How long it may take to end one that all ranks live of.
const ENDING: Duration = Duration::from_secs(30);

const ENDED: &str = "its communicator of NCCL has been ended";

/// This rank's part of a communicator of NCCL, on its device.
pub(super) struct Communicator {
    table: &'static Table,
    device: Device,
    watch: Watch,
    state: Mutex<State>,
    /// Whether it was ended before its work was done.
    has_ended: AtomicBool,
    /// Whether the program was told that it has failed.
    told: AtomicBool,
}

struct State {
    /// Null once it is of no use.
    handle: Handle,
    /// The last call that was put into the stream.
    last: (Kind, &'static Location<'static>),
}

// SAFETY: NCCL's handle may be used on any thread, by one at a time: that has `state` locked.
unsafe impl Send for State {}

impl Communicator {
    /// Makes it. All its ranks call this, with one id.
    ///
    /// Errors: what NCCL says; ranks have been stopped.
    pub(super) fn new(
        table: &'static Table,
        device: &Device,
        (id, rank, size): (UniqueId, usize, usize),
        (watch, call): (Watch, &Call<'_>),
    ) -> Result<Arc<Communicator>, GpuError> {
        const NAME: &str = "ncclCommInitRankConfig";
        let state = State { handle: null_mut(), last: (call.kind, call.site) };
        let (state, device) = (Mutex::new(state), device.clone());
        device.context().bind_to_thread().checked("cuCtxSetCurrent")?;
        let (has_ended, told) = Default::default();
        let made = Arc::new(Communicator { table, device, watch, state, has_ended, told });
        let mut config = Config::non_blocking();
        let mut state = made.state.lock();
        // SAFETY: place and configuration are this function's; the rank is one of so many, and the
        // current context that of its device.
        let code = unsafe {
            let init = table.comm_init_rank_config;
            init(&mut state.handle, size as c_int, id, rank as c_int, &mut config)
        };
        made.settled(&mut state, NAME, code, MAKING)?;
        drop(state);
        made.be_looked_after();
        Ok(made)
    }

    /// Has whoever waits for the device look after its ranks.
    fn be_looked_after(self: &Arc<Communicator>) {
        let joint: Arc<dyn Joint> = self.clone();
        self.device.waits_for(&joint);
        self.watch.looks_after(&self.device.health());
    }

    /// Whether NCCL can split it, as far as this rank is concerned. It has waited for the device then: NCCL
    /// must have nothing else to do. What has failed there is an error of who waits for its results.
    pub(super) fn can_split(&self) -> bool {
        self.table.comm_split.is_some()
            && self.device.has_settled()
            && !self.state.lock().handle.is_null()
    }

    /// Makes one of a part of its ranks, `part`, or of none. All its ranks call this, once all have said
    /// that they [can](Communicator::can_split). `comm` is the communicator
    /// that it joins.
    ///
    /// A rank that is in no part makes one of itself, which is gone at once: where NCCL is told of no color
    /// (`NCCL_SPLIT_NOCOLOR`) and another rank dies meanwhile, its 2.31 writes through a null pointer.
    ///
    /// Errors: what NCCL says; ranks have been stopped. Then this one is of no use any more.
    pub(super) fn split(
        &self,
        comm: &Comm,
        call: &Call<'_>,
        part: Option<&Comm>,
    ) -> Result<Option<Arc<Communicator>>, GpuError> {
        const NAME: &str = "ncclCommSplit";
        self.device.context().bind_to_thread().checked("cuCtxSetCurrent")?;
        let mut state = self.state.lock();
        let Some(split) = self.table.comm_split.filter(|_| !state.handle.is_null()) else {
            return Err(self.abandoned(&state));
        };
        state.last = (call.kind, call.site);
        // A rank is in one part alone, so that its first rank's number names it.
        let alone = || (comm.world_rank(comm.rank()), 0);
        let (color, key) = part.map_or_else(alone, |part| (part.world_rank(0), part.rank()));
        let (color, key) = (color as c_int, key as c_int);
        let (place, mut config) = (AtomicPtr::new(null_mut()), Config::non_blocking());
        // SAFETY: a communicator that was made and not ended, whose ranks all do this. The configuration is
        // read here; the place is written by NCCL's thread until the communicator has left the state of
        // progress or was aborted, for one of which `settled` waits.
        let code = unsafe { split(state.handle, color, key, place.as_ptr(), &mut config) };
        // It answers that it has succeeded, while its thread goes on.
        let code = if code == SUCCESS { self.state_of(&state) } else { code };
        let settled = self.settled(&mut state, NAME, code, MAKING);
        drop(state);
        let handle = place.load(Acquire);
        if handle.is_null() {
            let text = "it has made no communicator".into();
            return Err(settled.err().unwrap_or(GpuError::Nccl { call: NAME.into(), text }));
        }
        let watch = part.unwrap_or(comm).internals().watch();
        let (table, device) = (self.table, self.device.clone());
        let state = Mutex::new(State { handle, last: (call.kind, call.site) });
        let (has_ended, told) = Default::default();
        let made = Arc::new(Communicator { table, device, watch, state, has_ended, told });
        let mut state = made.state.lock();
        let settled = settled.and_then(|()| {
            let code = made.state_of(&state);
            made.settled(&mut state, NAME, code, MAKING)
        });
        // What a split has left that came to nothing is of no use.
        settled.inspect_err(|_| made.abort(&mut state))?;
        drop(state);
        if part.is_none() {
            return Ok(None);
        }
        made.be_looked_after();
        Ok(Some(made))
    }

    /// Whether it was made with this device, and this stream on it.
    pub(super) fn is_on(&self, device: &Device) -> bool {
        self.device == *device
    }

    /// The collectives of later versions, where it has them.
    pub(super) fn whole(&self) -> Option<&'static Whole> {
        self.table.whole.as_ref()
    }

    pub(super) fn ordinal(&self) -> u32 {
        self.device.ordinal()
    }

    /// Puts something into the stream of this rank.
    ///
    /// Errors: what NCCL says; ranks have been stopped. Then it is of no use any more.
    pub(super) fn put(
        &self,
        call: &Call<'_>,
        what: &str,
        put: impl FnOnce(&Table, Handle, CudaStream) -> Code,
    ) -> Result<(), GpuError> {
        self.device.context().bind_to_thread().checked("cuCtxSetCurrent")?;
        let mut state = self.state.lock();
        if state.handle.is_null() {
            return Err(self.abandoned(&state));
        }
        state.last = (call.kind, call.site);
        let code = put(self.table, state.handle, self.device.stream().cu_stream().cast());
        self.settled(&mut state, what, code, MAKING)
    }

    /// Waits until what a function has begun is under way.
    fn settled(
        &self,
        state: &mut State,
        what: &str,
        mut code: Code,
        limit: Duration,
    ) -> Result<(), GpuError> {
        let start = Instant::now();
        while code == IN_PROGRESS {
            let waited = start.elapsed();
            let refused = self.refused(state, waited);
            let late = (waited > limit).then(|| GpuError::Nccl {
                call: what.into(),
                text: format!("no end after {} s", limit.as_secs()),
            });
            if let Some(error) = refused.err().or(late) {
                self.abort(state);
                return Err(error);
            }
            if waited > Duration::from_micros(100) {
                thread::sleep(Duration::from_micros(20));
            }
            code = self.state_of(state);
        }
        if code != SUCCESS {
            self.abort(state);
        }
        self.table.checked(what, code)
    }

    fn state_of(&self, state: &State) -> Code {
        let mut code = SUCCESS;
        // SAFETY: a communicator that was made and not ended; it writes a number.
        let asked = unsafe { (self.table.comm_get_async_error)(state.handle, &mut code) };
        if asked == SUCCESS { code } else { asked }
    }

    /// Whether it is over with the ranks.
    fn refused(&self, state: &State, waited: Duration) -> Result<(), GpuError> {
        let call = Call::new(state.last.0, state.last.1);
        if let Some(error) = self.watch.stopped(&call) {
            return Err(GpuError::Abandoned { text: error.to_string() });
        }
        match self.watch.timeout().filter(|limit| waited > *limit) {
            None => Ok(()),
            Some(limit) => Err(GpuError::Abandoned {
                text: format!("{call} is not done after {} s", limit.as_secs_f64()),
            }),
        }
    }

    fn abandoned(&self, state: &State) -> GpuError {
        self.refused(state, Duration::ZERO)
            .err()
            .unwrap_or_else(|| GpuError::Abandoned { text: ENDED.into() })
    }

    fn abort(&self, state: &mut State) {
        if !state.handle.is_null() {
            // Whoever finds the stream done after this sees it.
            self.has_ended.store(true, Release);
            // SAFETY: it was made and not ended, and nobody uses it after this.
            unsafe { (self.table.comm_abort)(state.handle) };
            state.handle = null_mut();
        }
    }
}

impl Joint for Communicator {
    fn check(&self, waited: Duration) -> Result<(), GpuError> {
        // Whoever puts something into the stream looks after it meanwhile, and may wait for ranks that wait here.
        let Some(mut state) = self.state.try_lock() else {
            return match self.has_ended.load(Acquire) {
                true => Err(GpuError::Abandoned { text: ENDED.into() }),
                false => Ok(()),
            };
        };
        if state.handle.is_null() {
            return Err(self.abandoned(&state));
        }
        let code = self.state_of(&state);
        let failed = if code == IN_PROGRESS { SUCCESS } else { code };
        let checked = self.table.checked("NCCL", failed);
        checked.and_then(|()| self.refused(&state, waited)).inspect_err(|_| self.abort(&mut state))
    }

    fn end(&self) {
        self.abort(&mut self.state.lock());
    }

    /// The others learn of it from its rank, which is told.
    fn is_lost(&self, _ordinal: u32) {}

    fn was_told(&self) -> &AtomicBool {
        &self.told
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        let mut state = std::mem::replace(
            self.state.get_mut(),
            State { handle: null_mut(), last: (Kind::Barrier, Location::caller()) },
        );
        if state.handle.is_null() || self.device.context().bind_to_thread().is_err() {
            return;
        }
        // SAFETY: it was made and not ended.
        let code = unsafe { (self.table.comm_finalize)(state.handle) };
        // Where that comes to nothing, it has been aborted, and what it was to bring is no result.
        match self.settled(&mut state, "ncclCommFinalize", code, ENDING) {
            // SAFETY: as above, and nobody uses it after this.
            Ok(()) => drop(unsafe { (self.table.comm_destroy)(state.handle) }),
            Err(error) => self.device.tell_later(error),
        }
    }
}
