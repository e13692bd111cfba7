//! Started calls of a communicator. They go on tracks: each is the communicator once more, on an
//! area of its own, on which one call follows another. So what calls rely on, that a rank has ended
//! one when it begins the next, stays true on each area, and calls on different tracks end in any
//! order.

use std::cell::{Cell, OnceCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::communicator::{Comm, Tracks};
use super::entry::User;
use super::polls::Polling;
use crate::call::Call;
use crate::error::{Error, Result};
use crate::group::{Scope, TRACKS};
use crate::transport::shared::collective::CollectiveArea;
use crate::transport::shared::waiter::Waiter;
use crate::transport::shared::waiter::started::AwaitsStarted;
use crate::wait::{self, StartedHandle};

/// A call that is under way while its rank does something else. Dropped, it is waited for.
#[must_use = "dropped, it waits until the call is over"]
#[expect(missing_debug_implementations, reason = "hidden: no user holds one")]
pub struct StartedCall<'a> {
    handle: Option<StartedHandle<'a>>,
    comm: &'a Comm,
    call: Call<'a>,
}

impl StartedCall<'_> {
    /// Goes on with the calls that whoever runs here has started. Whether this one is over.
    pub fn test(&self) -> bool {
        self.handle.as_ref().is_none_or(StartedHandle::test)
    }

    /// Waits until the call is over, and gives its result. A panic of an operation goes on here.
    ///
    /// Errors: the call's.
    pub fn wait(mut self) -> Result<()> {
        self.until_over();
        self.handle.take().map_or(Ok(()), StartedHandle::result)
    }

    /// Waits, on record, until the call is over.
    fn until_over(&self) {
        let Some(handle) = &self.handle else { return };
        let Comm { endpoint, scope, .. } = self.comm;
        let waiter = Waiter::new(endpoint, scope, &self.call, self.comm.note(&self.call));
        handle.until_over(&mut AwaitsStarted::new(waiter));
    }
}

impl Drop for StartedCall<'_> {
    fn drop(&mut self) {
        // Otherwise the handle tells the call to give up.
        if !std::thread::panicking() {
            self.until_over();
        }
    }
}

impl Comm {
    /// Starts a call: `body` carries it out on the communicator that it is given, of the same
    /// ranks, and runs here as far as it can go without waiting. All ranks start it, between the
    /// same other calls. Any number may be started, of which [`TRACKS`] are under way at a time;
    /// the others follow in order. They end in any order.
    ///
    /// Errors: as for a call that is not started; the communicator spans processes without common
    /// memory; the system has no room for a stack.
    ///
    /// # Safety
    /// What `body` uses lives until the call is over: what this gives is dropped, not forgotten,
    /// before any of it, by the agent that starts the call.
    pub(crate) unsafe fn start<'a>(
        &'a self,
        call: Call<'a>,
        body: impl FnOnce(&'a Comm) -> Result<()> + 'a,
    ) -> Result<StartedCall<'a>> {
        let entered = self.user.enter(&call)?;
        if self.hierarchy.is_some() {
            return Err(Error::unavailable(
                format!("{call}, started"),
                "the communicator spans processes without common memory".into(),
                "make the call without starting it".into(),
            ));
        }
        let tracks = self.started.get_or_init(|| {
            self.endpoint.use_tracks(self.area.index);
            Box::new(Tracks::of(self))
        });
        let (start, moment) = (tracks.starts.get(), self.area.moment());
        tracks.starts.set(start + 1);
        self.endpoint.acts();
        drop(entered);
        let (track, turn) = (start as usize % TRACKS, start / TRACKS as u64);
        let (comm, over, bell) = (&tracks.comms[track], &tracks.over[track], self.endpoint.bell());
        let in_turn = move || {
            wait::for_own_turn(bell, || over.get() == turn);
            comm.area.follows(moment, start);
            // What it waits for is told where it waits.
            comm.endpoint.begins_started();
            let result = catch_unwind(AssertUnwindSafe(|| body(comm)));
            comm.endpoint.ends_started();
            over.set(turn + 1);
            result.unwrap_or_else(|payload| resume_unwind(payload))
        };
        // SAFETY: what `body` uses lives until the call is over, as what this gives is dropped, not
        // forgotten, before any of it, by the agent that starts the call (this function's
        // contract). The tracks and the bell are borrowed from `self`, and so live at least as long
        // as what this gives.
        let started = unsafe { wait::start(bell, in_turn) };
        // Nothing of it has run: the next one takes its turn.
        let handle = started.inspect_err(|_| tracks.starts.set(start))?;
        Ok(StartedCall { handle: Some(handle), comm: self, call })
    }

    /// The same ranks on the area of a track.
    fn track(&self, track: usize) -> Comm {
        let index = self.endpoint.world.memory.layout.area_of_track(self.area.index, track);
        Comm {
            endpoint: self.endpoint.clone(),
            route: self.route.clone(),
            scope: Scope { track, ..self.scope.clone() },
            me: self.me,
            here: self.here,
            hierarchy: None,
            beyond: self.beyond.clone(),
            offload: self.offload.clone(),
            area: CollectiveArea::new(index, self.scope.context),
            notes: Default::default(),
            origin: self.origin,
            choices: self.choices.copied(),
            polling: Polling::default(),
            user: User::default(),
            started: OnceCell::new(),
            primary: true,
            _part: None,
        }
    }
}

impl Tracks {
    fn of(comm: &Comm) -> Tracks {
        let comms = std::array::from_fn(|track| comm.track(1 + track));
        Tracks { comms, over: Default::default(), starts: Cell::new(0) }
    }

    /// How many rounds this rank has begun on each.
    pub(super) fn rounds(&self) -> [u64; TRACKS] {
        std::array::from_fn(|track| self.comms[track].area.rounds())
    }
}
